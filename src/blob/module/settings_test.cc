#include "blob/module/settings.h"

#include "blob/module/interfaces.h"
#include "blob/module/reply.h"
#include "blob/wire/texts.h"

#include <gtest/gtest.h>

namespace farlift::blob {
namespace {

constexpr long long kMiB = 1 << 20;

Settings dram(std::string_view segment, std::string_view object, std::string_view chunk) {
  Settings s;
  EXPECT_FALSE(s.set_word("segment-size", segment));
  EXPECT_FALSE(s.set_word("max-object-size", object));
  EXPECT_FALSE(s.set_word("chunk-size", chunk));
  return s;
}

TEST(Settings, memory_units) {
  EXPECT_EQ(parse_memory("4096"), 4096);
  EXPECT_EQ(parse_memory("1k"), 1000);
  EXPECT_EQ(parse_memory("1KB"), 1024);
  EXPECT_EQ(parse_memory("64mb"), 64 * kMiB);
  EXPECT_EQ(parse_memory("2M"), 2000000);
  EXPECT_EQ(parse_memory("1gb"), 1024 * kMiB);
  EXPECT_EQ(parse_memory("7b"), 7);
  for (const char* bad :
       {"", "mb", "-1", "1 mb", "1tb", "1.5gb", "9223372036854775807gb", "99999999999999999999"}) {
    EXPECT_FALSE(parse_memory(bad)) << bad;
  }
}

TEST(Settings, words) {
  Settings s;
  EXPECT_FALSE(s.set_word("WORKER-THREADS", "7"));
  EXPECT_EQ(s.get().worker_threads, 7);
  EXPECT_FALSE(s.set_word("fabric-provider", "efadirect"));
  EXPECT_EQ(s.provider(), Provider::efa_direct);
  EXPECT_FALSE(s.set_word("bench-mode", "YES"));
  EXPECT_EQ(s.get().bench_mode, 1);
  EXPECT_FALSE(s.set_word("nvme-dir", "/mnt/x"));
  EXPECT_EQ(s.get().disk_dir, "/mnt/x");
  EXPECT_FALSE(s.set_word("fabric-allow", "10.0.0.0/8"));
  EXPECT_TRUE(s.set_word("fabric-allow", "10.0.0.0/99"));
  EXPECT_TRUE(s.set_word("worker-threads", "33"));
  EXPECT_TRUE(s.set_word("worker-threads", "1k"));
  EXPECT_TRUE(s.set_word("fabric-provider", "Carrier"));
  EXPECT_TRUE(s.set_word("direct-io", "maybe"));
  EXPECT_TRUE(s.set_word("no-such-thing", "1"));
  EXPECT_EQ(s.get().worker_threads, 7);
}

TEST(Settings, cross_checks) {
  EXPECT_EQ(dram("16mb", "8mb", "1mb").check(), nullptr);
  EXPECT_STREQ(dram("4mb", "1mb", "8mb").check(), "ERR segment-size must be >= chunk-size");
  EXPECT_STREQ(dram("4mb", "5mb", "1mb").check(),
               "ERR segment-size is insufficient for max-object-size");
  Settings buffers = dram("16mb", "8mb", "1mb");
  EXPECT_FALSE(buffers.set_word("max-buffers-per-op", "2"));
  EXPECT_FALSE(buffers.set_word("min-buffers-per-op", "3"));
  EXPECT_STREQ(buffers.check(), "ERR max-buffers-per-op must be >= min-buffers-per-op");
}

TEST(Settings, cross_checks_of_tiered_mode) {
  Settings s = dram("16mb", "64mb", "1mb");
  EXPECT_FALSE(s.set_word("operating-mode", "Tiered"));
  EXPECT_FALSE(s.set_word("max-promote-size", "17mb"));
  EXPECT_FALSE(s.set_word("disk-staging-size", "8mb"));
  EXPECT_STREQ(s.check(), "ERR segment-size is insufficient for max-promote-size");
  EXPECT_FALSE(s.set_word("max-promote-size", "0"));
  EXPECT_STREQ(s.check(), "ERR disk-staging-size must be >= segment-size");
  EXPECT_FALSE(s.set_word("disk-staging-size", "16mb"));
  EXPECT_FALSE(s.set_word("disk-maxmemory", "63mb"));
  EXPECT_STREQ(s.check(), "ERR disk-maxmemory must be >= max-object-size in Tiered mode");
  EXPECT_FALSE(s.set_word("disk-maxmemory", "0"));
  EXPECT_EQ(s.check(), nullptr);
}

TEST(Settings, sizes_are_whole_pages) {
  const Settings s = dram("1048577", "4096", "8191");
  EXPECT_EQ(s.segment_size(), Length(1048576 + 4096));
  EXPECT_EQ(s.chunk_size(), Length(4096));
}

TEST(Reply, lines_stay_within_the_limit) {
  EXPECT_EQ(error_line("ERR a", ""), "ERR a");
  EXPECT_EQ(error_line("ERR a", "b\r\nc"), "ERR a: b  c");
  EXPECT_EQ(error_line("ERR a", std::string(500, 'x')).size(), wire::text::kReplyBytesMax);
  EXPECT_STREQ(reserve_text(Error::make(Errc::no_memory, "x")), wire::text::kOutOfMemory);
  EXPECT_STREQ(reserve_text(Error::make(Errc::too_large, "x")), wire::text::kTooLarge);
}

TEST(Interfaces, lists_and_names) {
  EXPECT_EQ(split_list(" lo, eth0 ,,::1"), (std::vector<std::string>{"lo", "eth0", "::1"}));
  EXPECT_TRUE(split_list("").empty());
  EXPECT_EQ(resolve_interface("lo"), "127.0.0.1");
  EXPECT_EQ(resolve_interface("127.0.0.2"), "127.0.0.2");
  EXPECT_FALSE(resolve_interface("nosuch0"));
  EXPECT_FALSE(default_interface_address().empty());
}

}  // namespace
}  // namespace farlift::blob
