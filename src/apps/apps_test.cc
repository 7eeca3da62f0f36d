#include "apps/bench/sample.h"
#include "apps/connect.h"
#include "apps/console.h"
#include "apps/files.h"
#include "apps/process.h"
#include "apps/server.h"
#include "apps/stack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

namespace farlift::apps {
namespace {

TEST(Console, sizes_are_read_strictly) {
  EXPECT_EQ(*parse_bytes("0"), 0u);
  EXPECT_EQ(*parse_bytes("100"), 100u);
  EXPECT_EQ(*parse_bytes("64k"), 65536u);
  EXPECT_EQ(*parse_bytes("512KiB"), 524288u);
  EXPECT_EQ(*parse_bytes("4m"), 4u << 20);
  EXPECT_EQ(*parse_bytes("16gb"), 16ull << 30);
  EXPECT_EQ(*parse_bytes("18446744073709551615"), UINT64_MAX);
  for (const char* bad : {"", "k", "-1", "+1", " 1", "1 k", "1x", "18446744073709551616",
                          "17179869184g", "1.5m", "0x10"}) {
    const Outcome<std::uint64_t> got = parse_bytes(bad);
    ASSERT_FALSE(got) << bad;
    EXPECT_EQ(got.error().exit_code, kExitUsage);
  }
}

TEST(Console, quantities_for_people) {
  EXPECT_EQ(human_bytes(17), "17 B");
  EXPECT_EQ(human_bytes(65536), "64 KiB");
  EXPECT_EQ(human_bytes(1536u << 10), "1.50 MiB");
  EXPECT_EQ(human_bytes(1ull << 30), "1 GiB");
  EXPECT_EQ(human_rate(4.314e9), "4.31 GB/s");
  EXPECT_EQ(human_rate(52e6), "52.0 MB/s");
}

TEST(Console, json_is_escaped) {
  EXPECT_EQ(json_text("a\"b\\c\nd\x01"), "\"a\\\"b\\\\c\\u000ad\\u0001\"");
  EXPECT_EQ(
      JsonObject().text("a", "x").integer("b", -3).boolean("c", true).number("d", 0.0 / 0.0).str(),
      "{\"a\": \"x\", \"b\": -3, \"c\": true, \"d\": null}");
  EXPECT_EQ(json_list({}, true), "[]");
  EXPECT_EQ(json_list({"1", "2"}, false), "[1, 2]");
}

TEST(Console, table_aligns_words_left_and_numbers_right) {
  Table table({"what", "n"});
  table.add({"a", "5"});
  table.add({"long name", "1234"});
  EXPECT_EQ(table.text(),
            "  what        n\n  ----------------\n  a              5\n  long name   1234\n");
}

class Folder : public testing::Test {
 protected:
  Folder() : folder_(TempFolder::make()) {}
  std::string path(const char* name) const { return folder_->path() + "/" + name; }
  Outcome<TempFolder> folder_;
};

TEST_F(Folder, temporary_folder_goes_away_with_its_content) {
  std::string where;
  {
    Outcome<TempFolder> inner = TempFolder::make();
    ASSERT_TRUE(inner);
    where = inner->path();
    ASSERT_TRUE(make_folder(where + "/deep"));
    ASSERT_TRUE(write_file(where + "/deep/file", "x"));
  }
  EXPECT_NE(access(where.c_str(), F_OK), 0);
}

TEST_F(Folder, new_file_appears_only_when_published) {
  ASSERT_TRUE(write_file(path("out"), "old"));
  {
    Outcome<NewFile> file = NewFile::create(path("out"));
    ASSERT_TRUE(file);
    Outcome<MappedFile> map = file->map(10000);
    ASSERT_TRUE(map);
    std::memset(map->bytes().data(), 'n', 10000);
    EXPECT_EQ(*read_file(path("out"), 100), "old");
  }
  EXPECT_EQ(*read_file(path("out"), 100), "old");  // dropped, not published
  Outcome<NewFile> file = NewFile::create(path("out"));
  Outcome<MappedFile> map = file->map(10000);
  ASSERT_TRUE(map);
  std::memset(map->bytes().data(), 'n', 10000);
  ASSERT_TRUE(file->publish(9000));
  EXPECT_EQ(*read_file(path("out"), 20000), std::string(9000, 'n'));
}

TEST_F(Folder, new_file_refuses_what_is_no_file) {
  ASSERT_TRUE(make_folder(path("folder")));
  EXPECT_EQ(NewFile::create(path("folder")).error().exit_code, kExitUsage);
  EXPECT_EQ(NewFile::create("/dev/null").error().exit_code, kExitUsage);
  EXPECT_FALSE(NewFile::create(path("absent/file")));
}

TEST_F(Folder, source_is_mapped_privately_and_not_empty) {
  ASSERT_TRUE(write_file(path("in"), "hello"));
  Outcome<MappedFile> source = MappedFile::source(path("in"));
  ASSERT_TRUE(source);
  ASSERT_EQ(source->bytes().size(), 5u);
  source->bytes()[0] = std::byte{'J'};
  EXPECT_EQ(*read_file(path("in"), 10), "hello");
  ASSERT_TRUE(write_file(path("empty"), ""));
  EXPECT_EQ(MappedFile::source(path("empty")).error().exit_code, kExitUsage);
  EXPECT_EQ(MappedFile::source(folder_->path()).error().exit_code, kExitUsage);
  EXPECT_FALSE(MappedFile::source(path("absent")));
}

TEST_F(Folder, directory_is_locked_once) {
  Outcome<UniqueFd> first = lock_directory(folder_->path());
  ASSERT_TRUE(first);
  Outcome<UniqueFd> second = lock_directory(folder_->path());
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().text.find("in use"), std::string::npos);
  first->reset();
  EXPECT_TRUE(lock_directory(folder_->path()));
}

TEST_F(Folder, stack_file_counts_only_while_the_lock_is_held) {
  Stack stack;
  stack.host = "127.0.0.1";
  stack.port = 1234;
  stack.password = "s3 \"quoted\"";
  stack.supervisor = getpid();
  stack.server = 77;
  ASSERT_TRUE(write_file(path("farlift.json"), stack_json(stack, folder_->path(), true)));
  EXPECT_EQ(read_stack(folder_->path()).error().exit_code, kExitUnreachable);
  Outcome<UniqueFd> lock = lock_directory(folder_->path());
  Outcome<Stack> read = read_stack(folder_->path());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->port, 1234);
  EXPECT_EQ(read->host, "127.0.0.1");
  EXPECT_EQ(read->password, stack.password);
  EXPECT_EQ(read->supervisor, getpid());
  EXPECT_EQ(stack_json(stack, "/x", false).find("quoted"), std::string::npos);
}

TEST_F(Folder, child_is_started_watched_and_stopped) {
  Outcome<Child> sleeper = Child::start({{"sleep", "1000"}, "", ""});
  ASSERT_TRUE(sleeper);
  EXPECT_FALSE(sleeper->ended(std::chrono::milliseconds(0)));
  EXPECT_TRUE(cpu_seconds(sleeper->pid()));
  sleeper->stop();
  EXPECT_EQ(describe_wait_status(*sleeper->ended(std::chrono::milliseconds(0))),
            "was ended by signal 15");
  EXPECT_FALSE(cpu_seconds(sleeper->pid()));

  Outcome<Child> speaker =
      Child::start({{"sh", "-c", "echo out; echo err >&2; exit 3"}, path("log"), ""});
  ASSERT_TRUE(speaker);
  EXPECT_EQ(describe_wait_status(*speaker->ended(std::chrono::seconds(30))),
            "exited with status 3");
  EXPECT_EQ(*read_file(path("log"), 100), "out\nerr\n");
}

TEST_F(Folder, child_that_ignores_sigterm_is_killed) {
  Outcome<Child> child =
      Child::start({{"sh", "-c", "trap '' TERM; echo ready; exec sleep 1000"}, path("log"), ""});
  ASSERT_TRUE(child);
  for (int i = 0; i < 3000 && read_file(path("log"), 10).value_or("").empty(); ++i) usleep(10000);
  child->stop(std::chrono::milliseconds(50));
  EXPECT_EQ(describe_wait_status(*child->ended(std::chrono::milliseconds(0))),
            "was ended by signal 9");
}

TEST(Process, a_program_that_is_not_there_is_told) {
  Outcome<Child> child = Child::start({{"farlift-no-such-program"}, "", ""});
  ASSERT_FALSE(child);
  EXPECT_NE(child.error().text.find("farlift-no-such-program"), std::string::npos);
  EXPECT_FALSE(find_in_path("farlift-no-such-program"));
  EXPECT_TRUE(find_in_path("sh"));
  EXPECT_EQ(first_line_of({"echo", "one"}), "one");
}

TEST(Process, a_free_port_can_be_bound) {
  EXPECT_GT(*free_port("127.0.0.1"), 0);
  EXPECT_EQ(free_port("localhost").error().exit_code, kExitUsage);
}

TEST(Connect, errors_become_exit_statuses_and_advice) {
  EXPECT_EQ(explain({ErrorKind::connection, "refused"}, "x").exit_code, kExitUnreachable);
  EXPECT_EQ(explain({ErrorKind::rdma, "ERR CRC32C mismatch"}, "x").exit_code, kExitCorrupt);
  EXPECT_EQ(explain({ErrorKind::configuration, "both"}, "x").exit_code, kExitUsage);
  const Failure big = explain({ErrorKind::rdma, "ERR max object size exceeded"}, "cannot put 'k'");
  EXPECT_EQ(big.exit_code, kExitFailed);
  EXPECT_NE(big.text.find("largeobj.max-object-size"), std::string::npos);
  ConnectOptions options;
  options.provider = "carrier pigeon";
  EXPECT_EQ(connect(options, nullptr).error().exit_code, kExitUsage);
}

Sample sample(double gb_per_s, std::vector<double> latencies) {
  Sample out;
  out.bytes = 1000000000;
  out.seconds = 1.0 / gb_per_s;
  out.cpu_here_s = 0.25;
  out.cpu_there_s = 0.5;
  out.latencies_us = std::move(latencies);
  return out;
}

TEST(Samples, medians_quantiles_and_cpu) {
  Scene scene;
  scene.size = 1u << 20;
  std::vector<double> latencies;
  for (int i = 1; i <= 101; ++i) latencies.push_back(i);
  const Row row = summarise({"raw_tcp", "", "", false}, scene,
                            {sample(1, latencies), sample(3, {}), sample(2, {})});
  EXPECT_DOUBLE_EQ(row.gb_per_s, 2);
  EXPECT_DOUBLE_EQ(row.gb_per_s_low, 1);
  EXPECT_DOUBLE_EQ(row.gb_per_s_high, 3);
  EXPECT_DOUBLE_EQ(row.p50_us, 51);
  EXPECT_DOUBLE_EQ(row.p99_us, 100);
  EXPECT_DOUBLE_EQ(row.cpu_s_per_gb, 0.75);
  EXPECT_EQ(row.transfers, 101u);
}

TEST(Samples, goals_are_judged_against_their_counterparts) {
  Scene scene;
  scene.size = 1u << 20;
  std::vector<Row> rows;
  rows.push_back(summarise({"raw_tcp", "", "", false}, scene, {sample(4, {1})}));
  rows.push_back(summarise({"valkey.get", "", "", false}, scene, {sample(2, {1})}));
  rows.push_back(summarise({"blob.rdma_get", "remote", "soft", false}, scene, {sample(4.4, {1})}));
  rows.push_back(summarise({"blob.rdma_get", "remote", "soft", true}, scene, {sample(2.2, {1})}));
  const std::string goals = goals_table(rows);
  EXPECT_NE(goals.find("1.10   yes"), std::string::npos) << goals;  // to the raw stream
  EXPECT_NE(goals.find("0.50   no"), std::string::npos) << goals;   // verified to unverified
  EXPECT_NE(rows_json(rows).find("\"what\": \"valkey.get\", \"lane\": \"\""), std::string::npos);
  EXPECT_NE(rows_table(rows).find("2.20"), std::string::npos);
}

}  // namespace
}  // namespace farlift::apps
