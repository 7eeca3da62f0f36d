// The text decoders of the core: first byte picks one, the rest is its text. What is accepted has
// one spelling where the header says so, and what an encoder makes its decoder takes back.
#include "core/base/assert.h"
#include "core/codec/bytes.h"
#include "core/codec/text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace farlift;
namespace codec = farlift::codec;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

void check_numbers(std::string_view text) {
  const auto wide = codec::parse_u64(text);
  const auto narrow = codec::parse_u32(text);
  ASSERT(narrow.ok() == (wide.ok() && *wide <= UINT32_MAX));
  ASSERT(!narrow.ok() || *narrow == *wide);
  if (!wide.ok()) return;
  const std::size_t zeros = std::min(text.find_first_not_of('0'), text.size() - 1);
  ASSERT(codec::format_u64(*wide) == text.substr(zeros));
}

void check_encoders(std::span<const std::byte> bytes, std::string_view text) {
  const auto same = [&](const Result<std::vector<std::byte>>& back) {
    return back.ok() && std::equal(back->begin(), back->end(), bytes.begin(), bytes.end());
  };
  ASSERT(same(codec::hex_decode(codec::hex_encode(bytes))));
  ASSERT(same(codec::base64_decode(codec::base64_encode(bytes))));
  ASSERT(same(codec::base64url_decode(codec::base64url_encode(bytes))));
  const auto back = codec::percent_decode(codec::percent_encode(text, "/"));
  ASSERT(back.ok() && *back == text);
  ASSERT(codec::equal_ignoring_case(text, text));
}

// One item from the reader to the writer; false when there are too few bytes left for it.
bool copy_item(std::uint8_t kind, codec::Reader& r, codec::Writer& w) {
  const auto put = [&w](auto read, auto write) { return read.ok() && (w.*write)(*read).ok(); };
  switch (kind % 9) {
    case 0:
      return put(r.u64_le(), &codec::Writer::u64_le);
    case 1:
      return put(r.u64_be(), &codec::Writer::u64_be);
    case 2:
      return put(r.u32_le(), &codec::Writer::u32_le);
    case 3:
      return put(r.u32_be(), &codec::Writer::u32_be);
    case 4:
      return put(r.u16_le(), &codec::Writer::u16_le);
    case 5:
      return put(r.u16_be(), &codec::Writer::u16_be);
    case 6:
      return put(r.take(kind), &codec::Writer::put);
    case 7: {
      const bool zeros = std::ranges::all_of(r.rest().first(std::min<std::size_t>(r.left(), 3)),
                                             [](std::byte b) { return b == std::byte{0}; });
      return zeros && r.skip(3).ok() && w.zeros(3).ok();
    }
    default:
      return put(r.u8(), &codec::Writer::u8);
  }
}

// A reader over the bytes and a writer over as many give the same bytes back.
void check_reader(std::span<const std::byte> bytes) {
  codec::Reader reader(bytes);
  std::vector<std::byte> out(bytes.size());
  codec::Writer writer(out);
  for (std::uint8_t turn = 0; !reader.at_end(); ++turn) {
    // What comes next is named by the byte itself, or by turns.
    const auto kind = static_cast<std::uint8_t>(
        turn % 2 == 0 ? std::to_integer<unsigned>(reader.rest()[0]) : turn / 2u);
    const std::size_t before = reader.left();
    if (!copy_item(kind, reader, writer)) ASSERT(reader.left() == before);
    ASSERT(writer.left() == reader.left());
  }
  ASSERT(std::equal(out.begin(), out.end(), bytes.begin(), bytes.end()));
  ASSERT(writer.written().size() == bytes.size());
  ASSERT(!reader.u8().ok() && !writer.u8(0).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  switch (data[0] % 7) {
    case 0: {
      const auto out = codec::hex_decode(text);
      ASSERT(!out.ok() || codec::hex_encode(*out) == lower(text));
      break;
    }
    case 1:
      if (!text.empty()) check_numbers(text);
      break;
    case 2: {
      const auto out = codec::base64_decode(text);
      ASSERT(!out.ok() || codec::base64_encode(*out) == text);
      break;
    }
    case 3: {
      const auto out = codec::base64url_decode(text);
      ASSERT(!out.ok() || codec::base64url_encode(*out) == text);
      break;
    }
    case 4: {
      const auto out = codec::percent_decode(text);
      ASSERT(!out.ok() || out->size() <= text.size());
      break;
    }
    case 5:
      check_encoders(bytes, text);
      break;
    default:
      check_reader(bytes);
      break;
  }
  return 0;
}
