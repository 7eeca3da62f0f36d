// hiredis reads RESP2 too: what we accept it must accept and read alike, and commands as we encode
// them must be those that it encodes.
#include "core/base/prng.h"
#include "core/net/resp/encoder.h"
#include "core/net/resp/parser.h"

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/long_run.h"

namespace farlift::resp {
namespace {

struct FreeReader {
  void operator()(redisReader* reader) const { redisReaderFree(reader); }
};
using Reader = std::unique_ptr<redisReader, FreeReader>;

bool same(const redisReply& theirs, const Value& ours) {
  switch (theirs.type) {
    case REDIS_REPLY_NIL:
      return ours.is_null();
    case REDIS_REPLY_INTEGER:
      return ours.type() == Type::integer && ours.integer() == theirs.integer;
    case REDIS_REPLY_STRING:
      return ours.type() == Type::bulk && ours.text() == std::string_view(theirs.str, theirs.len);
    case REDIS_REPLY_STATUS:
      return ours.type() == Type::simple && ours.text() == std::string_view(theirs.str, theirs.len);
    case REDIS_REPLY_ERROR:
      return ours.is_error() && ours.text() == std::string_view(theirs.str, theirs.len);
    case REDIS_REPLY_ARRAY:
      if (ours.type() != Type::array || ours.items().size() != theirs.elements) return false;
      for (std::size_t i = 0; i < theirs.elements; ++i) {
        if (!same(*theirs.element[i], ours.items()[i])) return false;
      }
      return true;
    default:
      return false;
  }
}

std::string random_reply(Prng& prng, int depth) {
  switch (prng.below(depth > 0 ? 7 : 6)) {
    case 0:
      return ":" + std::to_string(static_cast<std::int64_t>(prng.next())) + "\r\n";
    case 1:
      return "+PONG\r\n";
    case 2:
      return "-WRONGTYPE Operation against a key\r\n";
    case 3:
      return prng.chance(1, 2) ? "$-1\r\n" : "*-1\r\n";
    case 4:
      return ":" + std::to_string(prng.below(20)) + "\r\n";
    case 5: {
      std::string body(static_cast<std::size_t>(prng.below(40)), ' ');
      for (char& c : body) c = static_cast<char>(prng.below(256));
      return "$" + std::to_string(body.size()) + "\r\n" + body + "\r\n";
    }
    default: {
      const std::uint64_t count = prng.below(5);
      std::string wire = "*" + std::to_string(count) + "\r\n";
      for (std::uint64_t i = 0; i < count; ++i) wire += random_reply(prng, depth - 1);
      return wire;
    }
  }
}

ParserLimits resp2() {
  ParserLimits limits;
  limits.resp3 = false;
  return limits;
}

// Replies of both until one side has no more; false: they disagree.
void compare(const std::string& wire, bool damaged) {
  Parser parser(resp2());
  parser.feed(wire);
  const Reader reader(redisReaderCreate());
  ASSERT_EQ(redisReaderFeed(reader.get(), wire.data(), wire.size()), REDIS_OK);
  for (;;) {
    const auto ours = parser.next();
    if (!ours.ok()) {
      ASSERT_TRUE(damaged) << wire;  // we are the stricter one, on damaged input only
      return;
    }
    void* raw = nullptr;
    ASSERT_EQ(redisReaderGetReply(reader.get(), &raw), REDIS_OK) << "accepted by us only: " << wire;
    const std::unique_ptr<void, void (*)(void*)> theirs(raw, freeReplyObject);
    ASSERT_EQ(raw != nullptr, ours->has_value()) << wire;
    if (raw == nullptr) return;
    ASSERT_TRUE(same(*static_cast<redisReply*>(raw), **ours)) << wire;
  }
}

TEST(RespOracle, valid_replies_read_alike) {
  Prng prng(1);
  for (int i = 0; i < testing::repeats(20'000, 500'000); ++i) {
    std::string wire = random_reply(prng, 4);
    if (prng.chance(1, 2)) wire += random_reply(prng, 4);
    ASSERT_NO_FATAL_FAILURE(compare(wire, false));
  }
}

TEST(RespOracle, damaged_replies_are_refused_or_read_alike) {
  Prng prng(2);
  for (int i = 0; i < testing::repeats(20'000, 500'000); ++i) {
    std::string wire = random_reply(prng, 4);
    const auto at = static_cast<std::size_t>(prng.below(wire.size()));
    switch (prng.below(4)) {
      case 0:
        wire[at] = static_cast<char>(prng.next());
        break;
      case 1:
        wire.erase(at, 1);
        break;
      case 2:
        wire.insert(at, 1, "0123456789\r\n$*:-+"[prng.below(17)]);
        break;
      default:
        wire.resize(at);
        break;
    }
    if (wire.find(":+") != std::string::npos)
      continue;  // a sign that the protocol allows and hiredis does not
    ASSERT_NO_FATAL_FAILURE(compare(wire, true));
  }
}

TEST(RespOracle, commands_are_encoded_alike) {
  Prng prng(3);
  for (int i = 0; i < testing::repeats(1000, 20'000); ++i) {
    std::vector<std::string> owned(1 + static_cast<std::size_t>(prng.below(6)));
    for (std::string& argument : owned) {
      argument.resize(static_cast<std::size_t>(prng.below(prng.chance(1, 4) ? 10'000 : 30)));
      for (char& c : argument) c = static_cast<char>(prng.below(256));
    }
    std::vector<std::string_view> arguments(owned.begin(), owned.end());
    std::vector<const char*> pointers;
    std::vector<std::size_t> lengths;
    for (const std::string& argument : owned) {
      pointers.push_back(argument.data());
      lengths.push_back(argument.size());
    }
    char* theirs = nullptr;
    const int length = redisFormatCommandArgv(&theirs, static_cast<int>(owned.size()),
                                              pointers.data(), lengths.data());
    ASSERT_GT(length, 0);
    const std::string expected(theirs, static_cast<std::size_t>(length));
    redisFreeCommand(theirs);
    ASSERT_TRUE(encode(arguments) == expected);
  }
}

TEST(RespEncoder, golden_bytes) {
  const std::string_view set[] = {"SET", "key", ""};
  EXPECT_EQ(encode(set), "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$0\r\n\r\n");
}

TEST(RespEncoder, long_arguments_are_referred_to) {
  const std::string at_limit(Encoder::kByReferenceMin, 'a');
  const std::string below(Encoder::kByReferenceMin - 1, 'b');
  const std::string_view arguments[] = {"SET", at_limit, below};
  Encoder encoder;
  encoder.add(arguments);
  const auto pieces = encoder.pieces();
  ASSERT_EQ(pieces.size(), 3U);
  EXPECT_EQ(pieces[1].iov_base, at_limit.data());
  EXPECT_EQ(pieces[1].iov_len, at_limit.size());
  std::size_t total = 0;
  for (const iovec& piece : pieces) total += piece.iov_len;
  EXPECT_EQ(total, encoder.bytes());
  EXPECT_EQ(total, encode(arguments).size());
  encoder.clear();
  EXPECT_EQ(encoder.bytes(), 0U);
  EXPECT_TRUE(encoder.pieces().empty());
}

}  // namespace
}  // namespace farlift::resp
