// BodySender: bytes of an object from its needles to whoever takes them.
//
// Invariants: the first byte is in hand before begin() returns, so that what cannot be read is
// refused with a
//             status; a needle is read from another holder, from where it stopped, when one fails.
//             Exactly the bytes asked for, or a failure.
// Threads:    one. Errors: service_unavailable, internal_error.
#pragma once

#include "s3/gateway/services.h"

#include <memory>
#include <optional>
#include <vector>

namespace farlift::s3::gateway {

class BodySender {
 public:
  // Bytes [from, from + length) of what `chunks` hold. They must cover it (ineligible objects do
  // not exist here: publishing checks it).
  BodySender(Services& services, const std::vector<catalog::Chunk>& chunks, std::uint64_t from,
             std::uint64_t length);
  S3Status begin();
  // 0 at the end.
  S3Result<std::size_t> read(std::span<std::byte> into);

 private:
  struct Piece {
    std::string fid;
    std::uint64_t offset = 0;  // in the needle
    std::uint64_t length = 0;
    std::vector<Place> holders;
    std::size_t tried = 0;
    std::unique_ptr<VolumeClient::Download> download;
  };
  S3Status open(Piece& piece);
  S3Status ahead();

  Services& services_;
  std::vector<Piece> pieces_;
  std::size_t at_ = 0;
  bool begun_ = false;  // the current piece's answer came
};

}  // namespace farlift::s3::gateway
