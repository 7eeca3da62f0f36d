// ClientCore: what the handles of one client share: connections, the fabric, the regions, and the
// order in which all of it ends.
//
// Invariants: close() first closes every endpoint, then every registration, then the connections
//             (spec blob 10.3), so a waiter that learns of it finds its memory quiet. After
//             closing() nothing new is registered, opened or sent as a transfer.
//             One fabric domain; one endpoint per RESP connection (Link); registrations are shared
//             by all of them.
// Threads:    any.
// Errors:     farlift::ClientError.
#pragma once

#include "blob/client/fabric_handle.h"
#include "blob/client/region.h"
#include "blob/client/testing.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/net/resp/router.h"
#include <farlift/client.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

namespace farlift::client {

class Link;

class ClientCore {
 public:
  static Expected<std::shared_ptr<ClientCore>> open(ClientOptions options);
  explicit ClientCore(ClientOptions options);
  ~ClientCore();
  ClientCore(const ClientCore&) = delete;
  ClientCore& operator=(const ClientCore&) = delete;

  // Refused after close(), and in the child of a fork.
  Expected<void> check_open() const;
  bool forked() const noexcept { return ::getpid() != process_; }
  bool closing() const noexcept { return closing_.load(std::memory_order_acquire); }
  void close();
  // After closing() was seen: returns once nothing can land any more.
  void await_quiet();

  Expected<std::shared_ptr<Region>> register_region(const fabric::MemoryRef& memory,
                                                    std::shared_ptr<void> owner);

  const ClientOptions& options() const noexcept { return options_; }
  const Clock& clock() const noexcept { return clock_; }
  FabricHandle* fabric() const noexcept { return fabric_.get(); }  // null: no rdma
  resp::Router& command_router() const noexcept { return *command_router_; }
  resp::Router& transfer_router() const noexcept {
    return transfer_router_ ? *transfer_router_ : *command_router_;
  }
  Hooks& hooks() noexcept { return hooks_; }

  // Links announce themselves; false: the client is closing, do not open anything.
  bool add_link(Link* link);
  void remove_link(Link* link);

  struct Counters {
    std::atomic<std::uint64_t> handshakes{0};
    std::atomic<std::uint64_t> transfers{0};
    std::atomic<std::uint64_t> verified_on_landing{0};
    std::atomic<std::uint64_t> verified_afterwards{0};
    std::atomic<int> multis_open{0};
  };
  Counters& counters() noexcept { return counters_; }
  const Counters& counters() const noexcept { return counters_; }

  // In words for the caller; `reason` is preferred to the Error's own words.
  ClientError to_client_error(const Error& error, const std::string& reason) const;

 private:
  Expected<void> connect();
  Expected<std::unique_ptr<resp::Router>> open_router(std::uint32_t connections);

  // Constant after open().
  const ClientOptions options_;
  const pid_t process_;
  SystemClock clock_;
  std::shared_ptr<FabricHandle> fabric_;
  Hooks hooks_;

  std::atomic<bool> closing_{false};
  Counters counters_;

  Mutex mutex_;
  CondVar quiet_changed_;
  bool quiet_ GUARDED_BY(mutex_) = false;
  std::set<Link*> links_ GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Region>> regions_ GUARDED_BY(mutex_);

  // Last: connections end first, and with them the endpoints.
  std::unique_ptr<resp::Router> command_router_;
  std::unique_ptr<resp::Router> transfer_router_;  // null: transfers share the command connection
};

}  // namespace farlift::client
