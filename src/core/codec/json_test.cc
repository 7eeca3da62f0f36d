#include "core/codec/json.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

namespace farlift::codec {
namespace {

TEST(Json, values_are_what_was_written) {
  const auto json = Json::parse(
      " {\"a\": 1, \"b\":[true,false,null] ,\"c\":\"x\\u00e9\\ud83d\\ude00\\n\",\"d\":-5,"
      "\"e\":1.5e2,\"f\":18446744073709551615,\"g\":{} } ");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->find("a")->u64(), 1u);
  EXPECT_EQ(json->find("a")->i64(), 1);
  EXPECT_EQ(json->find("b")->array()->size(), 3u);
  EXPECT_EQ((*json->find("b")->array())[0].boolean(), true);
  EXPECT_TRUE((*json->find("b")->array())[2].is_null());
  EXPECT_EQ(*json->find("c")->text(), "x\xC3\xA9\xF0\x9F\x98\x80\n");
  EXPECT_EQ(json->find("d")->i64(), -5);
  EXPECT_EQ(json->find("d")->u64(), std::nullopt);
  EXPECT_EQ(json->find("e")->real(), 150.0);
  EXPECT_EQ(json->find("e")->u64(), std::nullopt);
  EXPECT_EQ(json->find("f")->u64(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(json->find("f")->i64(), std::nullopt);
  EXPECT_TRUE(json->find("g")->object()->empty());
  EXPECT_EQ(json->find("h"), nullptr);
  EXPECT_EQ(json->find("a")->find("x"), nullptr);
}

TEST(Json, malformed_text_is_refused) {
  for (const std::string_view text : {"",
                                      " ",
                                      "{",
                                      "}",
                                      "[",
                                      "[1",
                                      "[1,",
                                      "[1,]",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{\"a\":1,}",
                                      "{a:1}",
                                      "{\"a\":1 \"b\":2}",
                                      "{} {}",
                                      "1 2",
                                      "tru",
                                      "nul",
                                      "+1",
                                      "01",
                                      "-",
                                      "-01",
                                      "1.",
                                      ".5",
                                      "1e",
                                      "1e+",
                                      "0x1",
                                      "NaN",
                                      "Infinity",
                                      "'a'",
                                      "\"a",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\u12g4\"",
                                      "\"\\u-123\"",
                                      "\"\\ud800\"",
                                      "\"\\udc00\"",
                                      "\"\\ud800\\u0041\"",
                                      "\"a\tb\"",
                                      "\"\x80\"",
                                      "\"\xC0\x80\"",
                                      "\"\xED\xA0\x80\"",
                                      "\"\xF4\x90\x80\x80\"",
                                      "\"\xE2\x82\"",
                                      "1e999",
                                      "{\"a\":1,\"b\":2,\"a\":3}",
                                      "{\"a\":1,\"\\u0061\":2}"}) {
    EXPECT_FALSE(Json::parse(text).ok()) << text;
  }
  EXPECT_FALSE(Json::parse(std::string_view("\"a\0b\"", 5)).ok());
}

TEST(Json, depth_and_number_of_values_are_bounded) {
  const std::string deep = std::string(Json::kDepthMax, '[') + std::string(Json::kDepthMax, ']');
  EXPECT_TRUE(Json::parse(deep).ok());
  const std::string deeper = std::string(100'000, '[');
  EXPECT_EQ(Json::parse(deeper).code(), Errc::too_large);
  std::string many = "[0";
  for (std::size_t i = 0; i < Json::kValuesMax; ++i) many += ",0";
  EXPECT_EQ(Json::parse(many + "]").code(), Errc::too_large);
}

TEST(Json, writer_makes_what_the_reader_takes) {
  JsonWriter out;
  out.begin_object().key("a").number(7).key("b").begin_array().text("x").boolean(true).null();
  out.begin_object().end_object().end_array().key("c").text("q\"\\\n\x7f\xff").end_object();
  const std::string line = out.line();
  EXPECT_EQ(line,
            "{\"a\":7,\"b\":[\"x\",true,null,{}],\"c\":\"q\\\"\\\\\\u000a\\u007f\xEF\xBF\xBD\"}\n");
  const auto json = Json::parse(line);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(*json->find("c")->text(), "q\"\\\n\x7f\xEF\xBF\xBD");
  EXPECT_EQ(out.str(), "");
}

RC_GTEST_PROP(Json, any_bytes_survive_as_text_or_are_replaced, (const std::string& bytes)) {
  JsonWriter out;
  out.text(bytes);
  const auto json = Json::parse(out.str());
  RC_ASSERT(json.ok());
  JsonWriter again;
  again.text(*json->text());
  RC_ASSERT(again.str() == out.str());
}

RC_GTEST_PROP(Json, integers_are_exact, (std::uint64_t value)) {
  const auto json = Json::parse(std::to_string(value));
  RC_ASSERT(json.ok() && json->u64() == value);
}

}  // namespace
}  // namespace farlift::codec
