// The checksums a client may send or ask for besides MD5: by name, running, and joined over parts.
//
// Invariants: values are base64 of the digest, big-endian for the CRCs.
// Threads:    one thread a stream. Errors: nullopt for an unknown name or a value of another
// length.
#pragma once

#include "core/base/types.h"
#include "core/digest/hash.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace farlift::s3::gateway {

enum class Algorithm : std::uint8_t { crc32, crc32c, crc64nvme, sha1, sha256 };
inline constexpr std::array kAlgorithms = {
    Algorithm::crc32, Algorithm::crc32c, Algorithm::crc64nvme, Algorithm::sha1, Algorithm::sha256};

std::string_view name_of(Algorithm algorithm) noexcept;        // "crc32c", as in headers
std::string_view upper_name_of(Algorithm algorithm) noexcept;  // "CRC32C", as in XML and requests
std::string header_of(Algorithm algorithm);                    // "x-amz-checksum-crc32c"
std::string_view element_of(Algorithm algorithm) noexcept;     // "ChecksumCRC32C"
std::optional<Algorithm> algorithm_of(std::string_view name);  // in any case
bool is_crc(Algorithm algorithm) noexcept;
// Whether `base64` is a digest of that algorithm.
bool valid_checksum(Algorithm algorithm, std::string_view base64);

class ChecksumStream {
 public:
  explicit ChecksumStream(Algorithm algorithm);
  Algorithm algorithm() const noexcept { return algorithm_; }
  void update(std::span<const std::byte> bytes) noexcept;
  std::string finish();  // base64

 private:
  Algorithm algorithm_;
  std::uint64_t crc_ = 0;
  std::variant<std::monostate, digest::Sha1, digest::Sha256> hash_;
};

// Of bytes whose halves have these values: CRCs only. nullopt when one is no value.
std::optional<std::string> join_checksums(Algorithm algorithm, std::string_view a,
                                          std::string_view b, std::uint64_t length_b);

}  // namespace farlift::s3::gateway
