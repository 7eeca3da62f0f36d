#include "blob/module/value_type.h"

#include "blob/module/module.h"
#include "blob/module/value.h"
#include "blob/wire/names.h"
#include "blob/wire/rdb.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

namespace farlift::blob {
namespace {

// Larger than any threshold of the server, so that a value is always freed lazily (spec blob 7).
constexpr std::size_t kFreeEffort = 1u << 20;

const Value& value_of(const void* value) { return *static_cast<const Value*>(value); }

const char* chars(std::span<const std::byte> bytes) {
  return reinterpret_cast<const char*>(bytes.data());
}

struct ServerBuffer {
  std::span<const std::byte> bytes;
  explicit ServerBuffer(vk::Io* io) {
    std::size_t size = 0;
    const char* data = vk::LoadStringBuffer(io, &size);
    if (data != nullptr) bytes = std::as_bytes(std::span(data, size));
  }
  ~ServerBuffer() {
    if (bytes.data() != nullptr) vk::Free(const_cast<std::byte*>(bytes.data()));
  }
  ServerBuffer(const ServerBuffer&) = delete;
  ServerBuffer& operator=(const ServerBuffer&) = delete;
};

// Visits the object's bytes in pieces of wire::kRdbPieceBytes, whatever its extents are.
template <class Visit>
void for_each_piece(const store::Object& object, Visit visit) {
  if (const auto whole = object.contiguous()) {
    for (std::size_t at = 0; at < whole->size();) {
      const std::size_t n = wire::rdb_piece_length(object.length(), Offset(at)).raw();
      visit(whole->subspan(at, n));
      at += n;
    }
    return;
  }
  std::vector<std::byte> piece;
  piece.reserve(wire::kRdbPieceBytes);
  for (std::size_t i = 0; i < object.extents(); ++i) {
    std::span<const std::byte> rest = object.span(i);
    while (!rest.empty()) {
      const std::size_t n = std::min<std::size_t>(rest.size(), wire::kRdbPieceBytes - piece.size());
      piece.insert(piece.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(n));
      rest = rest.subspan(n);
      if (piece.size() < wire::kRdbPieceBytes) continue;
      visit(std::span<const std::byte>(piece));
      piece.clear();
    }
  }
  if (!piece.empty()) visit(std::span<const std::byte>(piece));
}

// Writes consecutive runs of bytes into a draft.
class DraftWriter {
 public:
  explicit DraftWriter(store::Draft& draft) : draft_(draft) {}
  void put(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::span<std::byte> to = draft_.span(extent_).subspan(at_);
      const std::size_t n = std::min(to.size(), bytes.size());
      std::memcpy(to.data(), bytes.data(), n);
      bytes = bytes.subspan(n);
      at_ += n;
      if (at_ == draft_.span(extent_).size()) {
        ++extent_;
        at_ = 0;
      }
    }
  }

 private:
  store::Draft& draft_;
  std::size_t extent_ = 0;
  std::size_t at_ = 0;
};

BlobStore::Growth growth_for_load() {
  // RDB, AOF and a primary's stream must not be cut short by a memory limit; a client's RESTORE
  // must respect it.
  const int flags = vk::GetContextFlags(nullptr);
  const bool must = (flags & (vk::kCtxLoading | vk::kCtxReplica)) != 0;
  return must ? BlobStore::Growth::at_any_cost : BlobStore::Growth::within_maxmemory;
}

Result<store::ObjectRef> load_object(vk::Io* io) {
  const ServerBuffer header(io);
  if (vk::IsIOError(io) != 0) return Error::make(Errc::io, "read");
  TRY_ASSIGN(wire::RdbDecoder decoder,
             wire::RdbDecoder::begin(header.bytes, module().store().segment_size()));
  TRY_ASSIGN(store::Draft draft,
             module().store().reserve(decoder.header().length, growth_for_load()));
  DraftWriter writer(draft);
  while (!decoder.complete()) {
    const ServerBuffer piece(io);
    if (vk::IsIOError(io) != 0) return Error::make(Errc::io, "read");
    TRY(decoder.piece(piece.bytes));
    writer.put(piece.bytes);
  }
  TRY(decoder.finish());
  return std::move(draft).seal(decoder.header().crc);
}

void* rdb_load(vk::Io* io, int encver) noexcept {
  if (encver != wire::kRdbEncodingVersion) {
    vk::LogIOError(io, "warning", "large object: encoding version %d is not known here", encver);
    return nullptr;
  }
  auto object = load_object(io);
  if (!object.ok()) {
    vk::LogIOError(io, "warning", "large object: %s", object.error().describe().c_str());
    return nullptr;
  }
  return new Value(module().store(), std::move(object).value(), module().next_start());
}

void rdb_save(vk::Io* io, void* value) noexcept {
  const store::Object& object = *value_of(value).object();
  const auto header = wire::encode_rdb_header({object.length(), object.crc()});
  vk::SaveStringBuffer(io, chars(header), header.size());
  for_each_piece(object, [io](std::span<const std::byte> piece) {
    vk::SaveStringBuffer(io, chars(piece), piece.size());
  });
}

void aof_rewrite(vk::Io* io, vk::String* key, void* value) noexcept {
  const store::Object& object = *value_of(value).object();
  if (const auto whole = object.contiguous()) {
    vk::EmitAOF(io, wire::kTcpSet, "sb", key, chars(*whole), whole->size());
    return;
  }
  std::vector<std::byte> whole;
  whole.reserve(object.length().raw());
  for (std::size_t i = 0; i < object.extents(); ++i) {
    whole.insert(whole.end(), object.span(i).begin(), object.span(i).end());
  }
  vk::EmitAOF(io, wire::kTcpSet, "sb", key, chars(whole), whole.size());
}

void digest(vk::Digest* md, void* value) noexcept {
  const store::Object& object = *value_of(value).object();
  vk::DigestAddLongLong(md, static_cast<long long>(object.length().raw()));
  vk::DigestAddLongLong(md, static_cast<long long>(object.crc().raw()));
  for_each_piece(object, [md](std::span<const std::byte> p) {
    vk::DigestAddStringBuffer(md, chars(p), p.size());
  });
  vk::DigestEndSequence(md);
}

void free_value(void* value) noexcept { delete static_cast<Value*>(value); }

std::size_t mem_usage(vk::KeyOptCtx*, const void* value, std::size_t) noexcept {
  const store::Object& object = *value_of(value).object();
  return sizeof(Value) + sizeof(store::Object) + object.footprint().raw();
}

std::size_t free_effort(vk::KeyOptCtx*, const void*) noexcept { return kFreeEffort; }

void* copy(vk::KeyOptCtx*, const void* value) noexcept {
  const Value& from = value_of(value);
  BlobStore& store = module().store();
  if (module().is_victim(from)) return nullptr;  // spec blob 8.2: COPY fails in the reclaim gap
  auto draft = store.reserve(from.object()->length(), growth_for_load());
  if (!draft.ok()) {
    module().counters().dram_pool_exhausted.add();
    return nullptr;
  }
  // A copy is a new object, so damage must not travel under a fresh start: the bytes are checked
  // against the CRC.
  const Status copied = from.object()->copy_into(*draft);
  if (!copied.ok()) {
    vk::Log(nullptr, "warning", "COPY of a large object: %s", copied.error().describe().c_str());
    return nullptr;
  }
  return new Value(store, std::move(*draft).seal(from.object()->crc()), module().next_start());
}

}  // namespace

vk::Type* register_value_type(vk::Ctx* ctx) {
  vk::TypeMethods methods;
  methods.rdb_load = rdb_load;
  methods.rdb_save = rdb_save;
  methods.aof_rewrite = aof_rewrite;
  methods.digest = digest;
  methods.free = free_value;
  methods.mem_usage2 = mem_usage;
  methods.free_effort2 = free_effort;
  methods.copy2 = copy;
  return vk::CreateDataType(ctx, wire::kTypeName, wire::kRdbEncodingVersion, &methods);
}

}  // namespace farlift::blob
