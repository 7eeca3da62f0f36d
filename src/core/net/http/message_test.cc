#include "core/net/http/message.h"

#include "core/net/http/http_test_base.h"
#include "core/net/http/input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <thread>

namespace farlift::net::http {
namespace {

std::uint32_t refused(std::string_view head) {
  const auto parsed = parse_request_head(head);
  const auto* refusal = std::get_if<Refusal>(&parsed);
  return refusal == nullptr ? 0 : refusal->status;
}

TEST(HttpHead, KeepsTargetAndValuesByteForByte) {
  const auto parsed = parse_request_head(
      "GET /b/a%2fB//c?x=%7e&y HTTP/1.1\r\nHost: h\r\nX-A:   two  blanks \r\nx-a: again\r\n\r\n");
  const RequestHead& head = std::get<RequestHead>(parsed);
  EXPECT_EQ(head.method, "GET");
  EXPECT_EQ(head.target, "/b/a%2fB//c?x=%7e&y");
  EXPECT_EQ(head.headers.get("X-a"), "two  blanks");
  EXPECT_EQ(head.headers.count("x-A"), 2U);
  EXPECT_TRUE(head.keep_alive);
  EXPECT_FALSE(head.content_length.has_value());
}

TEST(HttpHead, AbsoluteFormIsReduced) {
  const auto parsed = parse_request_head(
      "GET HTTP://other:80/k?a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  const RequestHead& head = std::get<RequestHead>(parsed);
  EXPECT_EQ(head.target, "/k?a");
  EXPECT_FALSE(head.keep_alive);
}

TEST(HttpHead, TheBodysLengthIsBeyondDoubt) {
  const std::string start = "PUT / HTTP/1.1\r\nHost: h\r\n";
  EXPECT_EQ(refused(start + "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"), 400U);
  EXPECT_EQ(refused(start + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"), 400U);
  EXPECT_EQ(refused(start + "Content-Length: +5\r\n\r\n"), 400U);
  EXPECT_EQ(refused(start + "Content-Length: 5, 5\r\n\r\n"), 400U);
  EXPECT_EQ(refused(start + "Content-Length:\r\n\r\n"), 400U);
  EXPECT_EQ(refused(start + "Content-Length: 18446744073709551616\r\n\r\n"), 400U);
  EXPECT_EQ(refused(start + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"), 400U);
  EXPECT_NE(refused(start + "Transfer-Encoding: gzip, chunked\r\n\r\n"), 0U);
  EXPECT_NE(refused(start + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
            0U);
  EXPECT_NE(refused("PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 0U);
  const auto parsed = parse_request_head(start + "Content-Length: 0005\r\n\r\n");
  EXPECT_EQ(std::get<RequestHead>(parsed).content_length, std::uint64_t{5});
}

TEST(HttpHead, MalformedOnesAreRefused) {
  EXPECT_NE(refused("GET / HTTP/1.1\r\n\r\n"), 0U) << "no Host";
  EXPECT_NE(refused("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 0U);
  EXPECT_NE(refused("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 0U);
  EXPECT_NE(refused("GET  HTTP/1.1\r\nHost: a\r\n\r\n"), 0U);
  EXPECT_NE(refused("GET x HTTP/1.1\r\nHost: a\r\n\r\n"), 0U);
  EXPECT_NE(refused("GET / HTTP/1.1\r\nHost : a\r\n\r\n"), 0U);
  EXPECT_NE(refused("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n"), 0U);
  EXPECT_NE(refused(std::string_view("GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", 38)), 0U);
  EXPECT_NE(refused("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n"), 0U);
  EXPECT_EQ(refused("GET / HTTP/1.1\r\nHost: a\r\nExpect: the-unexpected\r\n\r\n"), 417U);
  std::string many = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (std::size_t i = 0; i < kFieldsMax; ++i) many += "X: y\r\n";
  EXPECT_EQ(refused(many + "\r\n"), 431U);
}

TEST(HttpHead, EveryCutIsRefused) {
  const std::string whole = "PUT /k HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n";
  EXPECT_EQ(refused(whole), 0U);
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_NE(refused(whole.substr(0, n)), 0U) << n;
}

TEST(HttpHead, AValueCannotSmuggleALine) {
  const std::string head =
      format_head("HTTP/1.1 200 OK", {{"A", "b"}, {"X", "1\r\nSet-Cookie: x"}, {"N\n", "v"}});
  EXPECT_EQ(head, "HTTP/1.1 200 OK\r\nA: b\r\n\r\n");
}

TEST(HttpDate, AllThreeForms) {
  EXPECT_EQ(format_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(parse_date("Sun, 06 Nov 1994 08:49:37 GMT"), 784111777);
  EXPECT_EQ(parse_date("Sunday, 06-Nov-94 08:49:37 GMT"), 784111777);
  EXPECT_EQ(parse_date("Sun Nov  6 08:49:37 1994"), 784111777);
  for (const char* bad :
       {"", "yesterday", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 25:00:00 GMT",
        "Sun, 06 Foo 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT x"}) {
    EXPECT_EQ(parse_date(bad), std::nullopt) << bad;
  }
}

// A body as it comes from a socket, in pieces of every size.
struct BodyCase {
  Result<std::string> got;
  std::string left;
  Headers trailers;
};

BodyCase read_body(const std::string& bytes, Body::Framing framing, std::uint64_t length,
                   std::size_t piece) {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  auto near = adopt_stream(UniqueFd(fds[0]), kTestClock).value();
  auto far = adopt_stream(UniqueFd(fds[1]), kTestClock).value();
  std::thread writer([&] {
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      far->write_all(bytes_of(bytes).subspan(at, std::min(piece, bytes.size() - at)),
                     test_deadline())
          .ignore();
    far.reset();
  });
  Input input(*near, kTestClock);
  Body body(input, framing, length, std::chrono::seconds(20));
  BodyCase result{body.read_all(1 << 20), {}, {}};
  std::byte part[256];
  for (;;) {
    const Result<std::size_t> count = input.read_some(part, test_deadline());
    if (!count.ok()) break;
    result.left.append(reinterpret_cast<const char*>(part), *count);
  }
  writer.join();
  result.trailers = body.trailers();
  return result;
}

TEST(HttpBody, ChunkedEndsWhereItSays) {
  const std::string bytes = "5;ext=\"a\"\r\nhello\r\n1 \r\n!\r\n000\r\nX-T:  v \r\n\r\nNEXT";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    const BodyCase c = read_body(bytes, Body::Framing::chunked, 0, piece);
    ASSERT_TRUE(c.got.ok()) << piece;
    EXPECT_EQ(*c.got, "hello!");
    EXPECT_EQ(c.left, "NEXT");
    EXPECT_EQ(c.trailers.get("x-t"), "v");
  }
}

TEST(HttpBody, EveryCutOfAChunkedBodyFails) {
  const std::string bytes = "5\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n";
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(read_body(bytes.substr(0, n), Body::Framing::chunked, 0, 7).got.ok()) << n;
}

TEST(HttpBody, BadChunkingIsRefused) {
  for (const char* bad :
       {"x\r\n", "\r\n", "-1\r\n", "0x5\r\nhello\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "11111111111111111\r\n",
        "5 5\r\nhello", "0\r\nno colon\r\n\r\n", "0\r\nbad name: x\r\n\r\n",
        "0\r\nX: \x01\r\n\r\n"}) {
    EXPECT_FALSE(read_body(bad, Body::Framing::chunked, 0, 64).got.ok()) << bad;
  }
  EXPECT_FALSE(read_body("5;" + std::string(kChunkLineMax, 'e') + "\r\nhello\r\n0\r\n\r\n",
                         Body::Framing::chunked, 0, 64)
                   .got.ok());
  std::string trailers = "0\r\n";
  while (trailers.size() < 2 * kTrailerBytesMax) trailers += "X-T: 0123456789\r\n";
  EXPECT_FALSE(read_body(trailers + "\r\n", Body::Framing::chunked, 0, 999).got.ok());
}

TEST(HttpBody, LengthAndUntilClose) {
  const BodyCase c = read_body("hello world", Body::Framing::length, 5, 3);
  EXPECT_EQ(c.got.value_or("?"), "hello");
  EXPECT_EQ(c.left, " world");
  EXPECT_EQ(read_body("hell", Body::Framing::length, 5, 3).got.code(), Errc::connection_lost);
  EXPECT_EQ(read_body("hello", Body::Framing::until_close, 0, 2).got.value_or("?"), "hello");
  EXPECT_EQ(read_body("", Body::Framing::length, (1 << 20) + 1, 2).got.code(), Errc::too_large);
}

}  // namespace
}  // namespace farlift::net::http
