// Registry: the registrations of one domain, and the fence between them and everything that lands
// or is read.
//
// A piece is one bounded copy (one recv, one send, one process_vm_readv) into or out of a
// registration. begin() admits it, the Piece's end lets go. close() refuses new pieces and waits
// for those that are in progress: all of them are our own system calls that never wait for a peer.
//
// The table of entries lies at a fixed address so that a process of the same host can read it: the
// slot of a key is key % kSlots, and the reader believes what it copied only when the entry was
// open and unchanged before and after (docs/decisions/0001). Only this process writes it.
//
// Invariants: keys are random, never repeated while open, and choose their slot; after close()
//             returned no piece of the record exists. An entry is open only while its fields are
//             complete.
// Threads:    any. Errors: access: key, range or right; exhausted: kRegistrationsMax.
#pragma once

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/base/types.h"
#include "core/fabric/fabric.h"
#include "core/fabric/soft/landed_log.h"
#include "core/fabric/soft/source.h"
#include "core/fabric/soft/unique_random.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

namespace farlift::fabric::soft {

// What a reader on the same host copies. `state` is the registration's serial number * 2 + 1 while
// open, even when not.
struct EntryImage {
  std::uint64_t state = 0;
  std::uint64_t key = 0;
  std::uint64_t base = 0;  // remote address of the first byte
  std::uint64_t va = 0;    // where that byte is in the target's address space
  std::uint64_t length = 0;
  std::uint64_t access = 0;  // Access
  std::uint64_t zero[2] = {};
  bool open() const noexcept { return (state & 1) != 0; }
  friend bool operator==(const EntryImage&, const EntryImage&) = default;
};
static_assert(sizeof(EntryImage) == 64);

class Registry {
 public:
  static constexpr std::uint32_t kSlots = 65536;
  static constexpr std::uint32_t kRegistrationsMax = 32768;

  struct Record {
    RKey key;
    RemoteAddr base;
    std::span<std::byte> bytes;
    Access access = Access::local;
    SourceFile file;           // behind `bytes`
    std::uint64_t serial = 0;  // no two records of a domain share it
    LandedLog landed;
    // guarded by the registry's mutex
    std::uint32_t pieces = 0;
    bool closed = false;
  };

  // Admission of one copy; ends in the destructor.
  class Piece {
   public:
    Piece(Piece&& other) noexcept
        : registry_(std::exchange(other.registry_, nullptr)),
          record_(std::move(other.record_)),
          bytes_(other.bytes_) {}
    Piece& operator=(Piece&&) = delete;
    ~Piece() {
      if (registry_ != nullptr) registry_->end(*record_);
    }
    std::span<std::byte> bytes() const noexcept { return bytes_; }
    // The first `length` bytes of it have landed.
    void landed(std::size_t length) const;

   private:
    friend class Registry;
    Piece(Registry* registry, std::shared_ptr<Record> record, std::span<std::byte> bytes) noexcept
        : registry_(registry), record_(std::move(record)), bytes_(bytes) {}
    Registry* registry_;
    std::shared_ptr<Record> record_;
    std::span<std::byte> bytes_;
  };

  static Result<std::unique_ptr<Registry>> create(bool virtual_addressing,
                                                  std::optional<std::uint32_t> dc_key);
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  Result<std::shared_ptr<Record>> open(std::span<std::byte> bytes, Access access,
                                       const SourceFile& file = {});
  void close(Record& record);
  Result<Piece> begin(RKey key, RemoteAddr addr, Length length, bool write);

  std::uint64_t table_addr() const noexcept { return reinterpret_cast<std::uint64_t>(table_); }
  static std::uint32_t slot_of(RKey key, std::uint32_t slots) noexcept {
    return static_cast<std::uint32_t>(key.raw() % slots);
  }
  std::uint64_t landed_overflows() const noexcept {
    return landed_overflows_.load(std::memory_order_relaxed);
  }
  std::uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    std::atomic<std::uint64_t> state, key, base, va, length, access, zero[2];
  };
  static_assert(sizeof(Entry) == sizeof(EntryImage) &&
                std::atomic<std::uint64_t>::is_always_lock_free);

  Registry(Entry* table, bool virtual_addressing, std::optional<std::uint32_t> dc_key)
      : table_(table), virtual_addressing_(virtual_addressing), dc_key_(dc_key.value_or(0)) {
    if (dc_key) keys32_.emplace();
  }
  RKey draw_key() REQUIRES(mutex_);
  void publish(Record& record) REQUIRES(mutex_);
  void end(Record& record);

  Entry* const table_;
  const bool virtual_addressing_;
  const std::uint32_t dc_key_;
  std::atomic<std::uint64_t> landed_overflows_{0};
  std::atomic<std::uint64_t> refused_{0};
  Mutex mutex_;
  CondVar piece_ended_;
  std::unordered_map<RKey, std::shared_ptr<Record>> records_ GUARDED_BY(mutex_);
  std::uint64_t serial_ GUARDED_BY(mutex_) = 0;
  std::optional<UniqueRandom32> keys32_ GUARDED_BY(mutex_);
  std::uint32_t closing_ GUARDED_BY(mutex_) = 0;
};

}  // namespace farlift::fabric::soft
