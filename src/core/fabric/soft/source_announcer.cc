#include "core/fabric/soft/source_announcer.h"

#include <algorithm>

namespace farlift::fabric::soft {
namespace {

void append(const Request& request, std::span<std::byte, SourceAnnouncer::kBytesMax> out,
            std::size_t& size) {
  ASSERT(size + kRequestBytes <= out.size());
  encode(request, std::span<std::byte, kRequestBytes>(out.data() + size, kRequestBytes));
  size += kRequestBytes;
}

bool within(std::span<const std::byte> local, std::span<const std::byte> memory) noexcept {
  const auto begin = reinterpret_cast<std::uint64_t>(memory.data());
  const auto from = reinterpret_cast<std::uint64_t>(local.data());
  return from >= begin && fits(Offset(from - begin), Length(local.size()), Length(memory.size()));
}

}  // namespace

bool SourceAnnouncer::prepare(const std::shared_ptr<Registry::Record>& record,
                              std::span<const std::byte> local, std::span<std::byte, kBytesMax> out,
                              std::size_t& size) {
  size = 0;
  take_back_one(out, size);
  if (record->file.fd < 0 || !within(local, record->bytes)) return false;
  const auto known = std::find_if(told_.begin(), told_.end(),
                                  [&](const Told& t) { return t.serial == record->serial; });
  if (known != told_.end()) return true;
  if (told_.size() >= kSourcesMax) return false;
  const auto va = reinterpret_cast<std::uint64_t>(record->bytes.data());
  Request source;
  source.kind = RequestKind::source;
  source.id = record->file.inode;
  source.key = RKey(static_cast<std::uint64_t>(record->file.fd));
  source.addr = RemoteAddr(record->file.offset);
  source.length = Length(record->bytes.size());
  source.source = va;
  append(source, out, size);
  told_.push_back({record, record->serial, va});
  return true;
}

// One of many at a time: each pull pays for one look.
void SourceAnnouncer::take_back_one(std::span<std::byte, kBytesMax> out, std::size_t& size) {
  if (told_.empty()) return;
  looked_at_ = (looked_at_ + 1) % told_.size();
  const auto at = told_.begin() + static_cast<std::ptrdiff_t>(looked_at_);
  if (!at->record.expired()) return;
  Request gone;
  gone.kind = RequestKind::source;
  gone.source = at->va;
  told_.erase(at);
  // A newer registration of the same address has replaced it over there.
  const bool replaced =
      std::any_of(told_.begin(), told_.end(), [&](const Told& t) { return t.va == gone.source; });
  if (!replaced) append(gone, out, size);
}

}  // namespace farlift::fabric::soft
