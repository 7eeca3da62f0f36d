#include "core/net/http/range.h"

#include "core/codec/text.h"

#include <algorithm>

namespace farlift::net::http {

namespace {

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

Result<std::optional<ByteRange>> parse_range(std::string_view field, std::uint64_t size) {
  constexpr std::string_view kUnit = "bytes=";
  const std::optional<ByteRange> ignored;
  if (field.size() < kUnit.size() ||
      !codec::equal_ignoring_case(field.substr(0, kUnit.size()), kUnit))
    return ignored;
  const std::string_view set = trimmed(field.substr(kUnit.size()));
  const std::size_t dash = set.find('-');
  if (dash == std::string_view::npos || set.find(',') != std::string_view::npos) return ignored;
  const std::string_view first = trimmed(set.substr(0, dash));
  const std::string_view last = trimmed(set.substr(dash + 1));
  const auto from = codec::parse_u64(first);
  const auto to = codec::parse_u64(last);
  if (first.empty()) {
    if (!to.ok()) return ignored;
    const std::uint64_t length = std::min(*to, size);
    if (length == 0) return Error::make(Errc::out_of_range, "range");
    return std::optional<ByteRange>(ByteRange{size - length, length});
  }
  if (!from.ok() || (!last.empty() && !to.ok())) return ignored;
  if (!last.empty() && *to < *from) return ignored;
  if (*from >= size) return Error::make(Errc::out_of_range, "range");
  const std::uint64_t end = last.empty() ? size - 1 : std::min(*to, size - 1);
  return std::optional<ByteRange>(ByteRange{*from, end - *from + 1});
}

}  // namespace farlift::net::http
