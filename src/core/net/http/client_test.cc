#include "core/net/http/client.h"

#include "core/net/http/http_test_base.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <unistd.h>

namespace farlift::net::http {
namespace {

using std::chrono::milliseconds;

ClientOptions to(const Server& server) {
  ClientOptions options;
  options.stream.port = server.port();
  return options;
}

Result<std::string> get(Client& client, std::string_view target, std::string_view method = "GET") {
  TRY_ASSIGN(auto exchange, client.start(method, target, {}, 0, test_deadline()));
  TRY_ASSIGN(const ResponseHead* head, exchange->finish());
  TRY_ASSIGN(const std::string body, exchange->body().read_all(1 << 22));
  return std::to_string(head->status) + " " + body;
}

TEST(HttpClient, EveryFramingOverOneConnection) {
  std::atomic<int> connections{0};
  std::string last;
  const auto server = start_test_server({}, [&](Request& request, Response& response) {
    const std::string now = std::to_string(request.fd());
    if (now != last) ++connections;
    last = now;
    serve_test(request, response);
  });
  Client client(to(*server), kTestClock);
  EXPECT_EQ(get(client, "/hello").value_or("?"), "200 hello");
  EXPECT_EQ(get(client, "/chunked").value_or("?"), "200 onetwo");
  EXPECT_EQ(get(client, "/hello", "HEAD").value_or("?"), "200 ");
  EXPECT_EQ(get(client, "/none").value_or("?"), "404 no\n");
  EXPECT_EQ(get(client, "/big?1000000").value_or("?"), "200 " + std::string(1000000, 'x'));
  EXPECT_EQ(connections, 1);
}

TEST(HttpClient, StreamsBodies) {
  const auto server = start_test_server();
  Client client(to(*server), kTestClock);
  const std::string part(100000, 'p');
  for (const bool chunked : {false, true}) {
    std::optional<std::uint64_t> length;
    if (!chunked) length = 30 * part.size();
    auto exchange = client.start("PUT", "/count", {}, length, test_deadline()).value();
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(exchange->write(bytes_of(part)).ok());
    ASSERT_EQ(exchange->finish().value()->status, 200U);
    EXPECT_EQ(exchange->body().read_all(100).value_or("?"), "3000000");
  }
}

TEST(HttpClient, AShortAnswerIsAnErrorAndItsConnectionIsNotUsedAgain) {
  const auto server = start_test_server();
  Client client(to(*server), kTestClock);
  EXPECT_EQ(get(client, "/short").code(), Errc::connection_lost);
  EXPECT_EQ(get(client, "/hello").value_or("?"), "200 hello");
}

TEST(HttpClient, AKeptConnectionThatDiedIsReplaced) {
  auto server = start_test_server();
  const std::uint16_t port = server->port();
  Client client(to(*server), kTestClock);
  EXPECT_EQ(get(client, "/hello").value_or("?"), "200 hello");
  server->stop(milliseconds(0));
  ServerOptions again;
  again.port = port;
  server = start_test_server(again);
  EXPECT_EQ(get(client, "/hello").value_or("?"), "200 hello");
}

TEST(HttpClient, AnUnreadAnswerDoesNotPoisonTheNext) {
  const auto server = start_test_server();
  Client client(to(*server), kTestClock);
  {
    auto exchange = client.start("GET", "/big?3000000", {}, 0, test_deadline()).value();
    ASSERT_TRUE(exchange->finish().ok());
  }
  EXPECT_EQ(get(client, "/hello").value_or("?"), "200 hello");
}

TEST(HttpClient, DeadlineAndCutOffEndWaits) {
  const auto server = start_test_server({}, [](Request& request, Response&) {
    const Deadline deadline = test_deadline();
    while (!request.peer_gone() && !deadline.expired(kTestClock))
      std::this_thread::sleep_for(milliseconds(5));
  });
  Client client(to(*server), kTestClock);
  auto late =
      client.start("GET", "/", {}, 0, Deadline::after(kTestClock, milliseconds(200))).value();
  EXPECT_EQ(late->finish().code(), Errc::timeout);
  late.reset();
  auto cut = client.start("GET", "/", {}, 0, test_deadline()).value();
  std::thread cutter([&] { cut->cut_off(); });
  EXPECT_EQ(cut->finish().code(), Errc::closed);
  cutter.join();
  cut.reset();
}

TEST(HttpClient, NobodyThere) {
  auto server = start_test_server();
  const ClientOptions options = to(*server);
  server.reset();
  Client client(options, kTestClock);
  EXPECT_EQ(client.start("GET", "/", {}, 0, test_deadline()).code(), Errc::unreachable);
}

TEST(HttpServer, SendsFilesFromWhereTheyLie) {
  char path[] = "/tmp/farlift_http_XXXXXX";
  const UniqueFd file(::mkstemp(path));
  ASSERT_TRUE(static_cast<bool>(file));
  ::unlink(path);
  std::string content;
  for (int i = 0; i < 300000; ++i) content += static_cast<char>('a' + i % 23);
  ASSERT_EQ(::write(file.get(), content.data(), content.size()),
            static_cast<ssize_t>(content.size()));
  const auto server = start_test_server({}, [&](Request& request, Response& response) {
    // /past announces more than there is.
    const std::uint64_t extra = request.target() == "/past" ? 1 : 0;
    const std::uint64_t length = content.size() - 1000 + extra;
    response.start(200, {}, length).ignore();
    EXPECT_EQ(response.send_file(file.get(), 1000, length).ok(), extra == 0);
  });
  Client client(to(*server), kTestClock);
  EXPECT_EQ(get(client, "/file").value_or("?"), "200 " + content.substr(1000));
  EXPECT_EQ(get(client, "/past").code(), Errc::connection_lost);
}

}  // namespace
}  // namespace farlift::net::http
