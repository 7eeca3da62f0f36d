// What rides in RESP: plain GET and SET, and the inline forms of the blob door. The client is as
// lean as one can be: payload straight between the socket and the value's memory, no parsing
// besides.
#include "apps/bench/contender.h"
#include "apps/bench/socket.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <optional>

namespace farlift::apps {

namespace {

class RespContender : public Contender {
 public:
  using Contender::Contender;
  Outcome<void> prepare(const Scene& scene) override {
    scene_ = scene;
    for (unsigned w = 0; w < scene.in_flight; ++w) {
      Outcome<Socket> socket = Socket::connect(scene.server_port);
      if (!socket) return fail(socket.error());
      sockets_.push_back(std::move(*socket));
    }
    return {};
  }
  void release() override { sockets_.clear(); }

 protected:
  Outcome<void> refused(std::span<const std::byte> reply) const {
    const std::string text(reinterpret_cast<const char*>(reply.data()),
                           std::min<std::size_t>(reply.size(), 128));
    return fail(kExitFailed, fmt::format("{}: unexpected reply '{}'", label().what,
                                         text.substr(0, text.find('\r'))));
  }
  Scene scene_;
  std::vector<Socket> sockets_;
};

class RespGet final : public RespContender {
 public:
  RespGet(const char* what, const char* command, bool blob, pid_t server)
      : RespContender({what, "", "", false}, server), command_(command), blob_(blob) {}

  Outcome<void> op(unsigned worker) override {
    Socket& socket = sockets_[worker];
    const std::string& key = blob_ ? scene_.blob_key : scene_.string_key;
    const std::string request =
        fmt::format("*2\r\n${}\r\n{}\r\n${}\r\n{}\r\n", command_.size(), command_, key.size(), key);
    const std::string head = fmt::format("${}\r\n", scene_.size);
    if (auto sent = socket.send_all(request); !sent) return sent;
    std::array<std::byte, 32> first{};
    auto got = socket.receive_some(std::span(first).first(head.size()));
    if (!got) return fail(got.error());
    if (*got < head.size()) {
      if (auto more = socket.receive_all(std::span(first).subspan(*got, head.size() - *got)); !more)
        return more;
    }
    if (std::memcmp(first.data(), head.data(), head.size()) != 0) return refused(first);
    if (auto body = socket.receive_all(scene_.values[worker].first(scene_.size)); !body)
      return body;
    return socket.receive_all(std::span(first).first(2));
  }

 private:
  const std::string command_;
  const bool blob_;
};

class RespSet final : public RespContender {
 public:
  RespSet(const char* what, const char* command, pid_t server)
      : RespContender({what, "", "", false}, server), command_(command) {}

  Outcome<void> op(unsigned worker) override {
    Socket& socket = sockets_[worker];
    const std::string key = fmt::format("bench:{}:{}", command_, worker);
    const std::string head = fmt::format("*3\r\n${}\r\n{}\r\n${}\r\n{}\r\n${}\r\n", command_.size(),
                                         command_, key.size(), key, scene_.size);
    if (auto sent = socket.send_all(head); !sent) return sent;
    if (auto sent = socket.send_all(scene_.values[worker].first(scene_.size)); !sent) return sent;
    if (auto sent = socket.send_all("\r\n"); !sent) return sent;
    std::array<std::byte, 5> reply{};
    if (auto got = socket.receive_all(reply); !got) return got;
    if (std::memcmp(reply.data(), "+OK\r\n", reply.size()) != 0) return refused(reply);
    return {};
  }

 private:
  const std::string command_;
};

}  // namespace

void add_valkey_contenders(Contenders& out, pid_t server) {
  out.push_back(std::make_unique<RespGet>("valkey.get", "GET", false, server));
  out.push_back(std::make_unique<RespSet>("valkey.set", "SET", server));
  out.push_back(std::make_unique<RespGet>("blob.tcp_get", "BLOB.TCP_GET", true, server));
  out.push_back(std::make_unique<RespSet>("blob.tcp_set", "BLOB.TCP_SET", server));
}

}  // namespace farlift::apps
