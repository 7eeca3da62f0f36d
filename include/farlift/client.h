// Client: a synchronous connection to Valkey that moves large values straight between the server
// and registered memory.
//
//   farlift::ClientOptions options;
//   options.rdma = farlift::RdmaConfiguration{};
//   auto client = farlift::Client::create(options);
//   auto buffer = farlift::RdmaBuffer::allocate(size);
//   auto region = client->register_rdma_region(*buffer);
//   client->rdma_set("key", *region->window());
//   auto receipt = client->rdma_get("key", *region->window());   // empty optional: no such key
//
// Invariants (spec blob 10.2)
//   After a transfer returned, with success or not, nothing touches the window's memory until the
//   next transfer.
//   A transfer is sent at most once; when its connection is lost the outcome is unknown and the
//   region is Closed.
//   BLOB.RDMA_* never leaves this client except as a transfer.
// Threads: every member may be called from any thread. close() from another thread is the only way
//          to end a transfer. After fork() the child must not use it: every call is refused there
//          with ErrorKind::closing.
// Errors:  as returned; nothing is thrown (allocation failure ends the program as usual).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farlift/expected.h"
#include "farlift/export.h"
#include "farlift/options.h"
#include "farlift/rdma.h"
#include "farlift/reply.h"

namespace farlift {

namespace client {
class ClientCore;
struct Hooks;
}  // namespace client

class FARLIFT_API Client {
 public:
  // Most windows that one transfer may name.
  static constexpr std::size_t kWindowsMax = 256;

  // Connects, authenticates, and opens the fabric when `rdma` is set. configuration: options
  // exclude each other, or this machine cannot serve the provider. connection: no server.
  static Expected<Client> create(ClientOptions options);

  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();  // closes

  // --- registered memory ---
  // `memory` is never copied or freed here. `owner`, if given, is dropped once the region is closed
  // and nothing can touch the memory any more, on whichever thread closed it and outside every lock
  // of the client; without it the caller keeps the memory until closed() is true. Empty memory:
  // rdma.
  Expected<RdmaRegion> register_rdma_region(std::span<std::byte> memory,
                                            std::shared_ptr<void> owner = nullptr);
  Expected<RdmaRegion> register_rdma_region(const RdmaBuffer& buffer);

  // --- transfers ---
  // Reads the value into the window; empty: no such key, window untouched. The region stays Open
  // unless what happened leaves doubt about its memory; read region.closed() after an error.
  Expected<std::optional<RdmaReadReceipt>> rdma_get(std::string_view key, const RdmaWindow& window);
  // The value fills the windows in order, each before the next. At most kWindowsMax; they must not
  // overlap.
  Expected<std::optional<RdmaReadReceipt>> rdma_get(std::string_view key,
                                                    std::span<const RdmaWindow> windows);
  // Stores the window's bytes. With a checksum the server stores nothing unless it received bytes
  // of that CRC-32C.
  Expected<void> rdma_set(std::string_view key, const RdmaWindow& window,
                          std::optional<std::uint32_t> checksum = std::nullopt);
  Expected<void> rdma_set(std::string_view key, std::span<const RdmaWindow> windows,
                          std::optional<std::uint32_t> checksum = std::nullopt);

  // --- large values inside RESP, for callers without registered memory ---
  Expected<std::optional<std::string>> tcp_get(std::string_view key);
  // The value into `into`, received there without a copy; returns its length. Longer than `into`:
  // request, and nothing of `into` is meant.
  Expected<std::optional<std::size_t>> tcp_get(std::string_view key, std::span<std::byte> into);
  Expected<void> tcp_set(std::string_view key, std::string_view value);
  Expected<std::optional<BlobInfo>> blob_info(std::string_view key);

  // --- ordinary commands ---
  // Any command but BLOB.RDMA_* (request, nothing sent). An error reply is ErrorKind::request with
  // the server's text.
  Expected<Reply> command(std::span<const std::string_view> arguments);
  Expected<Reply> command(std::initializer_list<std::string_view> arguments);
  // Sends all, then collects all; error replies are items of the result. In cluster mode each goes
  // to its node.
  Expected<std::vector<Reply>> pipeline(const std::vector<std::vector<std::string>>& commands);
  // MULTI, the commands, EXEC, sent together; empty: a watched key changed. In cluster mode all
  // keys share a slot.
  Expected<std::optional<std::vector<Reply>>> transaction(
      const std::vector<std::vector<std::string>>& commands);
  // MULTI, EXEC and DISCARD may also be sent by command(), standalone only; while one is open
  // transfers are refused.
  bool multi_open() const noexcept;

  // Cuts the server off from every region, then wakes waiters with ErrorKind::closing. Idempotent.
  void close();
  bool closed() const noexcept;

  // Counters of this client, for tools and tests.
  struct Statistics {
    std::uint64_t handshakes = 0;           // BLOB.RDMA_HELLO sent
    std::uint64_t transfers = 0;            // commands sent
    std::uint64_t verified_on_landing = 0;  // receipts whose checksum came from the landing pass
    std::uint64_t verified_afterwards = 0;  // receipts that were hashed after the reply
    std::uint64_t connections_opened = 0;
  };
  Statistics statistics() const;

 private:
  friend struct client::Hooks;
  explicit Client(std::shared_ptr<client::ClientCore> core) noexcept;
  std::shared_ptr<client::ClientCore> core_;
};

}  // namespace farlift
