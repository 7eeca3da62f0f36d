// What a Python caller lends to the one-sided client: a buffer object or a range of addresses,
// registered or for one call only.
//
// Invariants: while a Lent exists, the memory it names can neither move nor go
//             away; a registration that is closed while calls use it ends after the last of them.
// Threads:    under the GIL, which close() gives up for a moment; spans from anywhere.
// Errors:     TypeError for an object without a fitting buffer, ValueError for a range past its
//             end, RdmaError for memory that cannot be registered, or that is closed.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <sys/types.h>

#include "buffer.h"
#include "farlift/kv.h"

namespace farlift::python {

// A registration and what keeps its bytes alive.
class KvRegistered {
 public:
  KvRegistered(KvMemory memory, std::unique_ptr<BorrowedBuffer> buffer, pybind11::object owner);
  KvRegistered(const KvRegistered&) = delete;
  KvRegistered& operator=(const KvRegistered&) = delete;
  ~KvRegistered();
  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  const pid_t process_;
  const std::span<std::byte> bytes_;
  std::optional<KvMemory> memory_;
  std::unique_ptr<BorrowedBuffer> buffer_;  // or, of an address:
  pybind11::object owner_;
};

// farlift._kv.Memory
class PyKvMemory {
 public:
  explicit PyKvMemory(std::shared_ptr<KvRegistered> state);
  ~PyKvMemory();
  PyKvMemory(const PyKvMemory&) = delete;
  PyKvMemory& operator=(const PyKvMemory&) = delete;

  std::size_t size() const noexcept { return size_; }
  std::uintptr_t address() const noexcept { return address_; }
  bool closed() const noexcept { return state_ == nullptr; }
  void close();
  // Throws RdmaError when closed.
  std::shared_ptr<KvRegistered> state() const;

 private:
  const std::size_t size_;
  const std::uintptr_t address_;
  std::shared_ptr<KvRegistered> state_;
};

// The memory of one request, held until the call has returned.
class Lent {
 public:
  // `target` is a buffer object or a PyKvMemory; the range is checked against it. A length of
  // nothing means to the end.
  Lent(const pybind11::handle& target, std::size_t offset, std::optional<std::size_t> length,
       bool writable);
  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::unique_ptr<BorrowedBuffer> buffer_;
  std::shared_ptr<KvRegistered> registered_;
  std::span<std::byte> bytes_;
};

}  // namespace farlift::python
