#include "kvcache/control/name_resolver.h"

#include <arpa/inet.h>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace farlift::kv {
namespace {

std::vector<SocketAddress> look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* a = list; a != nullptr && addresses.size() < NameResolver::kAddressesMax;
       a = a->ai_next) {
    if (a->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress& address = addresses.emplace_back();
    address.length = a->ai_addrlen;
    std::memcpy(&address.storage, a->ai_addr, a->ai_addrlen);
  }
  return addresses;
}

}  // namespace

std::string SocketAddress::text() const {
  char host[INET6_ADDRSTRLEN] = "?";
  if (family() == AF_INET6) {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    ::inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
    return "[" + std::string(host) + "]:" + std::to_string(ntohs(in6->sin6_port));
  }
  const auto* in4 = reinterpret_cast<const sockaddr_in*>(&storage);
  if (family() == AF_INET) ::inet_ntop(AF_INET, &in4->sin_addr, host, sizeof host);
  return std::string(host) + ":" + std::to_string(ntohs(in4->sin_port));
}

std::optional<SocketAddress> numeric_address(const std::string& host, std::uint16_t port) {
  std::vector<SocketAddress> found = look_up(host, port, AI_NUMERICHOST);
  if (found.empty()) return std::nullopt;
  return found.front();
}

Result<std::unique_ptr<NameResolver>> NameResolver::open() {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return Error::from_errno("eventfd");
  return std::unique_ptr<NameResolver>(new NameResolver(std::move(event)));
}

NameResolver::~NameResolver() {
  questions_.close();
  while (questions_.try_pop()) {
  }
  if (thread_.joinable()) thread_.join();
}

Status NameResolver::ask(std::uint64_t id, const std::string& host, std::uint16_t port) {
  TRY(questions_.try_push({id, host, port}));
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  return {};
}

void NameResolver::serve() {
  while (const auto question = questions_.pop()) {
    Answer answer{question->id, look_up(question->host, question->port, AI_ADDRCONFIG)};
    {
      const MutexLock lock(mutex_);
      answers_.push_back(std::move(answer));
    }
    const std::uint64_t one = 1;
    static_cast<void>(::write(event_.get(), &one, sizeof one));
  }
}

std::vector<NameResolver::Answer> NameResolver::take() {
  std::uint64_t count = 0;
  // Emptied first: an answer that comes in between raises it again.
  if (::read(event_.get(), &count, sizeof count) < 0) return {};
  const MutexLock lock(mutex_);
  return std::exchange(answers_, {});
}

}  // namespace farlift::kv
