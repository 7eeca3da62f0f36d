#include "kvcache/node/worker.h"

#include "core/base/assert.h"
#include "core/digest/crc32c.h"
#include "core/transfer/transfer.h"

#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace farlift::kv::node {

Worker::Worker(std::uint32_t threads) : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  ASSERT(event_);
  if (threads > 0) pool_ = std::make_unique<transfer::CrcPool>(threads);
}

Worker::~Worker() = default;

void Worker::hash(std::span<const std::byte> bytes, Done done) {
  run([bytes] { return digest::crc32c(bytes); }, bytes.size(), std::move(done));
}

void Worker::copy(std::span<std::byte> to, std::span<const std::byte> from, Done done) {
  ASSERT(to.size() == from.size());
  run([to, from] { return digest::crc32c_copy(to, from); }, to.size(), std::move(done));
}

void Worker::run(std::function<Crc32c()> work, std::size_t bytes, Done done) {
  if (pool_ == nullptr || bytes <= transfer::kInlineHashMax.raw()) {
    return finish(work(), std::move(done));
  }
  auto shared =
      std::make_shared<std::pair<std::function<Crc32c()>, Done>>(std::move(work), std::move(done));
  const bool accepted =
      pool_->try_submit([this, shared] { finish(shared->first(), std::move(shared->second)); });
  if (!accepted) finish(shared->first(), std::move(shared->second));
}

void Worker::finish(Crc32c crc, Done done) {
  {
    MutexLock lock(mutex_);
    finished_.push_back({crc, std::move(done)});
  }
  const std::uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof one);
}

bool Worker::step() {
  std::vector<Finished> finished;
  {
    MutexLock lock(mutex_);
    finished.swap(finished_);
  }
  if (finished.empty()) return false;
  std::uint64_t count = 0;
  (void)!::read(event_.get(), &count, sizeof count);
  for (Finished& one : finished) one.done(one.crc);
  {
    MutexLock lock(mutex_);
    if (finished_.empty()) return true;
  }
  const std::uint64_t one = 1;  // what came in between must still wake the loop
  (void)!::write(event_.get(), &one, sizeof one);
  return true;
}

}  // namespace farlift::kv::node
