#include "s3/catalog/body.h"

#include "core/codec/bytes.h"

namespace farlift::s3::catalog {

namespace {

constexpr std::uint8_t kFormat = 1;

void put(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

void put(std::string& out, std::string_view text) {
  put(out, text.size(), 4);
  out += text;
}

void put(std::string& out, const Fields& fields) {
  put(out, fields.size(), 4);
  for (const auto& [name, value] : fields) {
    put(out, name);
    put(out, value);
  }
}

Result<std::string> take_text(codec::Reader& in) {
  TRY_ASSIGN(const std::uint32_t size, in.u32_le());
  TRY_ASSIGN(const auto bytes, in.take(size));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// `entry_min`: the least that one entry takes, so that a count cannot ask for more than is there.
Result<std::uint32_t> take_count(codec::Reader& in, std::size_t entry_min) {
  TRY_ASSIGN(const std::uint32_t count, in.u32_le());
  if (count > in.left() / entry_min) return Error::make(Errc::corrupt, "catalog body");
  return count;
}

Status take_fields(codec::Reader& in, Fields& out) {
  TRY_ASSIGN(const std::uint32_t count, take_count(in, 8));
  out.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    auto& [name, value] = out.emplace_back();
    TRY_ASSIGN(name, take_text(in));
    TRY_ASSIGN(value, take_text(in));
  }
  return {};
}

Status take_checksum(codec::Reader& in, std::optional<Checksum>& out) {
  TRY_ASSIGN(const std::uint8_t there, in.u8());
  if (there == 0) return {};
  Checksum& sum = out.emplace();
  TRY_ASSIGN(sum.algorithm, take_text(in));
  TRY_ASSIGN(sum.value, take_text(in));
  TRY_ASSIGN(const std::uint8_t composite, in.u8());
  sum.composite = composite != 0;
  return {};
}

Status take_body(codec::Reader& in, Body& out) {
  TRY_ASSIGN(const std::uint8_t format, in.u8());
  if (format != kFormat) return Error::make(Errc::corrupt, "catalog body");
  TRY(take_fields(in, out.fields));
  TRY(take_fields(in, out.tags));
  TRY(take_checksum(in, out.checksum));
  TRY_ASSIGN(const std::uint32_t chunks, take_count(in, 20));
  out.chunks.reserve(chunks);
  for (std::uint32_t i = 0; i < chunks; ++i) {
    Chunk& chunk = out.chunks.emplace_back();
    TRY_ASSIGN(chunk.offset, in.u64_le());
    TRY_ASSIGN(chunk.size, in.u64_le());
    TRY_ASSIGN(chunk.fid, take_text(in));
  }
  TRY_ASSIGN(const std::uint32_t parts, take_count(in, 20));
  out.parts.reserve(parts);
  for (std::uint32_t i = 0; i < parts; ++i) {
    PartSpan& part = out.parts.emplace_back();
    TRY_ASSIGN(part.number, in.u32_le());
    TRY_ASSIGN(part.offset, in.u64_le());
    TRY_ASSIGN(part.size, in.u64_le());
  }
  if (!in.at_end()) return Error::make(Errc::corrupt, "catalog body");
  return {};
}

}  // namespace

std::string encode_body(const Body& body) {
  std::string out;
  put(out, kFormat, 1);
  put(out, body.fields);
  put(out, body.tags);
  put(out, body.checksum ? 1 : 0, 1);
  if (body.checksum) {
    put(out, body.checksum->algorithm);
    put(out, body.checksum->value);
    put(out, body.checksum->composite ? 1 : 0, 1);
  }
  put(out, body.chunks.size(), 4);
  for (const Chunk& chunk : body.chunks) {
    put(out, chunk.offset, 8);
    put(out, chunk.size, 8);
    put(out, chunk.fid);
  }
  put(out, body.parts.size(), 4);
  for (const PartSpan& part : body.parts) {
    put(out, part.number, 4);
    put(out, part.offset, 8);
    put(out, part.size, 8);
  }
  return out;
}

Result<Body> decode_body(std::string_view bytes) {
  Result<Body> out{Body()};
  codec::Reader in(std::as_bytes(std::span(bytes)));
  if (!take_body(in, *out).ok()) return Error::make(Errc::corrupt, "catalog body");
  return out;
}

}  // namespace farlift::s3::catalog
