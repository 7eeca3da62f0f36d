#include "core/fabric/soft/host_reader.h"

#include <algorithm>
#include <pthread.h>

namespace farlift::fabric::soft {
namespace {

iovec remote_part(std::uint64_t addr, std::size_t length) noexcept {
  return {reinterpret_cast<void*>(addr),
          length};  // NOLINT(performance-no-int-to-ptr): an address of theirs
}

}  // namespace

Result<EntryImage> HostTarget::entry_of(RKey key) const {
  // Twice in one call: an entry that is being rewritten shows itself by the difference.
  EntryImage once;
  EntryImage again;
  const iovec local[2] = {{&once, sizeof once}, {&again, sizeof again}};
  const iovec remote[2] = {remote_part(entry_addr(key), sizeof once),
                           remote_part(entry_addr(key), sizeof again)};
  TRY(process.read(local, remote));
  if (once != again || !once.open() || once.key != key.raw())
    return Error::make(Errc::access, "key");
  return once;
}

HostReader::~HostReader() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    work_.notify_all();
  }
  if (helper_.joinable()) helper_.join();
}

void HostReader::add(std::unique_ptr<Job> job) {
  const bool first_large = job->to.size() >= kParallelBytesMin && !helper_.joinable();
  bool large = false;
  {
    MutexLock lock(mutex_);
    waiting_bytes_ += job->to.size();
    large = waiting_bytes_ >= kParallelBytesMin;
    jobs_.push_back(std::move(job));
    if (large) work_.notify_one();
  }
  if (first_large) {
    helper_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "soft-reader");
      help();
    });
  }
}

HostReader::Job* HostReader::next_piece(std::uint64_t& at, std::uint64_t& length) {
  for (const auto& job : jobs_) {
    if (job->next_ >= job->to.size()) continue;
    at = job->next_;
    length = std::min<std::uint64_t>(job->to.size() - at, kPieceBytesMax);
    job->next_ += length;
    ++job->pieces_;
    waiting_bytes_ -= length;
    return job.get();
  }
  return nullptr;
}

// True when the job is done with this piece.
bool HostReader::end_piece(Job* job, const Status& status) {
  --job->pieces_;
  if (!status.ok() && job->status.ok()) {
    job->status = status;
    waiting_bytes_ -= job->to.size() - job->next_;
    job->next_ = job->to.size();
  }
  piece_ended_.notify_all();
  if (job->pieces_ > 0 || job->next_ < job->to.size()) return false;
  const auto found =
      std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& j) { return j.get() == job; });
  done_.push_back(std::move(*found));
  jobs_.erase(found);
  return true;
}

std::uint64_t HostReader::step() {
  std::uint64_t at = 0;
  std::uint64_t length = 0;
  Job* job = nullptr;
  {
    MutexLock lock(mutex_);
    job = next_piece(at, length);
  }
  if (job == nullptr) return 0;
  const Status status = copy(*job, at, length);
  MutexLock lock(mutex_);
  end_piece(job, status);
  return length;
}

void HostReader::help() {
  for (;;) {
    std::uint64_t at = 0;
    std::uint64_t length = 0;
    Job* job = nullptr;
    {
      MutexLock lock(mutex_);
      while (!stop_ && (job = next_piece(at, length)) == nullptr) work_.wait(mutex_);
      if (job == nullptr) return;
    }
    const Status status = copy(*job, at, length);
    bool done = false;
    {
      MutexLock lock(mutex_);
      done = end_piece(job, status);
    }
    if (done) on_done_();
  }
}

std::vector<std::unique_ptr<HostReader::Job>> HostReader::take_done() {
  MutexLock lock(mutex_);
  return std::exchange(done_, {});
}

bool HostReader::pending() const {
  MutexLock lock(mutex_);
  return waiting_bytes_ > 0 || !done_.empty();
}

void HostReader::cancel(const void* group) {
  MutexLock lock(mutex_);
  for (const auto& job : jobs_) {
    if (job->group != group) continue;
    waiting_bytes_ -= job->to.size() - job->next_;
    job->next_ = job->to.size();
  }
  const auto busy = [&]() REQUIRES(mutex_) {
    return std::any_of(jobs_.begin(), jobs_.end(),
                       [&](const auto& j) { return j->group == group && j->pieces_ > 0; });
  };
  while (busy()) piece_ended_.wait(mutex_);
  std::erase_if(jobs_, [&](const auto& j) { return j->group == group; });
  std::erase_if(done_, [&](const auto& j) { return j->group == group; });
}

Status HostReader::copy(const Job& job, std::uint64_t at, std::uint64_t length) {
  const RKey key(job.entry.key);
  // The entry may be a cached one: nothing is copied under a key that is closed by now. What closes
  // from here on is seen by the two looks around the copy.
  TRY_ASSIGN(const EntryImage now, job.target->entry_of(key));
  if (now != job.entry) return Error::make(Errc::access, "registration closed");
  const std::uint64_t entry_addr = job.target->entry_addr(key);
  EntryImage before;
  EntryImage after;
  const iovec local[3] = {
      {&before, sizeof before}, {job.to.data() + at, length}, {&after, sizeof after}};
  const iovec remote[3] = {remote_part(entry_addr, sizeof before),
                           remote_part(job.from + at, length),
                           remote_part(entry_addr, sizeof after)};
  const Status copied = job.target->process.read(local, remote);
  if (copied.ok()) {
    if (before == job.entry && after == job.entry) return {};
    return Error::make(Errc::access, "registration closed");
  }
  // Memory that went away together with its registration faults: then that is the reason to tell.
  if (copied.code() == Errc::io) {
    const auto still = job.target->entry_of(key);
    if (!still.ok() && still.code() == Errc::access) return still.error();
  }
  return copied;
}

}  // namespace farlift::fabric::soft
