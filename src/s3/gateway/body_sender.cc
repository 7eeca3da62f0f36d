#include "s3/gateway/body_sender.h"

#include "core/base/log.h"

#include <algorithm>

namespace farlift::s3::gateway {

BodySender::BodySender(Services& services, const std::vector<catalog::Chunk>& chunks,
                       std::uint64_t from, std::uint64_t length)
    : services_(services) {
  const std::uint64_t end = from + length;
  for (const catalog::Chunk& chunk : chunks) {
    const std::uint64_t first = std::max(from, chunk.offset);
    const std::uint64_t last = std::min(end, chunk.offset + chunk.size);
    if (first >= last) continue;
    Piece& piece = pieces_.emplace_back();
    piece.fid = chunk.fid;
    piece.offset = first - chunk.offset;
    piece.length = last - first;
  }
}

// Sends the request for a piece to the next holder.
S3Status BodySender::open(Piece& piece) {
  if (piece.holders.empty()) {
    Result<std::vector<Place>> holders = services_.cluster.lookup(piece.fid);
    if (!holders.ok()) return s3_error_of(holders.error());
    piece.holders = std::move(holders).value();
  }
  for (;;) {
    if (piece.tried == piece.holders.size()) return refuse(S3Code::service_unavailable);
    const Place& place = piece.holders[piece.tried++];
    auto download = services_.volumes.download(place, piece.offset, piece.length);
    if (download.ok()) {
      piece.download = std::move(download).value();
      return {};
    }
    logf(LogLevel::warning, "gateway: %s cannot be asked for %s: %s", place.host.c_str(),
         piece.fid.c_str(), download.error().describe().c_str());
  }
}

S3Status BodySender::ahead() {
  if (at_ + 1 < pieces_.size() && pieces_[at_ + 1].download == nullptr)
    return open(pieces_[at_ + 1]);
  return {};
}

S3Status BodySender::begin() {
  if (at_ == pieces_.size()) return {};
  Piece& piece = pieces_[at_];
  for (;;) {
    if (piece.download == nullptr) TRY(open(piece));
    const Status begun = piece.download->begin();
    if (begun.ok()) break;
    logf(LogLevel::warning, "gateway: %s could not be read: %s", piece.fid.c_str(),
         begun.error().describe().c_str());
    piece.download.reset();
    if (piece.tried == piece.holders.size()) return refuse(S3Code::service_unavailable);
  }
  begun_ = true;
  return ahead();
}

S3Result<std::size_t> BodySender::read(std::span<std::byte> into) {
  for (;;) {
    if (at_ == pieces_.size()) return std::size_t{0};
    if (!begun_) TRY(begin());
    Piece& piece = pieces_[at_];
    if (piece.length == 0) {
      piece.download.reset();  // its connection may be used again
      ++at_;
      begun_ = false;
      continue;
    }
    const Result<std::size_t> got = piece.download->read(
        into.first(static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), piece.length))));
    if (got.ok() && *got > 0) {
      piece.offset += *got;
      piece.length -= *got;
      // The end of the body is read, too, so that the connection is at its end.
      if (piece.length == 0) {
        std::byte one;
        static_cast<void>(piece.download->read(std::span(&one, 1)).ok());
      }
      return *got;
    }
    // It broke off: on from here, from another holder.
    piece.download.reset();
    begun_ = false;
    if (piece.tried == piece.holders.size()) return refuse(S3Code::service_unavailable);
  }
}

}  // namespace farlift::s3::gateway
