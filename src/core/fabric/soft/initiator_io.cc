#include "core/fabric/soft/initiator.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <sys/uio.h>

namespace farlift::fabric::soft {
namespace {

constexpr std::size_t kPartsMax = 32;

}  // namespace

// Decides the lane of an operation on a link that is up.
void SoftInitiator::route(Link& link, std::uint32_t index) {
  Slot& slot = slots_[index];
  const Operation& op = slot.operation;
  Counters& counters = domain_.counters();
  if (op.kind == OpKind::read && link.host != nullptr) {
    counters.reads_host.add();
    start_host_read(slot, false);
    ring();
    return;
  }
  slot.pull = op.kind == OpKind::write && link.can_pull && op.local.size() >= kPullBytesMin;
  Request request;
  slot.header_bytes = 0;
  request.kind = op.kind == OpKind::read ? RequestKind::read
                 : slot.pull             ? announce_source(link, slot)
                                         : RequestKind::write;
  request.id = slot.id;
  request.key = op.key;
  request.addr = op.addr;
  request.length = Length(op.local.size());
  request.source = slot.pull ? reinterpret_cast<std::uint64_t>(op.local.data()) : 0;
  encode(request, std::span<std::byte, kRequestBytes>(slot.header.data() + slot.header_bytes,
                                                      kRequestBytes));
  slot.header_bytes += kRequestBytes;
  (op.kind == OpKind::read ? counters.reads_remote
   : slot.pull             ? counters.writes_host
                           : counters.writes_remote)
      .add();
  if (op.kind == OpKind::read) ++link.reads_out;
  link.queue.push_back(index);
  link.queued_bytes += op.local.size();
}

bool SoftInitiator::send_control(Link& link) {
  while (!link.control.empty()) {
    const ssize_t n = ::send(link.fd.get(), link.control.data(), link.control.size(),
                             MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return false;
    link.control.erase(link.control.begin(), link.control.begin() + n);
  }
  return true;
}

// Sends as much as the socket takes: whole headers and payloads of several operations in one call.
void SoftInitiator::send(Link& link) {
  if (link.state == Link::State::connecting || link.state == Link::State::leaving ||
      !send_control(link))
    return;
  while (link.state == Link::State::up && !link.queue.empty()) {
    iovec parts[kPartsMax];
    std::size_t count = 0;
    std::uint64_t total = 0;
    std::size_t skip = link.front_sent;
    for (auto i = link.queue.begin();
         i != link.queue.end() && count + 2 <= kPartsMax && total < kSendBytesMax; ++i) {
      Slot& slot = slots_[*i];
      slot.begun = true;
      if (skip < slot.header_bytes) {
        parts[count++] = {slot.header.data() + skip, slot.header_bytes - skip};
        total += slot.header_bytes - skip;
        skip = 0;
      } else {
        skip -= slot.header_bytes;
      }
      if (slot.operation.kind == OpKind::write && !slot.pull) {
        const std::uint64_t want = std::min(slot.operation.local.size() - skip, kSendBytesMax);
        parts[count++] = {slot.operation.local.data() + skip, want};
        total += want;
        if (want < slot.operation.local.size() - skip) break;
      }
      skip = 0;
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const ssize_t n = ::sendmsg(link.fd.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return;  // full: EPOLLOUT follows; broken: EPOLLERR and the end of input follow
    sent(link, static_cast<std::uint64_t>(n));
  }
}

// Moves the queue on by `bytes` that the kernel took.
void SoftInitiator::sent(Link& link, std::uint64_t bytes) {
  while (bytes > 0) {
    Slot& slot = slots_[link.queue.front()];
    const bool payload = slot.operation.kind == OpKind::write && !slot.pull;
    const std::uint64_t whole = slot.header_bytes + (payload ? slot.operation.local.size() : 0);
    const std::uint64_t step = std::min(bytes, whole - link.front_sent);
    link.front_sent += step;
    bytes -= step;
    if (link.front_sent < whole) return;
    link.front_sent = 0;
    link.queued_bytes -= slot.operation.local.size();
    slot.sent = true;
    link.queue.pop_front();
  }
}

// Receives until the socket is empty (its events are edges).
void SoftInitiator::receive(Link& link) {
  const std::uint64_t id = link.id;
  for (;;) {
    std::size_t room = 0;
    ssize_t n = 0;
    if (link.frame_left > 0) {
      n = receive_frame(link, room);
    } else {
      // Exactly one header while reads are out, so that their payload is received in place; else as
      // many as there are.
      const std::size_t limit = link.state == Link::State::greeting ? kHelloBytes
                                : link.reads_out > 0 ? std::max(kReplyBytes, link.have)
                                                     : link.buffer.size();
      room = limit - link.have;
      n = room == 0 ? 0 : ::recv(link.fd.get(), link.buffer.data() + link.have, room, MSG_DONTWAIT);
      if (room > 0 && n > 0) link.have += static_cast<std::size_t>(n);
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (room > 0 && n <= 0) return receive_eof(link, n == 0 ? 0 : errno);
    if (link.frame_left == 0 && !on_bytes(link)) {
      // What a peer that breaks the protocol does with its own memory is its own affair: quiet.
      return fail(link, Error::make(Errc::protocol, "soft reply"));
    }
    if (!links_.contains(id)) return;
    // A short read emptied the socket; but an end that was announced has to be read as well.
    if (static_cast<std::size_t>(n) < room && !link.hung_up) return;
  }
}

// Takes what the buffer holds; false when the peer broke the protocol. The link may be gone
// afterwards.
bool SoftInitiator::on_bytes(Link& link) {
  const std::uint64_t id = link.id;
  if (link.state == Link::State::greeting) {
    if (link.have == kHelloBytes || !magic_matches({link.buffer.data(), link.have})) {
      link.have = link.have == kHelloBytes ? 0 : link.have;
      on_hello(link);
    }
    return true;
  }
  std::size_t at = 0;
  while (link.have - at >= kReplyBytes && link.frame_left == 0) {
    const auto reply = decode_reply({link.buffer.data() + at, kReplyBytes});
    at += kReplyBytes;
    if (!reply.ok() || !on_reply(link, *reply)) return false;
    if (!links_.contains(id)) return true;
  }
  if (link.frame_left > 0 && at != link.have) return false;  // data that nobody asked for
  std::memmove(link.buffer.data(), link.buffer.data() + at, link.have - at);
  link.have -= at;
  return true;
}

// Payload of a read, straight to where it belongs (or nowhere), together with the header that may
// follow.
ssize_t SoftInitiator::receive_frame(Link& link, std::size_t& room) {
  Slot* slot = link.state == Link::State::up ? find_slot(link.frame_id) : nullptr;
  if (slot == nullptr) {
    room = static_cast<std::size_t>(link.frame_left);
    const ssize_t n = ::recv(link.fd.get(), nullptr, room, MSG_DONTWAIT | MSG_TRUNC);
    if (n > 0) link.frame_left -= static_cast<std::uint64_t>(n);
    return n;
  }
  const std::uint64_t want = std::min(link.frame_left, kReceiveBytesMax);
  iovec parts[2] = {{slot->operation.local.data() + slot->done_bytes, want},
                    {link.buffer.data(), kReplyBytes}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = want == link.frame_left ? 2 : 1;
  room = static_cast<std::size_t>(want) + (want == link.frame_left ? kReplyBytes : 0);
  const ssize_t n = ::recvmsg(link.fd.get(), &message, MSG_DONTWAIT);
  if (n <= 0) return n;
  const std::uint64_t payload = std::min(static_cast<std::uint64_t>(n), want);
  link.frame_left -= payload;
  slot->done_bytes += payload;
  link.have = static_cast<std::size_t>(static_cast<std::uint64_t>(n) - payload);
  return n;
}

bool SoftInitiator::on_reply(Link& link, const Reply& reply) {
  if (reply.kind == ReplyKind::host_proof) {
    if (link.state != Link::State::proving) return false;
    link.can_pull = reply.status == ReplyStatus::ok;
    on_up(link);
    return true;
  }
  const bool leaving = link.state == Link::State::leaving;
  if (link.state != Link::State::up && !leaving) return false;
  Slot* slot = find_slot(reply.id);
  if (slot != nullptr && (slot->link != &link || !slot->sent)) return false;
  if (reply.kind == ReplyKind::data) {
    const bool wanted = slot != nullptr && slot->operation.kind == OpKind::read &&
                        reply.length.raw() <= slot->operation.local.size() - slot->done_bytes;
    if (!wanted && !leaving) return false;
    link.frame_left = reply.length.raw();
    link.frame_id = reply.id;
    return true;
  }
  if (slot == nullptr) return leaving;  // aborted meanwhile
  const bool read = slot->operation.kind == OpKind::read;
  if (read && reply.status == ReplyStatus::ok && slot->done_bytes != slot->operation.local.size())
    return false;
  if (read) --link.reads_out;
  switch (reply.status) {
    case ReplyStatus::ok:
      finish(*slot, {});
      break;
    case ReplyStatus::access:
      finish(*slot, Error::make(Errc::access, "the target refused key, range or right"));
      break;
    case ReplyStatus::io:
      finish(*slot, Error::make(Errc::io, "the target could not read the source"));
      break;
  }
  return true;
}

}  // namespace farlift::fabric::soft
