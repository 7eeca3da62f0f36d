#include "kvcache/control/valkey_lane.h"

#include "kvcache/control/valkey_directory.h"

#include <algorithm>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

namespace farlift::kv {
namespace {

constexpr int kSendBufferBytes = 1 << 20;  // asked for; the kernel may give less
constexpr std::size_t kBatchBytesMin = 2048;
constexpr std::size_t kBatchCommandsMax = 512;

bool writable(int fd) noexcept {
  pollfd poll{fd, POLLOUT, 0};
  return ::poll(&poll, 1, 0) == 1;
}

}  // namespace

void ValkeyLane::open(std::unique_ptr<resp::Connection> connection) {
  connection_ = std::move(connection);
  state = State::up;
  backoff = {};
  const int fd = connection_->fd();
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof kSendBufferBytes);
  int size = 0;
  socklen_t length = sizeof size;
  if (::getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &length) != 0) size = 0;
  // The kernel calls a socket writable while at least a third of its buffer is free, bookkeeping
  // included; an eighth in payload fits there.
  batch_bytes_max_ = std::max(static_cast<std::size_t>(std::max(size, 0)) / 8, kBatchBytesMin);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id_;
  ::epoll_ctl(poller_, EPOLL_CTL_ADD, fd, &event);
  armed_writable_ = false;
}

void ValkeyLane::drop() {
  connection_.reset();
  state = State::down;
}

std::vector<ValkeyCommandPtr> ValkeyLane::take_lost() {
  std::vector<ValkeyCommandPtr> lost;
  for (Sent& sent : sent_) {
    if (sent.command != nullptr) lost.push_back(std::move(sent.command));
  }
  sent_.clear();
  return lost;
}

std::vector<ValkeyCommandPtr> ValkeyLane::take_waiting() {
  std::vector<ValkeyCommandPtr> all(std::make_move_iterator(waiting_.begin()),
                                    std::make_move_iterator(waiting_.end()));
  waiting_.clear();
  return all;
}

void ValkeyLane::take_expired(Instant now, std::vector<ValkeyCommandPtr>& waiting,
                              std::vector<ValkeyCommandPtr>& sent) {
  for (Sent& one : sent_) {
    if (one.command != nullptr && one.command->deadline <= now)
      sent.push_back(std::move(one.command));
  }
  std::deque<ValkeyCommandPtr> kept;
  for (ValkeyCommandPtr& command : waiting_) {
    (command->deadline <= now ? waiting.emplace_back() : kept.emplace_back()) = std::move(command);
  }
  waiting_ = std::move(kept);
}

Instant ValkeyLane::next_deadline() const {
  Instant next = Instant::max();
  for (const Sent& sent : sent_) {
    if (sent.command != nullptr) next = std::min(next, sent.command->deadline);
  }
  for (const ValkeyCommandPtr& command : waiting_) next = std::min(next, command->deadline);
  return next;
}

Instant ValkeyLane::oldest_sent() const {
  return sent_.empty() ? Instant::max() : sent_.front().at;
}

void ValkeyLane::arm(bool want_writable) {
  if (want_writable == armed_writable_) return;
  armed_writable_ = want_writable;
  epoll_event event{};
  event.events = EPOLLIN;
  if (want_writable) event.events |= EPOLLOUT;
  event.data.u64 = id_;
  ::epoll_ctl(poller_, EPOLL_CTL_MOD, connection_->fd(), &event);
}

Status ValkeyLane::flush() {
  static constexpr std::string_view kAsking = "ASKING";
  while (state == State::up && !waiting_.empty()) {
    if (sent_.size() >= ValkeyDirectory::kInFlightMax) break;  // replies will make room
    if (!writable(connection_->fd())) {
      arm(true);
      return {};
    }
    std::vector<std::vector<std::string_view>> words;
    std::size_t bytes = 0;
    std::size_t count = 0;
    while (count < std::min(waiting_.size(), kBatchCommandsMax)) {
      const ValkeyCommand& command = *waiting_[count];
      const std::size_t size = command.bytes();
      if (count > 0 && bytes + size > batch_bytes_max_) break;
      bytes += size;
      if (command.asking) words.push_back({kAsking});
      words.emplace_back(command.words.begin(), command.words.end());
      ++count;
    }
    std::vector<resp::Arguments> batch(words.begin(), words.end());
    const Instant now = clock_.now();
    for (std::size_t i = 0; i < count; ++i) {
      if (waiting_.front()->asking) sent_.push_back({nullptr, now});
      sent_.push_back({std::move(waiting_.front()), now});
      waiting_.pop_front();
    }
    TRY(connection_->send_many(batch));
  }
  if (state == State::up) arm(false);
  return {};
}

Status ValkeyLane::collect(const OnReply& on_reply) {
  while (state == State::up) {
    TRY_ASSIGN(std::optional<resp::Value> value, connection_->try_receive());
    if (!value) return {};
    if (sent_.empty()) return Error::make(Errc::protocol, "reply without a command");
    ValkeyCommandPtr command = std::move(sent_.front().command);
    sent_.pop_front();
    if (command != nullptr) on_reply(std::move(command), *std::move(value));
  }
  return {};
}

}  // namespace farlift::kv
