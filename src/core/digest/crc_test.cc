// Published check values, the answers of the S3 specification, and any cut of any input.
#include "core/digest/crc.h"

#include "core/codec/text.h"
#include "core/digest/hash.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

namespace farlift::digest {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string base64_of(std::uint64_t value) {
  std::array<std::byte, 8> out;
  for (std::size_t i = 0; i < 8; ++i) out[i] = static_cast<std::byte>(value >> (56 - 8 * i));
  return codec::base64_encode(out);
}

TEST(Crc, CheckValues) {
  EXPECT_EQ(crc32_extend(0, bytes_of("123456789")), 0xCBF43926U);
  EXPECT_EQ(crc64nvme_extend(0, bytes_of("123456789")), 0xAE8B14860A799888U);
  EXPECT_EQ(crc32_extend(0, {}), 0U);
  EXPECT_EQ(crc64nvme_extend(0, {}), 0U);
}

TEST(Crc, AnswersOfTheSpecification) {
  const struct {
    std::size_t size;
    const char* crc64;
  } rows[] = {{1, "1dpQR+/shyg="},
              {4194304, "zWC4PnbWZ04="},
              {4194305, "k+4CFTvKJig="},
              {10000000, "hdx9blGL514="}};
  std::vector<std::byte> data(10000000);
  for (std::size_t k = 0; k < data.size(); ++k) data[k] = static_cast<std::byte>(7 * k);
  for (const auto& row : rows) {
    EXPECT_EQ(base64_of(crc64nvme_extend(0, std::span(data).first(row.size))), row.crc64)
        << row.size;
  }
}

RC_GTEST_PROP(Crc, AnyCutJoins, (const std::vector<std::uint8_t>& data)) {
  const auto all = std::as_bytes(std::span(data));
  const std::size_t cut = *rc::gen::inRange<std::size_t>(0, data.size() + 1);
  const auto a = all.first(cut);
  const auto b = all.subspan(cut);
  RC_ASSERT(crc32_extend(crc32_extend(0, a), b) == crc32_extend(0, all));
  RC_ASSERT(crc32_combine(crc32_extend(0, a), crc32_extend(0, b), b.size()) ==
            crc32_extend(0, all));
  RC_ASSERT(crc64nvme_extend(crc64nvme_extend(0, a), b) == crc64nvme_extend(0, all));
  RC_ASSERT(crc64nvme_combine(crc64nvme_extend(0, a), crc64nvme_extend(0, b), b.size()) ==
            crc64nvme_extend(0, all));
}

TEST(Sha1, PublishedVectors) {
  const auto hex = [](std::string_view text) {
    Sha1 hash;
    hash.update(bytes_of(text));
    return codec::hex_encode(hash.finish());
  };
  EXPECT_EQ(hex(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(hex("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
}

}  // namespace
}  // namespace farlift::digest
