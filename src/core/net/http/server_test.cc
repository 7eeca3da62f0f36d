#include "core/net/http/server.h"

#include "core/net/http/http_test_base.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace farlift::net::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST(HttpServer, KeepsConnectionsAndAnswersInOrder) {
  const auto server = start_test_server();
  RawClient client(server->port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.say("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n").ok());
    const std::string reply = client.hear_until("hello");
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(reply, HasSubstr("Content-Length: 5\r\n"));
    EXPECT_THAT(reply, HasSubstr("Date: "));
  }
}

TEST(HttpServer, PipelinedRequestsWithBodies) {
  const auto server = start_test_server();
  RawClient client(server->port());
  ASSERT_TRUE(client
                  .say("\r\nPUT /count HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nabcd"
                       "PUT /count HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "3\r\nabc\r\n0\r\nX-T: v\r\n\r\n"
                       "PUT /ignore HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nunread"
                       "HEAD /hello HTTP/1.1\r\nHost: h\r\n\r\n"
                       "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                  .ok());
  const std::string all = client.hear_all();
  const std::size_t first = all.find("\r\n\r\n4HTTP/1.1 200");
  const std::size_t second = all.find("\r\n\r\n3 X-T=vHTTP/1.1 200");
  const std::size_t third = all.find("\r\n\r\nignoredHTTP/1.1 200");
  const std::size_t fourth = all.find("X-Method: HEAD");
  const std::size_t fifth = all.find("X-Method: GET");
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_LT(third, fourth);
  EXPECT_LT(fourth, fifth);
  ASSERT_NE(fifth, std::string::npos) << all;
  EXPECT_THAT(all, EndsWith("\r\n\r\nhello"));
}

TEST(HttpServer, ExpectContinueIsAnsweredWhenTheBodyIsRead) {
  const auto server = start_test_server();
  RawClient client(server->port());
  const std::string expect =
      "HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
  ASSERT_TRUE(client.say("PUT /count " + expect).ok());
  EXPECT_EQ(client.hear_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.say("abc").ok());
  EXPECT_THAT(client.hear_until("\r\n\r\n3"), StartsWith("HTTP/1.1 200"));
  // A handler that does not want the body: no interim reply, and the connection ends, since nobody
  // can know whether the body comes.
  ASSERT_TRUE(client.say("PUT /ignore " + expect).ok());
  const std::string reply = client.hear_all();
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(reply, testing::HasSubstr("Connection: close"));
  EXPECT_THAT(reply, EndsWith("ignored"));
}

TEST(HttpServer, ExpectWithoutABodyHasNoInterimReply) {
  const auto server = start_test_server();
  RawClient client(server->port());
  ASSERT_TRUE(client
                  .say("PUT /count HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nExpect: "
                       "100-continue\r\n\r\n")
                  .ok());
  // The connection ends here, too: botocore takes the next answer on it for a part of this one.
  const std::string reply = client.hear_all();
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(reply, testing::HasSubstr("Connection: close"));
}

TEST(HttpServer, MalformedHeadsAreAnsweredAndEnd) {
  const auto server = start_test_server();
  const std::pair<const char*, const char*> cases[] = {
      {"nonsense\r\n\r\n", "HTTP/1.1 400"},
      {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400"},
      {"GET / HTTP/3.0\r\nHost: h\r\n\r\n", "HTTP/1.1 505"},
      {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 501"},
      {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
       "HTTP/1.1 400"},
  };
  for (const auto& [head, status] : cases) {
    RawClient client(server->port());
    ASSERT_TRUE(client.say(std::string(head) + "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n").ok());
    const std::string reply = client.hear_all();
    EXPECT_THAT(reply, StartsWith(status)) << head;
    EXPECT_THAT(reply, Not(HasSubstr("hello"))) << "what follows a refused head is not a request";
  }
}

TEST(HttpServer, LargeAndSlowHeadsEnd) {
  ServerOptions options;
  options.head_bytes_max = 4096;
  options.head_timeout = milliseconds(600);
  const auto server = start_test_server(options);
  RawClient large(server->port());
  ASSERT_TRUE(large.say("GET /hello HTTP/1.1\r\nHost: h\r\nX: " + std::string(8192, 'x')).ok());
  EXPECT_THAT(large.hear_all(), StartsWith("HTTP/1.1 431"));
  RawClient slow(server->port());
  ASSERT_TRUE(slow.say("GET /hello HT").ok());
  EXPECT_THAT(slow.hear_all(), StartsWith("HTTP/1.1 408"));
}

TEST(HttpServer, IdleConnectionsEndSilently) {
  ServerOptions options;
  options.idle_timeout = milliseconds(300);
  const auto server = start_test_server(options);
  RawClient client(server->port());
  EXPECT_THAT(client.hear_all(), IsEmpty());
}

TEST(HttpServer, BadChunkingAndEarlyCloseReachTheHandler) {
  const auto server = start_test_server();
  const std::string head = "PUT /count HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  RawClient bad(server->port());
  ASSERT_TRUE(bad.say(head + "zz\r\n").ok());
  EXPECT_THAT(bad.hear_all(), StartsWith("HTTP/1.1 400"));
  RawClient early(server->port());
  ASSERT_TRUE(early.say(head + "5\r\nhe").ok());
  early.stream().cut_off();
  RawClient next(server->port());  // nobody else is disturbed
  ASSERT_TRUE(next.say("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n").ok());
  EXPECT_THAT(next.hear_until("hello"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, ABodyWithoutEndIsNotDrainedForEver) {
  const auto server = start_test_server();
  RawClient client(server->port());
  ASSERT_TRUE(
      client.say("PUT /ignore HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n").ok());
  EXPECT_THAT(client.hear_until("ignored"), StartsWith("HTTP/1.1 200"));
  const std::string part(64 * 1024, 'x');
  Status said;
  for (int i = 0; i < 1000 && said.ok(); ++i) said = client.say(part);
  EXPECT_FALSE(said.ok()) << "the server must stop reading";
}

TEST(HttpServer, AShortBodyEndsTheConnection) {
  const auto server = start_test_server();
  RawClient client(server->port());
  ASSERT_TRUE(client.say("GET /short HTTP/1.1\r\nHost: h\r\n\r\n").ok());
  EXPECT_THAT(client.hear_all(), EndsWith("\r\n\r\nabc"));
}

TEST(HttpServer, ChunkedToOldClientsIsUntilClose) {
  const auto server = start_test_server();
  RawClient old(server->port());
  ASSERT_TRUE(old.say("GET /chunked HTTP/1.0\r\n\r\n").ok());
  EXPECT_THAT(old.hear_all(), EndsWith("\r\n\r\nonetwo"));
  RawClient now(server->port());
  ASSERT_TRUE(now.say("GET /chunked HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").ok());
  EXPECT_THAT(now.hear_all(), EndsWith("\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"));
}

TEST(HttpServer, MoreConnectionsThanAllowedWait) {
  ServerOptions options;
  options.connections_max = 2;
  options.workers = 1;
  const auto server = start_test_server(options);
  auto first = std::make_unique<RawClient>(server->port());
  auto second = std::make_unique<RawClient>(server->port());
  const std::string get = "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n";
  ASSERT_TRUE(first->say(get).ok());
  ASSERT_TRUE(second->say(get).ok());
  EXPECT_THAT(first->hear_until("hello"), HasSubstr("200 OK"));
  EXPECT_THAT(second->hear_until("hello"), HasSubstr("200 OK"));
  RawClient third(server->port());  // in the backlog
  ASSERT_TRUE(third.say(get).ok());
  EXPECT_FALSE(
      third.stream().wait(Interest::read, Deadline::after(kTestClock, milliseconds(300))).ok());
  first.reset();
  EXPECT_THAT(third.hear_until("hello"), HasSubstr("200 OK"));
}

TEST(HttpServer, ManyClientsAtOnce) {
  const auto server = start_test_server();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      RawClient client(server->port());
      const std::string body(static_cast<std::size_t>(1000 * t + 1), 'b');
      for (int i = 0; i < 20; ++i) {
        client
            .say("PUT /count HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                 std::to_string(body.size()) + "\r\n\r\n" + body)
            .ignore();
        const std::string end = "\r\n\r\n" + std::to_string(body.size());
        if (client.hear_until(end).find(end) != std::string::npos) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 16 * 20);
}

TEST(HttpServer, StopWaitsForHandlersThenCuts) {
  std::mutex mutex;
  std::condition_variable changed;
  bool inside = false;
  bool released = false;
  auto server = start_test_server({}, [&](Request& request, Response& response) {
    std::unique_lock lock(mutex);
    inside = true;
    changed.notify_all();
    if (request.target() == "/wait") changed.wait(lock, [&] { return released; });
    response.send(200, {}, "done").ignore();
    std::byte byte[1];
    if (request.target() == "/hang") request.body().read(byte).value_or(0);
  });
  RawClient waiting(server->port());
  ASSERT_TRUE(waiting.say("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n").ok());
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, seconds(20), [&] { return inside; }));
  lock.unlock();
  std::thread stopper([&] { server->stop(seconds(20)); });
  lock.lock();
  released = true;
  changed.notify_all();
  lock.unlock();
  EXPECT_THAT(waiting.hear_all(), EndsWith("done"));
  stopper.join();

  inside = false;
  server = start_test_server({}, [&](Request& request, Response&) {
    {
      const std::lock_guard guard(mutex);
      inside = true;
      changed.notify_all();
    }
    std::byte byte[1];
    EXPECT_FALSE(request.body().read(byte).ok());
  });
  RawClient hanging(server->port());
  ASSERT_TRUE(hanging.say("PUT /hang HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n").ok());
  lock.lock();
  ASSERT_TRUE(changed.wait_for(lock, seconds(20), [&] { return inside; }));
  lock.unlock();
  server->stop(milliseconds(50));  // must not wait for a body that never comes
}

TEST(HttpServer, AHandlerSeesThatItsClientIsGone) {
  std::atomic<bool> inside{false};
  std::atomic<bool> gone{false};
  const auto server = start_test_server({}, [&](Request& request, Response&) {
    inside = true;
    const Deadline deadline = test_deadline();
    while (!request.peer_gone() && !deadline.expired(kTestClock)) std::this_thread::yield();
    gone = request.peer_gone();
  });
  {
    RawClient client(server->port());
    ASSERT_TRUE(client.say("GET / HTTP/1.1\r\nHost: h\r\n\r\n").ok());
    const Deadline deadline = test_deadline();
    while (!inside && !deadline.expired(kTestClock)) std::this_thread::yield();
    ASSERT_TRUE(inside);
    EXPECT_FALSE(gone);
  }
  server->stop(seconds(20));
  EXPECT_TRUE(gone);
}

}  // namespace
}  // namespace farlift::net::http
