#include "core/fabric/soft/target.h"

#include <algorithm>
#include <cstring>

namespace farlift::fabric::soft {

void SoftTarget::add_pull(const LinkRef& link, const Request& request) {
  auto job = std::make_shared<Pull>();
  job->link = link;
  job->request = request;
  if (request.kind == RequestKind::pull_source)
    job->mapped = link->sources.find(request.source, request.length.raw(), job->keep);
  const std::uint64_t before = pieces_waiting_.fetch_add(request.length.raw());
  {
    MutexLock lock(jobs_mutex_);
    jobs_.push_back(std::move(job));
    ++link->pulls;
  }
  if (before < kParallelPullBytesMin && before + request.length.raw() >= kParallelPullBytesMin)
    wake_follower();
}

// Copies one piece of the first pull (of `of_link`, or of any link); false when there is none to
// hand out.
std::uint64_t SoftTarget::pull_piece(TargetLink* of_link) {
  if (pieces_waiting_.load(std::memory_order_relaxed) == 0) return 0;
  std::shared_ptr<Pull> job;
  std::uint64_t from = 0;
  std::uint64_t length = 0;
  {
    MutexLock lock(jobs_mutex_);
    const auto found =
        std::find_if(jobs_.begin(), jobs_.end(), [&](const std::shared_ptr<Pull>& j) {
          return j->next < j->request.length.raw() &&
                 (of_link == nullptr || j->link.get() == of_link);
        });
    if (found == jobs_.end()) return 0;
    job = *found;
    from = job->next;
    length = std::min(job->request.length.raw() - from,
                      job->mapped.empty() ? kPullPieceBytesMax : kMappedPieceBytesMax);
    job->next += length;
    ++job->pieces;
    ++job->link->pieces;
  }
  pieces_waiting_ -= length;
  TargetLink& link = *job->link;
  const ReplyStatus status = copy_piece(link, *job, from, length);
  bool done = false;
  bool finish = false;
  {
    MutexLock lock(jobs_mutex_);
    --job->pieces;
    --link.pieces;
    if (status != ReplyStatus::ok && job->status == ReplyStatus::ok) {
      job->status = status;
      pieces_waiting_ -= job->request.length.raw() - job->next;
      job->next = job->request.length.raw();
    }
    done = job->next >= job->request.length.raw() && job->pieces == 0;
    if (done) {
      std::erase(jobs_, job);
      --link.pulls;
    }
    finish = link.ending && link.pieces == 0;
  }
  if (finish) {
    finish_link(job->link);
  } else if (done) {
    reply(link, job->request.id, ReplyKind::done, job->status);
    MutexLock lock(link.mutex);
    flush_locked(link);
    if (link.want_out && !link.claimed && !link.ended) arm(link);
  }
  return length;
}

ReplyStatus SoftTarget::copy_piece(const TargetLink& link, const Pull& pull, std::uint64_t from,
                                   std::uint64_t length) {
  const Request& request = pull.request;
  auto piece =
      domain_.registry().begin(request.key, request.addr + Offset(from), Length(length), true);
  if (!piece.ok()) return ReplyStatus::access;
  std::byte* const to = piece->bytes().data();
  bool copied = false;
  if (pull.mapped.empty()) {
    copied = link.process.read(to, request.source + from, length).ok();
  } else {
    // A peer that died has lent nothing any more, though its file still can be read.
    std::memcpy(to, pull.mapped.data() + from, length);
    copied = link.process.alive();
    domain_.counters().bytes_mapped.add(length);
  }
  if (!copied) {
    domain_.counters().pulls_failed.add();
    return ReplyStatus::io;
  }
  piece->landed(length);
  domain_.counters().bytes_landed.add(length);
  return ReplyStatus::ok;
}

}  // namespace farlift::fabric::soft
