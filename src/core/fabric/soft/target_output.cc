#include "core/fabric/soft/target.h"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>

namespace farlift::fabric::soft {
namespace {

constexpr std::uint64_t kSendPieceBytesMax =
    256u << 10;  // longer sends let the kernel's buffers fall out of the cache
const std::array<std::byte, 64 << 10> kZeros{};

}  // namespace

void SoftTarget::append(TargetLink& link, const Reply& reply) {
  std::array<std::byte, kReplyBytes> bytes;
  encode(reply, bytes);
  link.out.insert(link.out.end(), bytes.begin(), bytes.end());
}

// Queues a reply; flush() sends it.
void SoftTarget::reply(TargetLink& link, std::uint64_t id, ReplyKind kind, ReplyStatus status) {
  if (kind == ReplyKind::done) {
    if (status == ReplyStatus::ok) domain_.counters().operations_served.add();
    if (status == ReplyStatus::access) domain_.counters().operations_refused.add();
  }
  MutexLock lock(link.mutex);
  if (!link.ended) append(link, Reply{kind, status, id, Length()});
}

void SoftTarget::flush(TargetLink& link) {
  MutexLock lock(link.mutex);
  flush_locked(link);
}

void SoftTarget::flush_locked(TargetLink& link) {
  link.want_out = false;
  while (!link.ended && !closed_.load(std::memory_order_relaxed)) {
    const bool in_frame = link.frame_header_left > 0 || link.frame_left > 0;
    if (!in_frame && link.out_sent < link.out.size()) {
      if (!send_headers(link)) return;
    } else if (in_frame || !link.reads.empty()) {
      if (!send_frame(link)) return;
    } else {
      return;
    }
  }
}

// False when the socket is full or broken; the receiving side sees the latter.
bool SoftTarget::send_headers(TargetLink& link) {
  const ssize_t n = ::send(link.fd.get(), link.out.data() + link.out_sent,
                           link.out.size() - link.out_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0) {
    link.want_out = errno == EAGAIN || errno == EINTR;
    return false;
  }
  link.out_sent += static_cast<std::size_t>(n);
  if (link.out_sent == link.out.size()) {
    link.out.clear();
    link.out_sent = 0;
  }
  return true;
}

// Sends a part of the first read: from its registration, under the gate, for the length of one
// send.
bool SoftTarget::send_frame(TargetLink& link) {
  TargetLink::Read& read = link.reads.front();
  if (link.frame_header_left == 0 && link.frame_left == 0) {
    link.frame_left = std::min(read.remaining, kReadFrameBytesMax);
    encode(Reply{ReplyKind::data, ReplyStatus::ok, read.request.id, Length(link.frame_left)},
           link.frame_header);
    link.frame_header_left = kReplyBytes;
    link.frame_void = false;
  }
  const std::uint64_t want = std::min(link.frame_left, kSendPieceBytesMax);
  ssize_t n = 0;
  {
    auto piece = domain_.registry().begin(read.request.key, read.request.addr, Length(want), false);
    if (!piece.ok()) link.frame_void = true;
    iovec parts[2] = {
        {link.frame_header.data() + (kReplyBytes - link.frame_header_left), link.frame_header_left},
        {piece.ok() ? piece->bytes().data() : const_cast<std::byte*>(kZeros.data()),
         piece.ok() ? want : std::min<std::uint64_t>(want, kZeros.size())}};
    if (link.frame_void) {
      // The reader was promised this many bytes; it is told below that they are none.
      parts[1] = {const_cast<std::byte*>(kZeros.data()),
                  std::min<std::uint64_t>(want, kZeros.size())};
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    n = ::sendmsg(link.fd.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (n < 0) {
    link.want_out = errno == EAGAIN || errno == EINTR;
    return false;
  }
  auto sent = static_cast<std::uint64_t>(n);
  const std::uint64_t of_header = std::min<std::uint64_t>(sent, link.frame_header_left);
  link.frame_header_left -= of_header;
  sent -= of_header;
  link.frame_left -= sent;
  read.remaining -= sent;
  read.request.addr = read.request.addr + Offset(sent);
  domain_.counters().bytes_sent.add(sent);
  if (link.frame_left == 0 && link.frame_header_left == 0 &&
      (read.remaining == 0 || link.frame_void)) {
    const ReplyStatus status = link.frame_void ? ReplyStatus::access : ReplyStatus::ok;
    (status == ReplyStatus::ok ? domain_.counters().operations_served
                               : domain_.counters().operations_refused)
        .add();
    append(link, Reply{ReplyKind::done, status, read.request.id, Length()});
    link.reads.pop_front();
  }
  return true;
}

}  // namespace farlift::fabric::soft
