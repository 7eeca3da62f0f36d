// The operand parser of the blob door: first byte picks the command, the rest is its words, one a
// line.
#include "blob/wire/names.h"
#include "blob/wire/operands.h"
#include "blob/wire/texts.h"
#include "core/base/assert.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace {

namespace wire = farlift::blob::wire;

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> words;
  for (;;) {
    const std::size_t end = text.find('\n');
    words.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return words;
    text.remove_prefix(end + 1);
  }
}

void check(const std::vector<wire::Region>& regions) {
  ASSERT(!regions.empty() && regions.size() <= wire::kRegionsMax);
  for (const wire::Region& r : regions) {
    ASSERT(r.length.raw() > 0);
    ASSERT(r.length.raw() <= UINT64_MAX - r.addr.raw());
    ASSERT(wire::coverage(regions) >= r.length);
  }
}

template <class T>
bool refused(const wire::Parsed<T>& parsed) {
  if (parsed) return false;
  if (!parsed.error().arity())
    ASSERT(std::string_view(parsed.error().text).size() <= wire::text::kReplyBytesMax);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::vector<std::string_view> words =
      split({reinterpret_cast<const char*>(data) + 1, size - 1});
  const farlift::Length object_max(1u << 20);
  switch (data[0] % 6) {
    case 0: {
      const auto r = wire::parse_rdma_get(words);
      if (!refused(r)) check(r->regions);
      break;
    }
    case 1: {
      const auto r = wire::parse_rdma_set(words, object_max);
      if (refused(r)) break;
      check(r->regions);
      ASSERT(r->length.raw() > 0 && r->length <= object_max);
      break;
    }
    case 2: {
      const auto r = wire::parse_hello(words);
      if (!refused(r)) ASSERT(!r->empty() && r->size() * 2 == words[0].size());
      break;
    }
    case 3: {
      const auto r = wire::parse_tcp_set(words, object_max);
      if (!refused(r)) ASSERT(!r->value.empty());
      break;
    }
    case 4:
      refused(wire::parse_tcp_get(words));
      break;
    default:
      refused(wire::parse_info(words));
      break;
  }
  return 0;
}
