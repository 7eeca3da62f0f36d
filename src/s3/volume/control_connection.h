// One connection of the control port: lines in on one thread, replies out from any.
//
// Invariants: replies go out whole and one at a time; a connection that cannot be written to is
// cut. Threads:    read_line() on one; the rest from any. Errors:     read_line: those of the
// stream; protocol: a line is too long.
#pragma once

#include "core/base/mutex.h"
#include "core/net/stream.h"
#include "s3/volume/control.h"

#include <atomic>
#include <memory>
#include <string>

namespace farlift::s3::volume {

class Control::Connection {
 public:
  static constexpr Duration kWritePatience = std::chrono::seconds(5);

  static Result<std::shared_ptr<Connection>> adopt(UniqueFd fd, std::uint64_t id,
                                                   const Clock& clock,
                                                   std::shared_ptr<const net::WakeSignal> stop);

  std::uint64_t id() const noexcept { return id_; }
  Result<std::string> read_line();
  void write(std::string_view line);
  void cut() noexcept;

  // Admits one more request, waiting while too many are outstanding; false once the connection was
  // cut.
  bool begin();
  void end();

  void finished() noexcept { done_.store(true, std::memory_order_release); }
  bool is_finished() const noexcept { return done_.load(std::memory_order_acquire); }

 private:
  Connection(std::unique_ptr<net::Stream> in, std::unique_ptr<net::Stream> out, std::uint64_t id,
             const Clock& clock)
      : in_(std::move(in)), out_(std::move(out)), id_(id), clock_(clock) {}

  // The same socket twice: a Stream belongs to one thread at a time.
  const std::unique_ptr<net::Stream> in_;
  const std::unique_ptr<net::Stream> out_;
  const std::uint64_t id_;
  const Clock& clock_;
  std::string buffer_;  // the reader's
  std::atomic<bool> done_{false};
  Mutex write_mutex_;
  Mutex mutex_;
  CondVar changed_;
  std::uint32_t outstanding_ GUARDED_BY(mutex_) = 0;
  bool cut_ GUARDED_BY(mutex_) = false;
};

}  // namespace farlift::s3::volume
