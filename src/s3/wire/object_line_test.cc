#include "s3/wire/object_line.h"

#include <gtest/gtest.h>

#include <string>

namespace farlift::s3 {
namespace {

const std::string kToken =
    "000073967e5ff000:00400000:01f2e973:0000:007a03:1:00000000000000000000ffff0f0f0fdf";
const std::string kExample =
    R"({"v":1,"id":"5f3c","op":"get","bucket":"b","key":"k","token":")" + kToken +
    R"(","size":4194304,"deadline_ms":29950,"chunks":[{"i":0,"fid":"3,01637037d6",)"
    R"("host":"10.0.0.5:8080","chunk_offset":0,"size":4194304,"window_offset":0,"jwt":"eyJ..."}]})";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

ObjectRequest put_of(std::vector<std::uint64_t> sizes) {
  ObjectRequest request;
  request.id = "r1";
  request.op = ObjectOp::put;
  request.token = parse_token(kToken).token;
  for (const std::uint64_t size : sizes) {
    ObjectChunk chunk;
    chunk.fid = "3,01637037d6";
    chunk.host = "10.0.0.5:8080";
    chunk.size = size;
    chunk.window_offset = request.size;
    request.size += size;
    request.chunks.push_back(chunk);
  }
  return request;
}

ObjectResult answer_to(const ObjectRequest& request) {
  ObjectResult result;
  result.status = ObjectStatus::ok;
  result.bytes = request.size;
  result.id = request.id;
  result.transfer_path = "emu-direct";
  if (request.op != ObjectOp::put) return result;
  result.md5 = std::string(32, 'a');
  if (request.want_sha256) result.sha256 = std::string(64, 'b');
  for (const ObjectChunk& chunk : request.chunks) {
    result.chunks.push_back(ChunkResult{ChunkState::committed, chunk.size, "01020304"});
  }
  return result;
}

TEST(S3ObjectLine, the_example_is_read_and_written) {
  const ParsedRequest parsed = parse_object_request(kExample + "\r");
  ASSERT_TRUE(parsed.request) << parsed.message;
  const ObjectRequest& request = *parsed.request;
  EXPECT_EQ(request.id, "5f3c");
  EXPECT_EQ(request.op, ObjectOp::get);
  EXPECT_EQ(request.token.encode(), kToken);
  EXPECT_EQ(request.deadline_ms, 29950u);
  ASSERT_EQ(request.chunks.size(), 1u);
  EXPECT_EQ(request.chunks[0].host, "10.0.0.5:8080");
  EXPECT_EQ(request.chunks[0].jwt, "eyJ...");
  const ParsedRequest again = parse_object_request(encode(request));
  ASSERT_TRUE(again.request) << again.message;
  EXPECT_EQ(encode(*again.request), encode(request));
}

TEST(S3ObjectLine, what_a_put_asks_for_survives_the_line) {
  ObjectRequest put = put_of({kChunkSize - 1, 1});
  put.want_sha256 = true;
  put.want_checksums = {"crc64nvme", "sha1"};
  put.bucket = "b\"\n";
  const ParsedRequest parsed = parse_object_request(encode(put));
  ASSERT_TRUE(parsed.request) << parsed.message;
  EXPECT_EQ(encode(put), encode(*parsed.request));
  EXPECT_TRUE(parsed.request->want_sha256);
  EXPECT_EQ(parsed.request->want_checksums, put.want_checksums);
  EXPECT_EQ(parsed.request->bucket, put.bucket);
  put.want_sha256 = false;
  EXPECT_NE(encode(put).find("\"want_sha256\":false"), std::string::npos);
}

TEST(S3ObjectLine, sizes_that_do_not_add_up_are_bad_requests) {
  const auto refused = [](const std::string& line) {
    const ParsedRequest parsed = parse_object_request(line);
    EXPECT_FALSE(parsed.request) << line;
    EXPECT_FALSE(parsed.unreadable) << line;
    EXPECT_EQ(parsed.id, "5f3c") << line;
    EXPECT_FALSE(parsed.message.empty());
  };
  refused(replaced(kExample, "\"size\":4194304,\"deadline", "\"size\":4194303,\"deadline"));
  refused(replaced(kExample, "\"size\":4194304,\"window", "\"size\":4194303,\"window"));
  refused(replaced(kExample, "\"size\":4194304,\"window", "\"size\":0,\"window"));
  refused(replaced(kExample, "\"window_offset\":0", "\"window_offset\":1"));
  refused(replaced(kExample, ":00400000:", ":003fffff:"));
  refused(replaced(kExample, "\"i\":0", "\"i\":1"));
  refused(replaced(kExample, "3,01637037d6", "3,637037d6"));
  refused(replaced(kExample, "\"v\":1", "\"v\":2"));
  refused(replaced(kExample, "\"v\":1,", ""));
  refused(replaced(kExample, "\"get\"", "\"steal\""));
  refused(replaced(kExample, "29950", "30001"));
  refused(replaced(kExample, "29950", "-1"));
  refused(replaced(kExample, ":1:0000", ":0:0000"));
  refused(replaced(kExample, kToken, kToken + ":000073967e5ff000:0000000000400000"));
  refused(replaced(kExample, "\"eyJ...\"", "7"));
  refused(replaced(kExample, "\"chunk_offset\":0,", ""));
  std::string two = encode(put_of({10, 10}));
  two = replaced(two, "\"window_offset\":10", "\"window_offset\":9");
  EXPECT_FALSE(parse_object_request(two).request) << "overlap";
  // A size whose sum wraps round is no sum.
  EXPECT_FALSE(
      parse_object_request(replaced(encode(put_of({10, 10})), "\"size\":10,\"window_offset\":10",
                                    "\"size\":18446744073709551615,\"window_offset\":10"))
          .request);
}

TEST(S3ObjectLine, unknown_members_are_ignored_and_double_ones_are_not) {
  const ParsedRequest more =
      parse_object_request(replaced(kExample, "\"v\":1", "\"v\":1,\"new\":{\"x\":[1]}"));
  EXPECT_TRUE(more.request) << more.message;
  const ParsedRequest doubled =
      parse_object_request(replaced(kExample, "\"v\":1", "\"v\":1,\"v\":1"));
  EXPECT_FALSE(doubled.request);
  EXPECT_TRUE(doubled.unreadable);
  for (const char* line : {"", "x", "[]", "7", "{} {}", "{\"v\":1"}) {
    EXPECT_TRUE(parse_object_request(line).unreadable) << line;
  }
}

TEST(S3ObjectLine, an_honest_result_is_believed) {
  ObjectRequest put = put_of({kChunkSize - 1, 1});
  put.want_sha256 = true;
  put.want_checksums = {"crc64nvme", "crc32c"};
  ObjectResult result = answer_to(put);
  result.checksums = {{"crc64nvme", "1dpQR+/shyg="}, {"crc32c", "AAAAAA=="}};
  const ResultVerdict verdict = judge_result(put, encode(result));
  EXPECT_EQ(verdict.outcome, Outcome::success) << verdict.reason;
  EXPECT_EQ(verdict.result.chunks[1].etag, "01020304");
  EXPECT_EQ(verdict.result.transfer_path, "emu-direct");
  EXPECT_EQ(encode(verdict.result), encode(result));
}

TEST(S3ObjectLine, an_ok_that_fails_a_check_is_a_failure) {
  ObjectRequest put = put_of({10, 20});
  put.want_checksums = {"crc64nvme"};
  ObjectResult good = answer_to(put);
  good.checksums = {{"crc64nvme", "1dpQR+/shyg="}};
  ASSERT_EQ(judge_result(put, encode(good)).outcome, Outcome::success);
  const auto failed = [&](const char* what, const ObjectResult& result) {
    const ResultVerdict verdict = judge_result(put, encode(result));
    EXPECT_EQ(verdict.outcome, Outcome::failed) << what;
    ASSERT_EQ(verdict.result.chunks.size(), 2u) << what;
    for (const ChunkResult& chunk : verdict.result.chunks)
      EXPECT_EQ(chunk.state, ChunkState::unknown) << what;
  };
  const auto changed = [&](auto change) {
    ObjectResult result = good;
    change(result);
    return result;
  };
  failed("bytes", changed([](ObjectResult& r) { r.bytes = 29; }));
  failed("chunks_fail", changed([](ObjectResult& r) { r.chunks_fail = 1; }));
  failed("id", changed([](ObjectResult& r) { r.id = "r2"; }));
  failed("no id", changed([](ObjectResult& r) { r.id = std::nullopt; }));
  failed("md5", changed([](ObjectResult& r) { r.md5.clear(); }));
  failed("md5 form", changed([](ObjectResult& r) { r.md5[3] = 'x'; }));
  failed("sha256 unasked", changed([](ObjectResult& r) { r.sha256 = std::string(64, '0'); }));
  failed("checksum", changed([](ObjectResult& r) { r.checksums.clear(); }));
  failed("checksum form", changed([](ObjectResult& r) { r.checksums["crc64nvme"] = "AAAA"; }));
  failed("chunk lost", changed([](ObjectResult& r) { r.chunks.pop_back(); }));
  failed("chunk state", changed([](ObjectResult& r) { r.chunks[0].state = ChunkState::unknown; }));
  failed("chunk size", changed([](ObjectResult& r) { r.chunks[0].size = 9; }));
  failed("refused with bytes", changed([](ObjectResult& r) { r.status = ObjectStatus::refused; }));
  put.want_sha256 = true;
  failed("sha256 missing", good);
}

TEST(S3ObjectLine, what_is_not_said_in_form_is_unknown) {
  const ObjectRequest put = put_of({10, 20});
  const std::string good = encode(answer_to(put));
  for (const std::string& line :
       {std::string(), std::string("x"), good + good,
        replaced(good, "\"bytes\":30", "\"bytes\":null"), replaced(good, "\"bytes\":30,", ""),
        replaced(good, "\"bytes\":30", "\"bytes\":30.0"), replaced(good, "\"status\":\"ok\",", ""),
        replaced(good, "\"ok\"", "\"done\""), replaced(good, "\"ok\"", "null"),
        replaced(good, "\"chunks_fail\":0,", ""),
        replaced(good, "\"chunks_fail\":0", "\"chunks_fail\":null"),
        replaced(good, "\"i\":1", "\"i\":0"), replaced(good, "\"i\":1", "\"i\":2"),
        replaced(good, "\"id\"", "\"bytes\":30,\"id\"")}) {
    const ResultVerdict verdict = judge_result(put, line);
    EXPECT_EQ(verdict.outcome, Outcome::failed) << line;
    ASSERT_EQ(verdict.result.chunks.size(), 2u) << line;
    EXPECT_EQ(verdict.result.chunks[0].state, ChunkState::unknown) << line;
    EXPECT_FALSE(verdict.reason.empty()) << line;
  }
}

TEST(S3ObjectLine, refusals_and_errors_keep_what_they_say) {
  const ObjectRequest put = put_of({10, 20});
  ObjectResult refused;
  refused.status = ObjectStatus::refused;
  refused.id = "r1";
  refused.chunks_fail = 2;
  refused.code = "no_push_map";
  refused.message = "10.0.0.5:8080";
  refused.chunks = {ChunkResult{ChunkState::not_committed, 10, {}},
                    ChunkResult{ChunkState::not_committed, 20, {}}};
  ResultVerdict verdict = judge_result(put, encode(refused));
  EXPECT_EQ(verdict.outcome, Outcome::refused);
  EXPECT_EQ(verdict.reason, "no_push_map: 10.0.0.5:8080");
  EXPECT_EQ(verdict.result.chunks[1].state, ChunkState::not_committed);
  ObjectResult error = refused;
  error.status = ObjectStatus::error;
  error.bytes = 10;
  error.chunks[0].state = ChunkState::committed;
  error.chunks.pop_back();
  verdict = judge_result(put, encode(error));
  EXPECT_EQ(verdict.outcome, Outcome::failed);
  EXPECT_TRUE(verdict.valid);
  EXPECT_EQ(verdict.result.bytes, 10u);
  ASSERT_EQ(verdict.result.chunks.size(), 2u);
  EXPECT_EQ(verdict.result.chunks[0].state, ChunkState::committed);
  EXPECT_EQ(verdict.result.chunks[1].state, ChunkState::unknown) << "not listed";
}

}  // namespace
}  // namespace farlift::s3
