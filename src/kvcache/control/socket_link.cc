#include "kvcache/control/socket_link.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace farlift::kv {
namespace {

constexpr int kKeepaliveIntervalS = 5;
constexpr int kKeepaliveProbes = 3;
constexpr std::size_t kGatherMax = 32;  // frames of one write
constexpr std::size_t kReadChunk = std::size_t{64} << 10;

void tune(int fd, std::uint32_t keepalive_s) noexcept {
  // None of these is worth failing a link for.
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (keepalive_s == 0) return;
  const int idle = static_cast<int>(std::min<std::uint32_t>(keepalive_s, 32767));
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kKeepaliveIntervalS, sizeof kKeepaliveIntervalS);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kKeepaliveProbes, sizeof kKeepaliveProbes);
}

Error socket_error(const char* where) noexcept {
  if (errno == EAGAIN) return Error::make(Errc::again, where);
  return Error::make(Errc::connection_lost, where, errno);
}

std::size_t wire_size(const Frame& frame) noexcept { return kFrameHeaderBytes + frame.body.size(); }

}  // namespace

void SocketWorld::watch(int fd, std::uint64_t id) const {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = id;
  // Fails only for want of memory or watches; the link then ends by its deadline or its user's.
  ::epoll_ctl(poller.get(), EPOLL_CTL_ADD, fd, &event);
}

SocketLink::SocketLink(std::shared_ptr<SocketWorld> world, std::uint64_t id, std::string peer)
    : world_(std::move(world)), id_(id), peer_(std::move(peer)) {
  world_->links.emplace(id_, this);
}

SocketLink::~SocketLink() { close(); }

void SocketLink::close() noexcept {
  if (closed_) return;
  if (state_ == State::open) flush();  // what was sent while held
  closed_ = true;
  state_ = State::ended;
  lift_limit();
  world_->links.erase(id_);
  world_->hot.erase(id_);
  stream_.reset();
  fd_.reset();
  input_ = {};
  inbox_.clear();
  output_.clear();
  inbox_bytes_ = output_bytes_ = 0;
}

void SocketLink::limit_until(Instant deadline) {
  lift_limit();
  deadline_ = deadline;
  world_->deadlines.emplace(deadline_, id_);
}

void SocketLink::lift_limit() {
  if (deadline_ == Instant::max()) return;
  world_->deadlines.erase({deadline_, id_});
  deadline_ = Instant::max();
}

void SocketLink::fail(Error error) {
  if (failure_ || closed_) return;
  ++world_->counters.lost;
  if (error.code == Errc::protocol) ++world_->counters.garbage;
  failure_ = error;
  state_ = State::ended;
  lift_limit();
  stream_.reset();
  fd_.reset();
  input_ = {};
  output_.clear();
  output_bytes_ = 0;
}

// ---- connecting

void SocketLink::start_connecting(std::vector<SocketAddress> addresses) {
  addresses_ = std::move(addresses);
  std::ranges::reverse(addresses_);
  connect_next();
}

void SocketLink::connect_next() {
  int last = 0;
  while (!addresses_.empty()) {
    const SocketAddress address = addresses_.back();
    addresses_.pop_back();
    fd_ = UniqueFd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd_) {
      last = errno;
      continue;
    }
    tune(fd_.get(), world_->options.keepalive_s);
    state_ = State::connecting;
    if (::connect(fd_.get(), address.raw(), address.length) == 0 || errno == EINPROGRESS ||
        errno == EINTR) {
      world_->watch(fd_.get(), id_);
      return;
    }
    last = errno;
  }
  fail(Error::make(Errc::connection_lost, "connect", last));
}

void SocketLink::check_connected() {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error == 0) {
    sockaddr_storage peer{};
    socklen_t peer_length = sizeof peer;
    if (::getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0)
      return opened();
    if (errno == ENOTCONN) return;  // still on its way
    error = errno;
  }
  if (!addresses_.empty()) return connect_next();
  fail(Error::make(Errc::connection_lost, "connect", error));
}

void SocketLink::adopt(UniqueFd fd) {
  accepted_ = true;
  fd_ = std::move(fd);
  tune(fd_.get(), world_->options.keepalive_s);
  world_->watch(fd_.get(), id_);
  opened();
}

void SocketLink::opened() {
  state_ = State::open;
  may_read_ = may_write_ = true;
  const auto& tls = accepted_ ? world_->options.server_tls : world_->options.client_tls;
  if (tls == nullptr) return lift_limit();
  auto stream = accepted_ ? tls->start_server(std::move(fd_), nullptr, world_->clock)
                          : tls->start_client(std::move(fd_), host_, nullptr, world_->clock);
  if (!stream.ok()) return fail(Error::make(Errc::connection_lost, "TLS"));
  stream_ = std::move(stream).value();
}

// ---- moving bytes

bool SocketLink::on_ready(bool readable, bool writable) {
  if (state_ == State::connecting) {
    if (writable || readable) check_connected();
    if (state_ != State::open) return failure_.has_value();
  }
  if (state_ != State::open) return false;
  // TLS may need to write in order to read and the other way round.
  may_read_ = may_read_ || readable || stream_ != nullptr;
  may_write_ = may_write_ || writable || stream_ != nullptr;
  return pump();
}

bool SocketLink::pump() {
  if (state_ != State::open) return failure_.has_value();
  flush();
  const bool news = fill();
  // A failed write is not the end of what the peer sent before.
  if (write_failed_ && !failure_ && !wants_pump())
    fail(Error::make(Errc::connection_lost, "link write"));
  if (wants_pump()) world_->hot.insert(id_);
  return news || failure_.has_value();
}

Result<std::size_t> SocketLink::read_some(std::span<std::byte> into) {
  if (stream_ != nullptr) {
    const iovec area{into.data(), into.size()};
    return stream_->try_read({&area, 1});
  }
  ssize_t got = 0;
  do {
    got = ::recv(fd_.get(), into.data(), into.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got == 0) return Error::make(Errc::connection_lost, "peer ended the link");
  return socket_error("link read");
}

Result<std::size_t> SocketLink::write_some(std::span<const iovec> from) {
  if (stream_ != nullptr) return stream_->try_write(from);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(from.data());
  message.msg_iovlen = from.size();
  ssize_t put = 0;
  do {
    put = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
  } while (put < 0 && errno == EINTR);
  if (put >= 0) return static_cast<std::size_t>(put);
  return socket_error("link write");
}

void SocketLink::flush() {
  while (may_write_ && !output_.empty()) {
    std::array<iovec, kGatherMax> pieces;
    std::size_t count = 0;
    for (Bytes& bytes : output_) {
      const std::size_t skip = count == 0 ? output_sent_ : 0;
      pieces[count++] = {bytes.data() + skip, bytes.size() - skip};
      if (count == kGatherMax) break;
    }
    const auto put = write_some({pieces.data(), count});
    if (!put.ok()) {
      may_write_ = false;
      write_failed_ = put.code() != Errc::again;
      if (write_failed_) world_->hot.insert(id_);  // the next step reads what is left and ends it
      return;
    }
    lift_limit();
    output_bytes_ -= *put;
    output_sent_ += *put;
    while (!output_.empty() && output_sent_ >= output_.front().size()) {
      output_sent_ -= output_.front().size();
      output_.pop_front();
    }
  }
}

// True: a frame or the end of the link is there to be received.
bool SocketLink::fill() {
  std::size_t budget = SocketTransport::kReadAtOnce;
  bool news = false;
  while (may_read_ && budget > 0 && inbox_bytes_ < kInboxMax && !failure_) {
    const std::span<std::byte> into =
        std::span(world_->scratch).first(std::min(kReadChunk, budget));
    const auto got = read_some(into);
    if (!got.ok()) {
      may_read_ = false;
      if (got.code() == Errc::again) break;
      fail(Error::make(Errc::connection_lost, "link read", got.error().os));
      return true;
    }
    lift_limit();
    budget -= *got;
    input_.insert(input_.end(), into.begin(), into.begin() + static_cast<std::ptrdiff_t>(*got));
    news = parse() || news;
  }
  return news;
}

bool SocketLink::parse() {
  ByteView rest(input_);
  bool news = false;
  for (;;) {
    std::size_t consumed = 0;
    auto frame = decode_frame(rest, consumed);
    if (!frame.ok()) {
      fail(Error::make(Errc::protocol, "frame"));
      return true;
    }
    if (!frame->has_value()) break;
    rest = rest.subspan(consumed);
    inbox_bytes_ += wire_size(**frame);
    inbox_.push_back(*std::move(*frame));
    news = true;
  }
  input_.erase(input_.begin(), input_.end() - static_cast<std::ptrdiff_t>(rest.size()));
  if (input_.empty() && input_.capacity() > 2 * kReadChunk) input_ = {};  // one large frame
  return news;
}

// ---- Link

Status SocketLink::send(const Frame& frame) {
  if (closed_) return Error::make(Errc::closed, "link");
  if (failure_) return Error::make(Errc::connection_lost, "link");
  if (frame.body.size() > kFrameBodyBytesMax) return Error::make(Errc::too_large, "frame body");
  if (wire_size(frame) > kQueuedBytesMax - output_bytes_)
    return Error::make(Errc::exhausted, "link queue");
  if (world_->held && output_.empty()) world_->unsent.push_back(id_);
  output_.push_back(encode_frame(frame));
  output_bytes_ += output_.back().size();
  if (state_ == State::open && !world_->held) flush();
  return {};
}

Result<Frame> SocketLink::receive() {
  if (closed_) return Error::make(Errc::closed, "link");
  if (inbox_.empty() && state_ == State::open && (may_read_ || write_failed_)) pump();
  if (!inbox_.empty()) {
    Frame frame = std::move(inbox_.front());
    inbox_.pop_front();
    inbox_bytes_ -= wire_size(frame);
    return frame;
  }
  if (failure_) return *failure_;
  return Error::make(world_->open ? Errc::again : Errc::connection_lost, "link");
}

}  // namespace farlift::kv
