#include "core/base/prng.h"
#include "core/fabric/soft/target.h"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>

namespace farlift::fabric::soft {
namespace {

constexpr std::uint64_t kDrainBytesMax = 1u << 20;

// What a failed or empty recv means: nothing there yet, or the end of the link.
bool would_block(ssize_t n) noexcept { return n < 0 && (errno == EAGAIN || errno == EINTR); }

}  // namespace

SoftTarget::Step SoftTarget::receive(const LinkRef& link, std::uint64_t& moved) {
  switch (link->in) {
    case TargetLink::In::hello:
      return receive_hello(*link);
    case TargetLink::In::header:
      return receive_header(link);
    case TargetLink::In::landing:
      return receive_payload(*link, moved);
    case TargetLink::In::draining:
      return drain_payload(*link);
  }
  return Step::ended;
}

SoftTarget::Step SoftTarget::receive_hello(TargetLink& link) {
  const ssize_t n =
      ::recv(link.fd.get(), link.buffer.data() + link.have, kHelloBytes - link.have, MSG_DONTWAIT);
  if (would_block(n)) return Step::idle;
  if (n <= 0) return Step::ended;
  link.have += static_cast<std::size_t>(n);
  // A stranger is told apart by its first bytes, so that it is not kept waiting for a hello that it
  // would never send.
  if (magic_matches({link.buffer.data(), link.have}) && link.have < kHelloBytes) return Step::idle;
  const auto hello = decode_hello({link.buffer.data(), link.have});
  if (!hello.ok()) {
    domain_.counters().links_foreign.add();
    return Step::ended;
  }
  auto awaited = TargetLink::Greeting::awaited;
  if (!link.greeting.compare_exchange_strong(awaited, TargetLink::Greeting::said))
    return Step::ended;
  link.hello = *hello;
  link.cell = hello->challenge;
  link.have = 0;
  link.in = TargetLink::In::header;
  secure_random(link.challenge);
  Hello mine;
  mine.status = link.refuse ? HelloStatus::full : HelloStatus::ok;
  mine.host_lane =
      hello->host_lane && domain_.host_lane_possible() && hello->boot_id == domain_.boot();
  mine.pid = static_cast<std::uint32_t>(::getpid());
  if (domain_.same_host(hello->boot_id)) tune_local_socket(link.fd.get());
  mine.boot_id = domain_.boot();
  mine.challenge = link.challenge;
  mine.cell_addr = reinterpret_cast<std::uint64_t>(link.cell.data());
  mine.registry_addr = domain_.registry().table_addr();
  mine.registry_slots = Registry::kSlots;
  mine.socket_fd = static_cast<std::uint32_t>(link.fd.get());
  mine.takes_sources = mine.host_lane && hello->registry_slots == kAnnouncesSources;
  link.takes_sources = mine.takes_sources;
  link.hello.host_lane = mine.host_lane;
  std::array<std::byte, kHelloBytes> bytes;
  encode(mine, bytes);
  {
    MutexLock lock(link.mutex);
    link.out.insert(link.out.end(), bytes.begin(), bytes.end());
  }
  flush(link);
  return link.refuse ? Step::ended : Step::more;
}

bool SoftTarget::stalled(TargetLink& link) {
  {
    MutexLock lock(jobs_mutex_);
    if (link.pulls >= kPullsPerLinkMax) return true;
  }
  MutexLock lock(link.mutex);
  return link.out.size() - link.out_sent >= kOutBytesMax || link.reads.size() >= kReadsPerLinkMax;
}

SoftTarget::Step SoftTarget::receive_header(const LinkRef& link) {
  if (link->have < kRequestBytes) {
    if (stalled(*link)) return Step::idle;
    const ssize_t n = ::recv(link->fd.get(), link->buffer.data() + link->have,
                             kRequestBytes - link->have, MSG_DONTWAIT);
    if (would_block(n)) return Step::idle;
    if (n <= 0) return Step::ended;
    link->have += static_cast<std::size_t>(n);
    if (link->have < kRequestBytes) return Step::idle;
  }
  return dispatch(link);
}

SoftTarget::Step SoftTarget::dispatch(const LinkRef& link) {
  const auto request = decode_request({link->buffer.data(), kRequestBytes});
  link->have = 0;
  const bool host = request.ok() && (request->kind == RequestKind::pull ||
                                     request->kind == RequestKind::pull_source ||
                                     request->kind == RequestKind::source);
  const bool sources = host && request->kind != RequestKind::pull;
  if (!request.ok() || (host && !link->process) || (sources && !link->takes_sources)) {
    domain_.counters().links_broken.add();
    return Step::ended;
  }
  switch (request->kind) {
    case RequestKind::write:
      link->write = *request;
      link->remaining = request->length.raw();
      // Checked as a whole here, so that a refused operation lands nothing, and again piece by
      // piece.
      link->status =
          domain_.registry().begin(request->key, request->addr, request->length, true).ok()
              ? ReplyStatus::ok
              : ReplyStatus::access;
      link->in =
          link->status == ReplyStatus::ok ? TargetLink::In::landing : TargetLink::In::draining;
      return Step::more;
    case RequestKind::read: {
      const bool allowed =
          domain_.registry().begin(request->key, request->addr, request->length, false).ok();
      if (!allowed) {
        reply(*link, request->id, ReplyKind::done, ReplyStatus::access);
        return Step::more;
      }
      MutexLock lock(link->mutex);
      link->reads.push_back({*request, request->length.raw()});
      return Step::more;
    }
    case RequestKind::source:
      link->sources.take(link->process, source_cache_, *request);
      return Step::more;
    case RequestKind::pull:
    case RequestKind::pull_source:
      if (domain_.registry().begin(request->key, request->addr, request->length, true).ok()) {
        add_pull(link, *request);
      } else {
        reply(*link, request->id, ReplyKind::done, ReplyStatus::access);
      }
      return Step::more;
    case RequestKind::host_ready:
      if (link->host_ready || !link->hello.host_lane) return Step::ended;
      link->host_ready = true;
      prove_host(*link);
      return Step::more;
  }
  return Step::ended;
}

void SoftTarget::prove_host(TargetLink& link) {
  Token16 theirs{};
  auto process = HostProcess::open(link.hello.pid);
  const bool proven = process.ok() &&
                      process->holds_other_end(link.fd.get(), link.hello.socket_fd) &&
                      process->read(theirs.data(), link.hello.cell_addr, theirs.size()).ok() &&
                      theirs == link.challenge;
  if (proven) link.process = *std::move(process);
  if (!proven) domain_.counters().host_lane_refusals.add();
  reply(link, 0, ReplyKind::host_proof, proven ? ReplyStatus::ok : ReplyStatus::access);
}

SoftTarget::Step SoftTarget::receive_payload(TargetLink& link, std::uint64_t& moved) {
  const std::uint64_t want = std::min(link.remaining, kLandPieceBytesMax);
  ssize_t n = 0;
  std::uint64_t landed = 0;
  {
    auto piece = domain_.registry().begin(link.write.key, link.write.addr, Length(want), true);
    if (!piece.ok()) {
      link.status = ReplyStatus::access;
      link.in = TargetLink::In::draining;
      return Step::more;
    }
    // The last piece is received together with the header that may follow it.
    iovec parts[2] = {{piece->bytes().data(), want}, {link.buffer.data(), kRequestBytes}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = want == link.remaining ? 2 : 1;
    n = ::recvmsg(link.fd.get(), &message, MSG_DONTWAIT);
    landed = n > 0 ? std::min(static_cast<std::uint64_t>(n), want) : 0;
    piece->landed(landed);
  }
  if (would_block(n)) return Step::idle;
  if (n <= 0) return Step::ended;
  domain_.counters().bytes_landed.add(landed);
  moved += landed;
  link.write.addr = link.write.addr + Offset(landed);
  link.remaining -= landed;
  link.have = static_cast<std::size_t>(static_cast<std::uint64_t>(n) - landed);
  if (link.remaining == 0) {
    link.in = TargetLink::In::header;
    reply(link, link.write.id, ReplyKind::done, ReplyStatus::ok);
    return link.have == 0 ? Step::idle
                          : Step::more;  // a short read: nothing is left in the socket just now
  }
  return Step::more;
}

SoftTarget::Step SoftTarget::drain_payload(TargetLink& link) {
  // MSG_TRUNC makes the kernel drop the bytes: a refused payload is copied nowhere.
  const ssize_t n = ::recv(link.fd.get(), nullptr, std::min(link.remaining, kDrainBytesMax),
                           MSG_DONTWAIT | MSG_TRUNC);
  if (would_block(n)) return Step::idle;
  if (n <= 0) return Step::ended;
  link.remaining -= static_cast<std::uint64_t>(n);
  if (link.remaining == 0) {
    link.in = TargetLink::In::header;
    reply(link, link.write.id, ReplyKind::done, link.status);
  }
  return Step::more;
}

}  // namespace farlift::fabric::soft
