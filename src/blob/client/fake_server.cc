#include "blob/client/fake_server.h"

#include "core/base/assert.h"
#include "core/codec/text.h"
#include "core/digest/crc32c.h"
#include "core/fabric/soft/soft.h"
#include "core/net/resp/parser.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstdlib>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace farlift::testing {

struct FakeServer::Call::Peer {
  int fd = -1;
  bool hung_up = false;
  std::unique_ptr<fabric::Initiator> initiator;
  std::optional<fabric::PeerId> client;  // after HELLO
  bool queueing = false;                 // MULTI is open
};

namespace {

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  });
  return text;
}

std::string bulk(std::string_view text) {
  return "$" + std::to_string(text.size()) + "\r\n" + std::string(text) + "\r\n";
}

}  // namespace

std::string get_reply(std::uint64_t length, std::uint32_t crc) {
  return "*2\r\n:" + std::to_string(length) + "\r\n:" + std::to_string(crc) + "\r\n";
}

FakeServer::FakeServer() {
  auto domain = fabric::soft::open_domain({}, clock_);
  ASSERT(domain.ok());
  domain_ = std::move(domain).value();
  listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  ASSERT(::listen(listener_.get(), 64) == 0);
  socklen_t length = sizeof address;
  ASSERT(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_all(); });
}

FakeServer::~FakeServer() {
  stopping_ = true;
  ::shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const int fd : open_fds_) ::shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
}

void FakeServer::on(const std::string& command, Script script) {
  const std::lock_guard<std::mutex> lock(mutex_);
  scripts_[command] = std::move(script);
}

void FakeServer::put(const std::string& key, Bytes bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  values_[key] = std::move(bytes);
}

FakeServer::Bytes FakeServer::get(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return values_[key];
}

int FakeServer::count(const std::string& command) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_[command];
}

void FakeServer::accept_all() {
  for (;;) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd) {
      if (stopping_) return;
      continue;
    }
    ++connections_;
    const std::lock_guard<std::mutex> lock(mutex_);
    open_fds_.push_back(fd.get());
    threads_.emplace_back([this, raw = fd.release()] { serve(UniqueFd(raw)); });
  }
}

void FakeServer::serve(UniqueFd fd) {
  Call::Peer peer;
  peer.fd = fd.get();
  resp::Parser parser;
  std::array<char, 65536> buffer;
  while (!peer.hung_up && !stopping_) {
    auto next = parser.next();
    if (!next.ok()) break;
    if (!*next) {
      const ssize_t got = ::recv(fd.get(), buffer.data(), buffer.size(), 0);
      if (got <= 0) break;
      parser.feed(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
      continue;
    }
    std::vector<std::string> words;
    for (const resp::Value& item : (*next)->items()) words.emplace_back(item.text());
    if (words.empty()) continue;
    const std::string name = upper(words[0]);
    Call call(*this, peer, std::move(words));
    Script script;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++counts_[name];
      script = scripts_[name];
    }
    if (script) {
      script(call);
    } else {
      run_usual(call);
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase(open_fds_, fd.get());
  ::shutdown(fd.get(), SHUT_RDWR);
  fd.reset();  // under the lock: the number must not be shut down once it is somebody else's
}

void FakeServer::Call::reply(std::string_view raw) {
  while (!raw.empty()) {
    const ssize_t sent = ::send(peer_.fd, raw.data(), raw.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      hang_up();
      return;
    }
    raw.remove_prefix(static_cast<std::size_t>(sent));
  }
}

void FakeServer::Call::hang_up() {
  ::shutdown(peer_.fd, SHUT_RDWR);
  peer_.hung_up = true;
}

void FakeServer::Call::as_usual() { server_.run_usual(*this); }

Status FakeServer::Call::write(const Bytes& bytes, std::size_t first_triple) {
  Bytes copy = bytes;
  return move(fabric::OpKind::write, copy, first_triple);
}

Status FakeServer::Call::read(Bytes& bytes, std::size_t first_triple) {
  return move(fabric::OpKind::read, bytes, first_triple);
}

Status FakeServer::Call::write_at(const std::string& key, std::uint64_t addr, Bytes& bytes) {
  return move_one(fabric::OpKind::write, bytes, std::strtoull(key.c_str(), nullptr, 10), addr);
}

Status FakeServer::Call::move(fabric::OpKind kind, Bytes& bytes, std::size_t first_triple) {
  const auto number = [this](std::size_t at) {
    return std::strtoull(words_.at(at).c_str(), nullptr, 10);
  };
  std::size_t done = 0;
  for (std::size_t at = first_triple; at + 2 < words_.size() && done < bytes.size(); at += 3) {
    const std::size_t length = std::min<std::size_t>(bytes.size() - done, number(at + 2));
    TRY(move_one(kind, std::span(bytes).subspan(done, length), number(at), number(at + 1)));
    done += length;
  }
  return {};
}

Status FakeServer::Call::move_one(fabric::OpKind kind, std::span<std::byte> bytes,
                                  std::uint64_t key, std::uint64_t addr) {
  if (!peer_.client) return Error::make(Errc::closed, "no HELLO");
  fabric::Operation operation;
  operation.kind = kind;
  operation.peer = *peer_.client;
  operation.key = RKey(key);
  operation.addr = RemoteAddr(addr);
  operation.local = bytes;
  TRY(peer_.initiator->post(operation));
  fabric::Completion completion;
  while (peer_.initiator->poll(std::span(&completion, 1)) == 0) peer_.initiator->wait(1000);
  return completion.status;
}

void FakeServer::run_usual(Call& call) {
  const std::string name = upper(call.words()[0]);
  if (call.peer_.queueing && name != "EXEC" && name != "DISCARD") return call.reply("+QUEUED\r\n");
  if (name == "HELLO") {
    call.reply("%2\r\n" + bulk("server") + bulk("valkey") + bulk("proto") + ":3\r\n");
  } else if (name == "PING") {
    call.reply("+PONG\r\n");
  } else if (name == "MULTI") {
    call.peer_.queueing = true;
    call.reply("+OK\r\n");
  } else if (name == "EXEC" || name == "DISCARD") {
    call.peer_.queueing = false;
    call.reply(name == "EXEC" ? "*0\r\n" : "+OK\r\n");
  } else if (name == "BLOB.RDMA_HELLO") {
    auto bytes = codec::hex_decode(call.words().at(1));
    ASSERT(bytes.ok());
    auto initiator = domain_->open_initiator({});
    ASSERT(initiator.ok());
    call.peer_.initiator = std::move(initiator).value();
    auto client = call.peer_.initiator->add_peer(*fabric::Address::from_bytes(*bytes));
    ASSERT(client.ok());
    call.peer_.client = *client;
    call.reply("*1\r\n" + bulk(call.peer_.initiator->address().hex()));
  } else if (name == "BLOB.RDMA_GET") {
    usual_get(call);
  } else if (name == "BLOB.RDMA_SET") {
    usual_set(call);
  } else {
    call.reply("-ERR unknown command '" + call.words()[0] + "'\r\n");
  }
}

void FakeServer::usual_get(Call& call) {
  Bytes bytes;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = values_.find(call.words().at(1));
    if (found != values_.end()) bytes = found->second;
  }
  if (bytes.empty()) return call.reply("_\r\n");
  if (!call.write(bytes).ok()) return call.reply("-ERR RDMA write failed\r\n");
  call.reply(get_reply(bytes.size(), digest::crc32c(bytes).raw()));
}

void FakeServer::usual_set(Call& call) {
  const bool with_crc = upper(call.words().at(3)) == "CRC";
  Bytes bytes(std::strtoull(call.words().at(2).c_str(), nullptr, 10));
  if (!call.read(bytes, with_crc ? 5 : 3).ok()) return call.reply("-ERR RDMA read failed\r\n");
  if (with_crc && std::to_string(digest::crc32c(bytes).raw()) != call.words().at(4)) {
    return call.reply("-ERR CRC32C mismatch\r\n");
  }
  put(call.words().at(1), std::move(bytes));
  call.reply("+OK\r\n");
}

}  // namespace farlift::testing
