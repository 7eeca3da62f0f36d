#include "s3/wire/control_line.h"

#include <gtest/gtest.h>

#include <string>

namespace farlift::s3 {
namespace {

const std::string kToken =
    "000073967e5ff000:00400000:01f2e973:0000:007a03:1:00000000000000000000ffff0f0f0fdf";
const std::string kHandle = "0123456789abcdef0123456789abcdef";

TEST(S3ControlLine, hello_is_the_published_one) {
  ControlHello hello;
  hello.read_auth = hello.write_auth = hello.commit_query = true;
  hello.read_auth_required = hello.write_auth_required = true;
  hello.transport = kTransportDc;
  hello.max_transfer = 67108864;
  EXPECT_EQ(hello.encode(),
            R"({"proto":"swdc","v":1,"features":["READ_AUTH","WRITE_AUTH","COMMIT_QUERY"],)"
            R"("transport":"mlx5-dc","read_auth_required":true,"write_auth_required":true,)"
            "\"max_transfer\":67108864}\n");
  const auto parsed = ControlHello::parse(hello.encode());
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->encode(), hello.encode());
}

TEST(S3ControlLine, a_hello_that_is_none_is_refused) {
  EXPECT_FALSE(
      ControlHello::parse(R"({"proto":"swdc","v":1,"features":["NEW_THING"],"transport":"soft"})")
          ->read_auth);
  for (const char* line :
       {"", "x", "[]", R"({"proto":"http","v":1,"features":[],"transport":"soft"})",
        R"({"proto":"swdc","v":2,"features":[],"transport":"soft"})",
        R"({"proto":"swdc","v":1,"features":"READ_AUTH","transport":"soft"})",
        R"({"proto":"swdc","v":1,"features":[1],"transport":"soft"})",
        R"({"proto":"swdc","v":1,"features":[]})",
        R"({"proto":"swdc","v":1,"transport":"soft"})"}) {
    EXPECT_FALSE(ControlHello::parse(line).ok()) << line;
  }
}

ControlRequest request_of(ControlOp op) {
  ControlRequest request;
  request.seq = 4294967295u;
  request.op = op;
  request.fid = "3,01637037d6";
  request.offset = 4096;
  request.size = 1000;
  request.token = parse_token(kToken).token;
  request.window_offset = 7;
  request.jwt = "a.b.c";
  request.deadline_ms = 2500;
  request.handle = kHandle;
  request.crc32c = Crc32c(0x00c0ffee);
  return request;
}

TEST(S3ControlLine, requests_go_there_and_back) {
  for (const ControlOp op : {ControlOp::push, ControlOp::prepare, ControlOp::commit,
                             ControlOp::abort, ControlOp::query, ControlOp::ping}) {
    const std::string line = request_of(op).encode();
    const ParsedControlRequest parsed = parse_control_request(line);
    ASSERT_TRUE(parsed.request) << line << parsed.message;
    EXPECT_EQ(parsed.request->encode(), line);
    EXPECT_EQ(parsed.request->op, op);
  }
  EXPECT_NE(request_of(ControlOp::commit).encode().find("\"crc32c\":\"00c0ffee\""),
            std::string::npos);
}

TEST(S3ControlLine, a_request_without_what_it_needs_is_a_bad_request) {
  const std::string push = request_of(ControlOp::push).encode();
  const std::string commit = request_of(ControlOp::commit).encode();
  const auto without = [](std::string line, std::string_view name) {
    const std::string key = "\"" + std::string(name) + "\":";
    const std::size_t at = line.find(key);
    EXPECT_NE(at, std::string::npos);
    return line.insert(at + 1, "_");
  };
  for (const std::string& line :
       {without(push, "op"), without(push, "fid"), without(push, "size"), without(push, "offset"),
        without(push, "token"), without(push, "window_offset"), without(push, "deadline_ms"),
        without(commit, "handle"), without(commit, "crc32c"), without(commit, "size")}) {
    const ParsedControlRequest parsed = parse_control_request(line);
    EXPECT_FALSE(parsed.request) << line;
    EXPECT_EQ(parsed.seq, 4294967295u);
    EXPECT_EQ(parsed.code, ControlCode::bad_request);
    EXPECT_FALSE(parsed.message.empty());
  }
  EXPECT_TRUE(parse_control_request(without(push, "jwt")).request);
  for (const char* line :
       {"", "x", "[]", "{}", R"({"seq":-1,"op":"ping"})", R"({"seq":4294967296,"op":"ping"})",
        R"({"seq":1,"seq":1,"op":"ping"})"}) {
    const ParsedControlRequest parsed = parse_control_request(line);
    EXPECT_FALSE(parsed.request) << line;
    EXPECT_FALSE(parsed.seq) << line;
  }
}

TEST(S3ControlLine, replies_go_there_and_back) {
  ControlReply reply;
  reply.seq = 9;
  reply.ok = true;
  reply.bytes = 1000;
  reply.crc32c = Crc32c(1);
  reply.handle = kHandle;
  reply.token = parse_token(kToken).token;
  reply.expires_ms = 35000;
  reply.state = HandleState::committed;
  reply.size = 1000;
  reply.etag = "00000001";
  auto parsed = ControlReply::parse(reply.encode());
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->encode(), reply.encode());
  ControlReply refusal;
  refusal.seq = 9;
  refusal.code = ControlCode::auth_expired;
  refusal.message = "the token is too old";
  refusal.nothing_written = true;
  EXPECT_EQ(refusal.encode(),
            "{\"seq\":9,\"ok\":false,\"code\":\"AUTH_EXPIRED\",\"message\":\"the token is too "
            "old\",\"written\":0}\n");
  parsed = ControlReply::parse(refusal.encode());
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->encode(), refusal.encode());
}

TEST(S3ControlLine, a_reply_that_is_none_is_refused) {
  for (const char* line :
       {"", "x", "{}", R"({"ok":true})", R"({"seq":1})", R"({"seq":1,"ok":1})",
        R"({"seq":1,"ok":true,"handle":"xyz"})", R"({"seq":1,"ok":true,"token":"xyz"})",
        R"({"seq":1,"ok":true,"state":"perhaps"})"}) {
    EXPECT_FALSE(ControlReply::parse(line).ok()) << line;
  }
  const auto newer = ControlReply::parse(R"({"seq":1,"ok":false,"code":"NEW","written":1})");
  ASSERT_TRUE(newer.ok());
  EXPECT_EQ(newer->code, ControlCode::internal);
  EXPECT_FALSE(newer->nothing_written);
}

TEST(S3ControlLine, codes_have_one_spelling) {
  for (std::size_t i = 1; i <= static_cast<std::size_t>(ControlCode::internal); ++i) {
    const auto code = static_cast<ControlCode>(i);
    EXPECT_EQ(control_code(to_string(code)), code);
  }
  EXPECT_EQ(control_code(""), std::nullopt);
  EXPECT_EQ(control_code("auth_fid"), std::nullopt);
}

}  // namespace
}  // namespace farlift::s3
