#include "s3/volume/control_connection.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <utility>

namespace farlift::s3::volume {

Result<std::shared_ptr<Control::Connection>> Control::Connection::adopt(
    UniqueFd fd, std::uint64_t id, const Clock& clock,
    std::shared_ptr<const net::WakeSignal> stop) {
  UniqueFd again(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!again) return Error::from_errno("control connection");
  TRY_ASSIGN(auto in, net::adopt_stream(std::move(fd), clock, stop));
  TRY_ASSIGN(auto out, net::adopt_stream(std::move(again), clock, std::move(stop)));
  return std::shared_ptr<Connection>(new Connection(std::move(in), std::move(out), id, clock));
}

Result<std::string> Control::Connection::read_line() {
  for (;;) {
    const std::size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      return line;
    }
    if (buffer_.size() > kControlLineMax) return Error::make(Errc::protocol, "control line");
    std::array<std::byte, 4096> piece;
    TRY_ASSIGN(const std::size_t got, in_->read_some(piece, net::Deadline::never()));
    buffer_.append(reinterpret_cast<const char*>(piece.data()), got);
  }
}

void Control::Connection::write(std::string_view line) {
  MutexLock lock(write_mutex_);
  const Status written = out_->write_all(std::as_bytes(std::span(line.data(), line.size())),
                                         net::Deadline::after(clock_, kWritePatience));
  // Half a line may be out: nothing can follow it.
  if (!written.ok()) cut();
}

void Control::Connection::cut() noexcept {
  in_->cut_off();
  out_->cut_off();
  MutexLock lock(mutex_);
  cut_ = true;
  changed_.notify_all();
}

bool Control::Connection::begin() {
  MutexLock lock(mutex_);
  while (outstanding_ >= kControlOutstandingMax && !cut_) changed_.wait(mutex_);
  if (cut_) return false;
  ++outstanding_;
  return true;
}

void Control::Connection::end() {
  MutexLock lock(mutex_);
  --outstanding_;
  changed_.notify_all();
}

}  // namespace farlift::s3::volume
