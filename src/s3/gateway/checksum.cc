#include "s3/gateway/checksum.h"

#include "core/base/assert.h"
#include "core/codec/text.h"
#include "core/digest/crc.h"
#include "core/digest/crc32c.h"

#include <vector>

namespace farlift::s3::gateway {

namespace {

struct Row {
  Algorithm algorithm;
  std::string_view name;
  std::string_view upper;
  std::string_view element;
  std::size_t bytes;
};

constexpr std::array kRows = {
    Row{Algorithm::crc32, "crc32", "CRC32", "ChecksumCRC32", 4},
    Row{Algorithm::crc32c, "crc32c", "CRC32C", "ChecksumCRC32C", 4},
    Row{Algorithm::crc64nvme, "crc64nvme", "CRC64NVME", "ChecksumCRC64NVME", 8},
    Row{Algorithm::sha1, "sha1", "SHA1", "ChecksumSHA1", 20},
    Row{Algorithm::sha256, "sha256", "SHA256", "ChecksumSHA256", 32},
};

const Row& row_of(Algorithm algorithm) noexcept {
  return kRows[static_cast<std::size_t>(algorithm)];
}

std::string big_endian(std::uint64_t value, std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    out[i] = static_cast<std::byte>(value >> (8 * (bytes - 1 - i)));
  return codec::base64_encode(out);
}

std::optional<std::uint64_t> crc_of(Algorithm algorithm, std::string_view base64) {
  const auto bytes = codec::base64_decode(base64);
  if (!bytes.ok() || bytes->size() != row_of(algorithm).bytes) return std::nullopt;
  std::uint64_t value = 0;
  for (const std::byte b : *bytes) value = value << 8 | std::to_integer<std::uint64_t>(b);
  return value;
}

}  // namespace

std::string_view name_of(Algorithm algorithm) noexcept { return row_of(algorithm).name; }
std::string_view upper_name_of(Algorithm algorithm) noexcept { return row_of(algorithm).upper; }
std::string_view element_of(Algorithm algorithm) noexcept { return row_of(algorithm).element; }
std::string header_of(Algorithm algorithm) {
  return "x-amz-checksum-" + std::string(name_of(algorithm));
}

std::optional<Algorithm> algorithm_of(std::string_view name) {
  for (const Row& row : kRows) {
    if (codec::equal_ignoring_case(row.name, name)) return row.algorithm;
  }
  return std::nullopt;
}

bool is_crc(Algorithm algorithm) noexcept { return algorithm <= Algorithm::crc64nvme; }

bool valid_checksum(Algorithm algorithm, std::string_view base64) {
  const auto bytes = codec::base64_decode(base64);
  return bytes.ok() && bytes->size() == row_of(algorithm).bytes;
}

ChecksumStream::ChecksumStream(Algorithm algorithm) : algorithm_(algorithm) {
  if (algorithm == Algorithm::sha1) hash_.emplace<digest::Sha1>();
  if (algorithm == Algorithm::sha256) hash_.emplace<digest::Sha256>();
}

void ChecksumStream::update(std::span<const std::byte> bytes) noexcept {
  switch (algorithm_) {
    case Algorithm::crc32:
      crc_ = digest::crc32_extend(static_cast<std::uint32_t>(crc_), bytes);
      break;
    case Algorithm::crc32c:
      crc_ = digest::crc32c_extend(Crc32c(static_cast<std::uint32_t>(crc_)), bytes).raw();
      break;
    case Algorithm::crc64nvme:
      crc_ = digest::crc64nvme_extend(crc_, bytes);
      break;
    case Algorithm::sha1:
      std::get<digest::Sha1>(hash_).update(bytes);
      break;
    case Algorithm::sha256:
      std::get<digest::Sha256>(hash_).update(bytes);
      break;
  }
}

std::string ChecksumStream::finish() {
  if (algorithm_ == Algorithm::sha1)
    return codec::base64_encode(std::get<digest::Sha1>(hash_).finish());
  if (algorithm_ == Algorithm::sha256)
    return codec::base64_encode(std::get<digest::Sha256>(hash_).finish());
  return big_endian(crc_, row_of(algorithm_).bytes);
}

std::optional<std::string> join_checksums(Algorithm algorithm, std::string_view a,
                                          std::string_view b, std::uint64_t length_b) {
  ASSERT(is_crc(algorithm));
  const auto first = crc_of(algorithm, a);
  const auto second = crc_of(algorithm, b);
  if (!first || !second) return std::nullopt;
  const auto narrow = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  std::uint64_t joined = 0;
  if (algorithm == Algorithm::crc64nvme) {
    joined = digest::crc64nvme_combine(*first, *second, length_b);
  } else if (algorithm == Algorithm::crc32) {
    joined = digest::crc32_combine(narrow(*first), narrow(*second), length_b);
  } else {
    joined =
        digest::crc32c_combine(Crc32c(narrow(*first)), Crc32c(narrow(*second)), Length(length_b))
            .raw();
  }
  return big_endian(joined, row_of(algorithm).bytes);
}

}  // namespace farlift::s3::gateway
