#include "blob/wire/operands.h"

#include "blob/wire/names.h"
#include "blob/wire/texts.h"
#include "core/codec/text.h"

#include <limits>

namespace farlift::blob::wire {
namespace {

constexpr std::uint64_t kMax64 = std::numeric_limits<std::uint64_t>::max();

tl::unexpected<Refusal> refuse(const char* text) { return tl::unexpected<Refusal>(Refusal{text}); }
tl::unexpected<Refusal> refuse_arity() { return tl::unexpected<Refusal>(Refusal{}); }

Parsed<Region> parse_region(Words triple) {
  const auto key = codec::parse_u64(triple[0]);
  if (!key.ok()) return refuse(text::kInvalidRkey);
  const auto addr = codec::parse_u64(triple[1]);
  if (!addr.ok()) return refuse(text::kInvalidAddr);
  const auto length = codec::parse_u64(triple[2]);
  if (!length.ok() || *length == 0 || *length > kMax64 - *addr)
    return refuse(text::kInvalidRegionLen);
  return Region{RKey(*key), RemoteAddr(*addr), Length(*length)};
}

std::optional<Refusal> check_triples(Words words) {
  if (words.size() % 3 != 0) return Refusal{text::kTriples};
  if (words.size() / 3 > kRegionsMax) return Refusal{text::kTooManyRegions};
  return std::nullopt;
}

// After check_triples().
Parsed<std::vector<Region>> parse_regions(Words words) {
  std::vector<Region> regions;
  regions.reserve(words.size() / 3);
  for (std::size_t at = 0; at < words.size(); at += 3) {
    auto region = parse_region(words.subspan(at, 3));
    if (!region) return tl::unexpected<Refusal>(region.error());
    regions.push_back(*region);
  }
  return regions;
}

std::optional<Refusal> check_object_length(Length length, Length object_max) {
  if (length.raw() == 0) return Refusal{text::kEmptyObject};
  if (length > object_max) return Refusal{text::kTooLarge};
  return std::nullopt;
}

}  // namespace

Parsed<std::vector<std::byte>> parse_hello(Words words) {
  if (words.size() != 1) return refuse_arity();
  if (words[0].empty()) return refuse(text::kEmptyAddress);
  auto bytes = codec::hex_decode(words[0]);
  if (!bytes.ok()) return refuse(text::kInvalidHex);
  return std::move(bytes).value();
}

std::optional<Refusal> check_address_length(std::size_t bytes, AddressForms forms) {
  if (forms.socket && (bytes == 16 || bytes == 28)) return std::nullopt;
  if (forms.efa && bytes == 32) return std::nullopt;
  if (forms.socket && forms.efa) return Refusal{text::kAddressLengthAny};
  return Refusal{forms.efa ? text::kAddressLengthEfa : text::kAddressLengthSocket};
}

Parsed<RdmaGetOperands> parse_rdma_get(Words words) {
  if (words.size() < 4) return refuse_arity();  // key and one triple
  const Words triples = words.subspan(1);
  if (auto bad = check_triples(triples)) return tl::unexpected<Refusal>(*bad);
  auto regions = parse_regions(triples);
  if (!regions) return tl::unexpected<Refusal>(regions.error());
  return RdmaGetOperands{words[0], std::move(*regions)};
}

Parsed<RdmaSetOperands> parse_rdma_set(Words words, Length object_max) {
  if (words.size() < 5) return refuse_arity();  // key, length and one triple
  // A number never spells the keyword, so there is nothing to guess (spec blob 3.3).
  const bool with_crc = codec::equal_ignoring_case(words[2], kKeywordCrc);
  const Words triples = words.subspan(with_crc ? 4 : 2);
  if (triples.empty()) return refuse_arity();
  if (auto bad = check_triples(triples)) return tl::unexpected<Refusal>(*bad);
  RdmaSetOperands out;
  out.key = words[0];
  const auto length = codec::parse_u64(words[1]);
  if (!length.ok()) return refuse(text::kInvalidLen);
  out.length = Length(*length);
  if (with_crc) {
    const auto crc = codec::parse_u32(words[3]);
    if (!crc.ok()) return refuse(text::kInvalidCrc);
    out.crc = Crc32c(*crc);
  }
  auto regions = parse_regions(triples);
  if (!regions) return tl::unexpected<Refusal>(regions.error());
  out.regions = std::move(*regions);
  if (auto bad = check_object_length(out.length, object_max)) return tl::unexpected<Refusal>(*bad);
  return out;
}

Parsed<std::string_view> parse_tcp_get(Words words) {
  if (words.size() != 1) return refuse_arity();
  return words[0];
}

Parsed<TcpSetOperands> parse_tcp_set(Words words, Length object_max) {
  if (words.size() != 2) return refuse_arity();
  if (auto bad = check_object_length(Length(words[1].size()), object_max))
    return tl::unexpected<Refusal>(*bad);
  return TcpSetOperands{words[0], words[1]};
}

Parsed<InfoOperands> parse_info(Words words) {
  if (words.empty() || words.size() > 2) return refuse_arity();
  InfoOperands out{words[0], InfoField::all};
  if (words.size() == 1) return out;
  if (codec::equal_ignoring_case(words[1], kFieldLen))
    out.field = InfoField::len;
  else if (codec::equal_ignoring_case(words[1], kFieldCrc))
    out.field = InfoField::crc;
  else if (codec::equal_ignoring_case(words[1], kFieldTier))
    out.field = InfoField::tier;
  else
    return refuse(text::kInvalidField);
  return out;
}

Length coverage(std::span<const Region> regions) noexcept {
  std::uint64_t sum = 0;
  for (const Region& region : regions) {
    sum = region.length.raw() > kMax64 - sum ? kMax64 : sum + region.length.raw();
  }
  return Length(sum);
}

}  // namespace farlift::blob::wire
