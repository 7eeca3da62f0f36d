#include "core/fabric/soft/host_reader.h"

#include "core/digest/crc32c.h"

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
    if (job->want_crc)
      job->crcs_.resize((job->to.size() + job->piece_bytes() - 1) / job->piece_bytes());
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

HostReader::Piece HostReader::next_piece() {
  for (const auto& job : jobs_) {
    if (job->next_ >= job->to.size()) continue;
    Piece piece;
    piece.job = job.get();
    piece.at = job->next_;
    piece.length = std::min<std::uint64_t>(job->to.size() - piece.at, job->piece_bytes());
    job->next_ += piece.length;
    ++job->pieces_;
    waiting_bytes_ -= piece.length;
    return piece;
  }
  return {};
}

Status HostReader::take(Piece& piece) {
  TRY(copy(*piece.job, piece.at, piece.length));
  if (piece.job->want_crc)
    piece.crc = digest::crc32c(piece.job->to.subspan(piece.at, piece.length));
  return {};
}

// True when the job is done with this piece.
bool HostReader::end_piece(const Piece& piece, const Status& status) {
  Job* const job = piece.job;
  --job->pieces_;
  if (!status.ok() && job->status.ok()) {
    job->status = status;
    waiting_bytes_ -= job->to.size() - job->next_;
    job->next_ = job->to.size();
  }
  if (job->want_crc) job->crcs_[piece.at / job->piece_bytes()] = piece.crc;
  piece_ended_.notify_all();
  if (job->pieces_ > 0 || job->next_ < job->to.size()) return false;
  if (job->want_crc && job->status.ok()) {
    digest::Crc32cStream whole;
    std::uint64_t left = job->to.size();
    for (const Crc32c crc : job->crcs_) {
      const std::uint64_t now = std::min(left, job->piece_bytes());
      whole.append(crc, Length(now));
      left -= now;
    }
    job->crc = whole.value();
  }
  const auto found =
      std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& j) { return j.get() == job; });
  done_.push_back(std::move(*found));
  jobs_.erase(found);
  return true;
}

std::uint64_t HostReader::step() {
  Piece piece;
  {
    MutexLock lock(mutex_);
    piece = next_piece();
  }
  if (piece.job == nullptr) return 0;
  const Status status = take(piece);
  MutexLock lock(mutex_);
  end_piece(piece, status);
  return piece.length;
}

void HostReader::help() {
  for (;;) {
    Piece piece;
    {
      MutexLock lock(mutex_);
      while (!stop_ && (piece = next_piece()).job == nullptr) work_.wait(mutex_);
      if (piece.job == nullptr) return;
    }
    const Status status = take(piece);
    bool done = false;
    {
      MutexLock lock(mutex_);
      done = end_piece(piece, status);
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
