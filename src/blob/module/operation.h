// Operation: one transfer command from its checks to its reply: what it pins, what it waits for,
// and how it ends.
//
// Invariants: complete() is called exactly once; the reply is made on the main thread, after the
//             outcome says that the fabric is quiet (spec blob 1.4); without that promise there is
//             no reply: the connection is closed instead. A client that is gone gets nothing, its
//             operation drains and frees.
// Threads:    main, except complete(), which any thread may call.
// Errors:     become the texts of spec blob 4 in reply().
#pragma once

#include "blob/module/api.h"
#include "blob/module/binding.h"
#include "blob/module/services.h"
#include "core/base/types.h"
#include "core/store/pool.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

namespace farlift::blob {

enum class OperationKind : std::uint8_t { rdma_get, rdma_set, tcp_get, tcp_set };

// Shared with the fabric until it is quiet; dropped on any thread.
struct Buffers {
  store::ObjectRef object;            // GET
  std::optional<store::Draft> draft;  // SET
};

class Operation {
 public:
  Operation(OperationKind kind, JobId id, std::uint64_t client)
      : kind_(kind), id_(id), client_(client) {}
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Set by the command before the work starts.
  BindingRef binding;
  std::shared_ptr<Buffers> buffers = std::make_shared<Buffers>();
  std::optional<Crc32c> expected_crc;
  std::uint64_t started = 0;
  long long pause_ms = 0;      // test-pause-before-finalize-set-ms
  bool wants_payload = false;  // a server string of the bytes, for replicas
  void hold_key(vk::Ctx* ctx, vk::String* key);
  vk::String* key() const noexcept { return key_; }
  void hold_value(vk::Ctx* ctx, vk::String* value);  // TCP_SET
  vk::String* value() const noexcept { return value_; }

  JobId id() const noexcept { return id_; }

  // Blocks the client: from now on the operation belongs to the server's blocked client. Call
  // before the work starts, or (inline) after it, when completed() is false.
  static Operation& block(vk::Ctx* ctx, std::unique_ptr<Operation> operation);
  // A context that gathers reply bytes off the main thread; after block().
  vk::Ctx* reply_context() const { return vk::GetThreadSafeContext(blocked_); }

  void complete(const transfer::TransferOutcome& outcome);
  bool completed() const noexcept {
    return state_.load(std::memory_order_acquire) == State::completed;
  }

  // Ends the command: commits a SET, counts, replies.
  int reply(vk::Ctx* ctx);

 private:
  enum class State : std::uint8_t { running, blocked, completed };
  static int on_reply(vk::Ctx* ctx, vk::String**, int) noexcept;
  static void on_disconnect(vk::Ctx* ctx, vk::BlockedClient* blocked) noexcept;
  static void on_free(vk::Ctx*, void* self) noexcept;
  void account() const;
  void prepare_payload();
  void unblock();
  int reply_failure(vk::Ctx* ctx, const Error& error) const;
  int reply_set(vk::Ctx* ctx);

  const OperationKind kind_;
  const JobId id_;
  const std::uint64_t client_;
  vk::BlockedClient* blocked_ = nullptr;
  vk::String* key_ = nullptr;
  vk::String* value_ = nullptr;
  vk::String* payload_ = nullptr;
  transfer::TransferOutcome outcome_;
  std::atomic<State> state_{State::running};
};

}  // namespace farlift::blob
