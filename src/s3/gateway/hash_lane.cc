#include "s3/gateway/hash_lane.h"

namespace farlift::s3::gateway {

HashLane::HashLane(const WantedDigests& wanted, std::size_t slots) : slots_(slots) {
  if (wanted.md5) md5_.emplace();
  if (wanted.sha256) sha256_.emplace();
  for (const Algorithm algorithm : wanted.checksums) checksums_.emplace_back(algorithm);
}

HashLane::~HashLane() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HashLane::wait_free() {
  const MutexLock lock(mutex_);
  while (pushed_ - hashed_ >= slots_) changed_.wait(mutex_);
}

void HashLane::push(std::span<const std::byte> bytes) {
  const MutexLock lock(mutex_);
  queue_.push_back(bytes);
  ++pushed_;
  // The first waits for a second, or for finish(); with one slot it cannot.
  if (thread_.joinable()) {
    changed_.notify_all();
  } else if (pushed_ > 1 || slots_ == 1) {
    thread_ = std::thread([this] { run(); });
  }
}

void HashLane::run() {
  for (;;) {
    std::span<const std::byte> bytes;
    {
      const MutexLock lock(mutex_);
      while (queue_.empty() && !ending_) changed_.wait(mutex_);
      if (queue_.empty()) return;
      bytes = queue_.front();
      queue_.erase(queue_.begin());
    }
    update(bytes);
    {
      const MutexLock lock(mutex_);
      ++hashed_;
    }
    changed_.notify_all();
  }
}

void HashLane::update(std::span<const std::byte> bytes) {
  if (md5_) md5_->update(bytes);
  if (sha256_) sha256_->update(bytes);
  for (ChecksumStream& one : checksums_) one.update(bytes);
}

BodyDigests HashLane::finish() {
  if (thread_.joinable()) {
    {
      const MutexLock lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  } else {
    const MutexLock lock(mutex_);
    for (const auto bytes : queue_) update(bytes);
    queue_.clear();
  }
  BodyDigests out;
  if (md5_) out.md5 = md5_->finish();
  if (sha256_) out.sha256 = sha256_->finish();
  for (ChecksumStream& one : checksums_) out.checksums.emplace_back(one.algorithm(), one.finish());
  return out;
}

}  // namespace farlift::s3::gateway
