#include "s3/gateway/body_writer.h"

#include "core/base/log.h"
#include "core/digest/crc32c.h"

#include <algorithm>

namespace farlift::s3::gateway {

namespace {

constexpr int kBeginTries = 3;

}  // namespace

S3Result<StoredBody> BodyWriter::write(const Source& source, std::optional<std::uint64_t> length,
                                       const WantedDigests& wanted) {
  StoredBody out;
  // Without a length a slot is a whole chunk, since a volume is told the length first.
  Buffers buffers{2, kChunkBytes, {}};
  if (length) {
    buffers.slot_bytes = std::clamp<std::uint64_t>(*length, 1, kSlotBytes);
    buffers.slots = std::min<std::uint64_t>(kSlots, *length / buffers.slot_bytes + 1);
  }
  buffers.memory.reset(new std::byte[buffers.slots * buffers.slot_bytes]);
  {
    HashLane lane(wanted, buffers.slots);
    const S3Status status = run(source, length, buffers, lane);
    if (!status.ok()) {
      fail_all();
      return status.error();
    }
    out.digests = lane.finish();
  }
  services_.cluster.give_back(std::move(spare_));
  out.chunks = std::move(chunks_);
  out.size = size_;
  return out;
}

S3Status BodyWriter::run(const Source& source, std::optional<std::uint64_t> length,
                         const Buffers& buffers, HashLane& lane) {
  const std::size_t slot_bytes = buffers.slot_bytes;
  bool ended = false;
  for (std::size_t turn = 0; !ended; ++turn) {
    lane.wait_free();
    const std::span<std::byte> slot(buffers.memory.get() + turn % buffers.slots * slot_bytes,
                                    slot_bytes);
    std::size_t got = 0;
    while (got < slot.size()) {
      TRY_ASSIGN(const std::size_t count, source(slot.subspan(got)));
      ended = count == 0;
      if (ended) break;
      got += count;
    }
    if (got == 0) break;
    lane.push(slot.first(got));
    std::span<const std::byte> rest = slot.first(got);
    while (!rest.empty()) {
      if (chunk_left_ == 0) {
        const std::uint64_t left = length ? *length - size_ : rest.size();
        TRY(begin_chunk(std::min<std::uint64_t>(left, kChunkBytes)));
      }
      const auto now = rest.first(std::min<std::uint64_t>(rest.size(), chunk_left_));
      TRY(take(now));
      rest = rest.subspan(now.size());
    }
  }
  while (!pending_.empty()) TRY(end_oldest());
  return {};
}

S3Status BodyWriter::begin_chunk(std::uint64_t length) {
  while (pending_.size() >= services_.options.chunks_in_flight) TRY(end_oldest());
  for (int tries = 1;; ++tries) {
    if (spare_.empty()) {
      const Result<std::vector<Place>> more = services_.cluster.assign(1);
      if (!more.ok()) return s3_error_of(more.error());
      spare_ = *more;
    }
    places_.push_back(std::move(spare_.back()));
    spare_.pop_back();
    auto upload = services_.volumes.upload(places_.back(), length);
    if (upload.ok()) {
      chunks_.push_back({size_, length, places_.back().fid});
      pending_.push_back({std::move(upload).value(), Crc32c(), length});
      chunk_left_ = length;
      return {};
    }
    logf(LogLevel::warning, "gateway: %s takes no needle: %s", places_.back().host.c_str(),
         upload.error().describe().c_str());
    services_.store.discard(std::span(&places_.back().fid, 1), true).ignore();  // or by fail_all()
    if (tries == kBeginTries) return s3_error_of(upload.error());
    places_.pop_back();
  }
}

S3Status BodyWriter::take(std::span<const std::byte> bytes) {
  Pending& now = pending_.back();
  now.crc = digest::crc32c_extend(now.crc, bytes);
  const Status written = now.upload->write(bytes);
  if (!written.ok()) return s3_error_of(written.error());
  chunk_left_ -= bytes.size();
  size_ += bytes.size();
  return {};
}

S3Status BodyWriter::end_oldest() {
  Pending oldest = std::move(pending_.front());
  pending_.pop_front();
  const Result<Crc32c> stored = oldest.upload->finish();
  if (!stored.ok()) {
    logf(LogLevel::warning, "gateway: a needle was not stored: %s",
         stored.error().describe().c_str());
    return s3_error_of(stored.error());
  }
  if (*stored != oldest.crc) {
    log(LogLevel::error, "gateway: a volume stored other bytes than were sent");
    return refuse(S3Code::internal_error);
  }
  return {};
}

void BodyWriter::fail_all() {
  pending_.clear();  // ends the connections
  std::vector<std::string> fids;
  for (const Place& place : places_) fids.push_back(place.fid);
  const Status discarded = services_.store.discard(fids, true);
  if (!discarded.ok()) {
    logf(LogLevel::error, "gateway: %zu fids stay reserved until the next start: %s", fids.size(),
         discarded.error().describe().c_str());
  }
  services_.cluster.give_back(std::move(spare_));
}

void BodyWriter::discard(const StoredBody& body) {
  std::vector<std::string> fids;
  for (const catalog::Chunk& chunk : body.chunks) fids.push_back(chunk.fid);
  services_.store.discard(fids, false).ignore();  // else the next process does it
}

}  // namespace farlift::s3::gateway
