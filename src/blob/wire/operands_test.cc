#include "blob/wire/operands.h"

#include "blob/wire/names.h"
#include "blob/wire/texts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace farlift::blob::wire {
namespace {

const Length kObjectMax{8192};

std::vector<std::string_view> views(const std::vector<std::string>& words) {
  return std::vector<std::string_view>(words.begin(), words.end());
}

std::string text_of(const Refusal& r) { return r.arity() ? "arity" : r.text; }

std::string get_error(const std::vector<std::string>& words) {
  const auto v = views(words);
  auto r = parse_rdma_get(v);
  return r ? "ok" : text_of(r.error());
}

std::string set_error(const std::vector<std::string>& words) {
  const auto v = views(words);
  auto r = parse_rdma_set(v, kObjectMax);
  return r ? "ok" : text_of(r.error());
}

std::vector<std::string> triples(std::size_t n, std::vector<std::string> head) {
  for (std::size_t i = 0; i < n; ++i) head.insert(head.end(), {"7", "0", "16"});
  return head;
}

TEST(Operands, hello_texts) {
  auto error = [](const std::vector<std::string>& words) {
    const auto v = views(words);
    auto r = parse_hello(v);
    return r ? std::string("ok") : text_of(r.error());
  };
  EXPECT_EQ(error({}), "arity");
  EXPECT_EQ(error({"00", "00"}), "arity");
  EXPECT_EQ(error({"zz"}), "ERR invalid rdma address hex");
  EXPECT_EQ(error({"abc"}), "ERR invalid rdma address hex");
  EXPECT_EQ(error({""}), "ERR rdma address must not be empty");
  EXPECT_EQ(error({"aB0f"}), "ok");
}

TEST(Operands, hello_lengths) {
  const AddressForms socket{true, false};
  const AddressForms efa{false, true};
  const AddressForms both{true, true};
  for (std::size_t n : {16u, 28u}) {
    EXPECT_FALSE(check_address_length(n, socket));
    EXPECT_FALSE(check_address_length(n, both));
    EXPECT_STREQ(check_address_length(n, efa)->text, "ERR rdma address must be 32 bytes");
  }
  for (std::size_t n : {0u, 1u, 15u, 17u, 27u, 29u, 32u, 64u, 100u}) {
    EXPECT_STREQ(check_address_length(n, socket)->text, "ERR rdma address must be 16 or 28 bytes");
  }
  EXPECT_FALSE(check_address_length(32, efa));
  EXPECT_FALSE(check_address_length(32, both));
  EXPECT_TRUE(check_address_length(17, both));
}

TEST(Operands, get_arity_and_triples) {
  EXPECT_EQ(get_error({}), "arity");
  EXPECT_EQ(get_error({"k"}), "arity");
  EXPECT_EQ(get_error({"k", "1"}), "arity");
  EXPECT_EQ(get_error({"k", "1", "2"}), "arity");
  EXPECT_EQ(get_error({"k", "1", "2", "3"}), "ok");
  EXPECT_EQ(get_error({"k", "1", "2", "3", "4"}),
            "ERR memory address args must be rkey, addr, len triples");
  EXPECT_EQ(get_error({"k", "1", "2", "3", "4", "5"}),
            "ERR memory address args must be rkey, addr, len triples");
  EXPECT_EQ(get_error(triples(256, {"k"})), "ok");
  EXPECT_EQ(get_error(triples(257, {"k"})), "ERR too many memory addresses (max 256)");
}

TEST(Operands, numbers_are_strict) {
  const std::vector<std::string> bad = {
      "-1", "+1", "0x1", "1a", "", " 1", "1 ", "18446744073709551616", "000000000000000000001",
      "1.0"};
  for (const std::string& b : bad) {
    EXPECT_EQ(get_error({"k", b, "0", "16"}), "ERR invalid rkey") << b;
    EXPECT_EQ(get_error({"k", "1", b, "16"}), "ERR invalid memory address") << b;
    EXPECT_EQ(get_error({"k", "1", "0", b}), "ERR invalid memory address len") << b;
    EXPECT_EQ(set_error({"k", b, "1", "0", "16"}), "ERR invalid len") << b;
    EXPECT_EQ(set_error({"k", "16", "CRC", b, "1", "0", "16"}), "ERR invalid crc") << b;
  }
  EXPECT_EQ(get_error({"k", "18446744073709551615", "0", "16"}), "ok");
  EXPECT_EQ(get_error({"k", "0", "0", "0"}), "ERR invalid memory address len");
  EXPECT_EQ(get_error({"k", "0", "18446744073709551615", "2"}), "ERR invalid memory address len");
  EXPECT_EQ(get_error({"k", "0", "18446744073709551600", "15"}), "ok");
}

TEST(Operands, set_forms) {
  EXPECT_EQ(set_error({"k", "16", "1", "0"}), "arity");
  EXPECT_EQ(set_error({"k", "16", "CRC", "1"}), "arity");
  EXPECT_EQ(set_error({"k", "16", "1", "0", "16"}), "ok");
  EXPECT_EQ(set_error({"k", "16", "CRC", "1", "1", "0", "16"}), "ok");
  EXPECT_EQ(set_error({"k", "16", "crc", "1", "1", "0", "16"}), "ok");
  EXPECT_EQ(set_error({"k", "16", "CRC", "4294967296", "1", "0", "16"}), "ERR invalid crc");
  EXPECT_EQ(set_error({"k", "16", "1", "0", "16", "CRC", "1"}), text::kTriples);
  EXPECT_EQ(set_error({"k", "16", "1", "0", "16", "CRC", "1", "16"}), "ERR invalid rkey");
  EXPECT_EQ(set_error(triples(257, {"k", "16"})), text::kTooManyRegions);
  EXPECT_EQ(set_error(triples(256, {"k", "16", "CRC", "1"})), "ok");
}

TEST(Operands, set_object_limits_come_after_syntax) {
  EXPECT_EQ(set_error({"k", "0", "1", "0", "16"}), "ERR object length must be > 0");
  EXPECT_EQ(set_error({"k", "8193", "1", "0", "16"}), "ERR max object size exceeded");
  EXPECT_EQ(set_error({"k", "8192", "1", "0", "16"}), "ok");
  EXPECT_EQ(set_error({"k", "0", "x", "0", "16"}), "ERR invalid rkey");
}

TEST(Operands, set_values) {
  const std::vector<std::string> words = {"key", "100", "Crc", "4294967295", "7",
                                          "8",   "60",  "9",   "0",          "40"};
  const auto v = views(words);
  auto r = parse_rdma_set(v, kObjectMax);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->key, "key");
  EXPECT_EQ(r->length, Length(100));
  EXPECT_EQ(r->crc, Crc32c(4294967295u));
  ASSERT_EQ(r->regions.size(), 2u);
  EXPECT_EQ(r->regions[0].key, RKey(7));
  EXPECT_EQ(r->regions[0].addr, RemoteAddr(8));
  EXPECT_EQ(r->regions[1].length, Length(40));
  EXPECT_EQ(coverage(r->regions), Length(100));
}

TEST(Operands, coverage_saturates) {
  const std::vector<Region> regions(3, Region{RKey(1), RemoteAddr(0), Length(0x8000000000000000u)});
  EXPECT_EQ(coverage(regions), Length(UINT64_MAX));
}

TEST(Operands, inline_forms) {
  const std::string nul("a\0b", 3);
  const std::vector<std::string_view> set{"k", nul};
  ASSERT_TRUE(parse_tcp_set(set, kObjectMax));
  EXPECT_EQ(parse_tcp_set(set, kObjectMax)->value.size(), 3u);
  const std::vector<std::string_view> empty{"k", ""};
  EXPECT_STREQ(parse_tcp_set(empty, kObjectMax).error().text, text::kEmptyObject);
  EXPECT_STREQ(parse_tcp_set(set, Length(2)).error().text, text::kTooLarge);
  EXPECT_TRUE(parse_tcp_set(Words(set).first(1), kObjectMax).error().arity());
  EXPECT_TRUE(parse_tcp_get(set).error().arity());
  EXPECT_EQ(*parse_tcp_get(Words(set).first(1)), "k");
}

TEST(Operands, info_fields) {
  auto field = [](std::string_view name) {
    const std::vector<std::string_view> words{"k", name};
    return parse_info(words);
  };
  EXPECT_EQ(field("len")->field, InfoField::len);
  EXPECT_EQ(field("CRC")->field, InfoField::crc);
  EXPECT_EQ(field("Tier")->field, InfoField::tier);
  EXPECT_STREQ(field("size").error().text, "ERR invalid information field");
  const std::vector<std::string_view> three{"k", "len", "crc"};
  EXPECT_TRUE(parse_info(three).error().arity());
  EXPECT_TRUE(parse_info({}).error().arity());
  EXPECT_EQ(parse_info(Words(three).first(1))->field, InfoField::all);
}

TEST(Texts, word_for_word) {
  using namespace text;
  const std::vector<std::pair<const char*, const char*>> all = {
      {kNoSession, "ERR no RDMA session (call BLOB.RDMA_HELLO first)"},
      {kSessionExists, "ERR RDMA session already established"},
      {kNoProvider, "ERR RDMA provider unavailable on this instance"},
      {kSessionCreate, "ERR session create"},
      {kCoverage, "ERR client address space smaller than object length"},
      {kCrcMismatch, "ERR CRC32C mismatch"},
      {kWriteFailed, "ERR RDMA write failed"},
      {kReadFailed, "ERR RDMA read failed"},
      {kOutOfMemory, "OOM command not allowed when used memory > 'maxmemory'."},
      {kOutOfDisk, "OOM command not allowed when used disk space > 'disk-maxmemory'."},
      {kStagingExhausted, "ERR disk staging buffer pool exhausted; retry later"},
      {kDiskReadFailed, "ERR disk read failed"},
      {kDiskWriteFailed, "ERR disk write failed"},
      {kCommitFailed, "ERR failed to set key"},
      {kWrongType, "WRONGTYPE Operation against a key holding the wrong kind of value"},
      {kInTransaction, "ERR Blocking module command called from transaction"},
  };
  for (const auto& [ours, spec] : all) {
    EXPECT_STREQ(ours, spec);
    EXPECT_LE(std::string_view(ours).size(), kReplyBytesMax);
  }
}

}  // namespace
}  // namespace farlift::blob::wire
