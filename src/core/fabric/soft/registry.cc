#include "core/fabric/soft/registry.h"

#include "core/base/prng.h"

#include <sys/mman.h>

namespace farlift::fabric::soft {

Result<std::unique_ptr<Registry>> Registry::create(bool virtual_addressing,
                                                   std::optional<std::uint32_t> dc_key) {
  void* memory = ::mmap(nullptr, sizeof(Entry) * kSlots, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Error::from_errno("soft registry mmap");
  return std::unique_ptr<Registry>(
      new Registry(static_cast<Entry*>(memory), virtual_addressing, dc_key));
}

Registry::~Registry() {
  ASSERT(records_.empty());
  ::munmap(table_, sizeof(Entry) * kSlots);
}

RKey Registry::draw_key() {
  // At most half the slots are taken, so a few draws find one; zero is never a key.
  for (;;) {
    std::uint64_t raw = secure_random_u64();
    if (keys32_) {
      // spec s3 11.1: 32 random bits that stay away for long once used, below the DC key.
      raw = keys32_->next();
      if (raw == 0) continue;
      raw |= std::uint64_t{dc_key_} << 32;
    }
    const RKey key(raw);
    if (raw == 0 || (table_[slot_of(key, kSlots)].state.load(std::memory_order_relaxed) & 1) != 0)
      continue;
    return key;
  }
}

void Registry::publish(Record& record) {
  // Fields first, `state` last: a reader that sees the same open state twice has seen the fields of
  // that state.
  Entry& entry = table_[slot_of(record.key, kSlots)];
  entry.key.store(record.key.raw(), std::memory_order_relaxed);
  entry.base.store(record.base.raw(), std::memory_order_relaxed);
  entry.va.store(reinterpret_cast<std::uint64_t>(record.bytes.data()), std::memory_order_relaxed);
  entry.length.store(record.bytes.size(), std::memory_order_relaxed);
  entry.access.store(static_cast<std::uint64_t>(record.access), std::memory_order_relaxed);
  record.serial = ++serial_;
  entry.state.store(record.serial * 2 + 1, std::memory_order_seq_cst);
}

Result<std::shared_ptr<Registry::Record>> Registry::open(std::span<std::byte> bytes, Access access,
                                                         const SourceFile& file) {
  if (bytes.empty() || bytes.data() == nullptr)
    return Error::make(Errc::invalid_argument, "empty memory");
  auto record = std::make_shared<Record>();
  record->bytes = bytes;
  record->access = access;
  record->file = file;
  record->base =
      RemoteAddr(virtual_addressing_ ? reinterpret_cast<std::uint64_t>(bytes.data()) : 0);
  MutexLock lock(mutex_);
  if (records_.size() >= kRegistrationsMax) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return Error::make(Errc::exhausted, "soft registrations");
  }
  record->key = draw_key();
  records_.emplace(record->key, record);
  publish(*record);
  return record;
}

void Registry::close(Record& record) {
  MutexLock lock(mutex_);
  if (!record.closed) {
    record.closed = true;
    table_[slot_of(record.key, kSlots)].state.store(serial_ * 2, std::memory_order_seq_cst);
    records_.erase(record.key);
  }
  ++closing_;
  while (record.pieces > 0) piece_ended_.wait(mutex_);
  --closing_;
}

Result<Registry::Piece> Registry::begin(RKey key, RemoteAddr addr, Length length, bool write) {
  MutexLock lock(mutex_);
  const auto found = records_.find(key);
  if (found == records_.end()) return Error::make(Errc::access, "key");
  Record& record = *found->second;
  if (write ? !allows_write(record.access) : !allows_read(record.access))
    return Error::make(Errc::access, "right");
  if (addr < record.base) return Error::make(Errc::access, "range");
  const Offset from(addr.raw() - record.base.raw());
  if (!fits(from, length, Length(record.bytes.size()))) return Error::make(Errc::access, "range");
  ++record.pieces;
  return Piece(this, found->second, record.bytes.subspan(from.raw(), length.raw()));
}

void Registry::end(Record& record) {
  MutexLock lock(mutex_);
  ASSERT(record.pieces > 0);
  if (--record.pieces == 0 && closing_ > 0) piece_ended_.notify_all();
}

void Registry::Piece::landed(std::size_t length) const {
  if (length == 0 || !record_->landed.watching()) return;
  const auto offset = static_cast<std::uint64_t>(bytes_.data() - record_->bytes.data());
  if (record_->landed.add(Offset(offset), bytes_.first(length))) {
    registry_->landed_overflows_.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace farlift::fabric::soft
