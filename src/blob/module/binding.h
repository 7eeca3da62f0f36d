// Binding: the association made by BLOB.RDMA_HELLO between one RESP connection and one fabric
// address (spec blob 1.5). Sessions holds the live ones by client id; transfers in flight hold
// theirs, so that its entries in the address vectors are released only after the last of them has
// drained (spec blob 3.1).
//
// Threads: made, looked up and dropped on the main thread; `fallback` is set once, from a rail's
//          thread.
// Errors:  none.
#pragma once

#include "core/fabric/fabric.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

namespace farlift::blob {

class Binding {
 public:
  using Release = std::function<void(const Binding&)>;
  Binding(fabric::Address address, Release release)
      : address_(address), release_(std::move(release)) {}
  ~Binding() { release_(*this); }
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

  const fabric::Address& address() const noexcept { return address_; }

  // True once the peer turned out not to speak the first provider (fabric-provider Auto).
  std::atomic<bool> fallback{false};

 private:
  const fabric::Address address_;
  const Release release_;
};
using BindingRef = std::shared_ptr<Binding>;

class Sessions {
 public:
  BindingRef find(std::uint64_t client) const {
    const auto at = by_client_.find(client);
    return at == by_client_.end() ? nullptr : at->second;
  }
  void add(std::uint64_t client, BindingRef binding) {
    by_client_.emplace(client, std::move(binding));
  }
  void drop(std::uint64_t client) { by_client_.erase(client); }
  void clear() { by_client_.clear(); }
  std::size_t size() const noexcept { return by_client_.size(); }

 private:
  std::unordered_map<std::uint64_t, BindingRef> by_client_;
};

}  // namespace farlift::blob
