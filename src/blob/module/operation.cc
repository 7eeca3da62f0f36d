#include "blob/module/operation.h"

#include "blob/module/keyspace.h"
#include "blob/module/module.h"
#include "blob/module/reply.h"
#include "blob/wire/texts.h"
#include "core/base/log.h"

#include <string>
#include <utility>

namespace farlift::blob {
namespace {

bool is_rdma(OperationKind kind) {
  return kind == OperationKind::rdma_get || kind == OperationKind::rdma_set;
}
bool is_set(OperationKind kind) {
  return kind == OperationKind::rdma_set || kind == OperationKind::tcp_set;
}

}  // namespace

Operation::~Operation() {
  for (vk::String* string : {key_, value_, payload_}) {
    if (string != nullptr) vk::FreeString(nullptr, string);
  }
}

void Operation::hold_key(vk::Ctx*, vk::String* key) { key_ = vk::HoldString(nullptr, key); }

void Operation::hold_value(vk::Ctx*, vk::String* value) {
  // When the command returns, the server trims the arguments that somebody still holds: it may move
  // their bytes, which another thread is copying by then. What was trimmed here is left alone.
  vk::TrimStringAllocation(value);
  value_ = vk::HoldString(nullptr, value);
}

Operation& Operation::block(vk::Ctx* ctx, std::unique_ptr<Operation> operation) {
  Operation& self = *operation.release();
  self.blocked_ = vk::BlockClient(ctx, on_reply, nullptr, on_free, 0);
  ASSERT(self.blocked_ != nullptr);  // contexts that may not block were refused before
  vk::BlockClientSetPrivateData(self.blocked_, &self);
  vk::SetDisconnectCallback(self.blocked_, on_disconnect);
  // An inline transfer may have been handed to another thread and have ended meanwhile.
  if (self.state_.exchange(State::blocked, std::memory_order_acq_rel) == State::completed) {
    self.state_.store(State::completed, std::memory_order_release);
    self.unblock();
  }
  return self;
}

void Operation::complete(const transfer::TransferOutcome& outcome) {
  outcome_ = outcome;
  if (is_rdma(kind_)) account();
  if (wants_payload && outcome_.status.ok()) {
    // Off the rail: it has other transfers to serve.
    if (module().copiers().submit([this] {
          prepare_payload();
          if (state_.exchange(State::completed, std::memory_order_acq_rel) == State::blocked)
            unblock();
        })) {
      return;
    }
  }
  if (state_.exchange(State::completed, std::memory_order_acq_rel) == State::blocked) unblock();
}

void Operation::prepare_payload() {
  const auto whole = buffers->draft->contiguous();
  if (!whole) return;  // the commit copies piecewise
  payload_ = vk::CreateString(nullptr, reinterpret_cast<const char*>(whole->data()), whole->size());
}

void Operation::unblock() {
  if (pause_ms == 0) {
    vk::UnblockClient(blocked_, this);
    return;
  }
  // Hidden setting: holds a SET before its commit. Timers are the main thread's.
  vk::EventLoopAddOneShot(
      [](void* user) {
        auto* self = static_cast<Operation*>(user);
        vk::CreateTimer(
            module().detached(), self->pause_ms,
            [](vk::Ctx*, void* op) {
              vk::UnblockClient(static_cast<Operation*>(op)->blocked_, op);
            },
            self);
      },
      this);
}

void Operation::account() const {
  Counters& c = module().counters();
  const auto usec = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(outcome_.busy).count());
  const transfer::TransferOutcome& t = outcome_;
  // Bytes of a failed transfer do not count (spec blob 9).
  const std::uint64_t bytes = t.status.ok() ? t.moved.raw() : 0;
  if (kind_ == OperationKind::rdma_get) {
    c.rdma_writes.add(t.operations);
    c.rdma_write_bytes.add(bytes);
    c.rdma_write_usec.add(usec);
  } else {
    c.rdma_reads.add(t.operations);
    c.rdma_read_bytes.add(bytes);
    c.rdma_read_usec.add(usec);
  }
}

int Operation::on_reply(vk::Ctx* ctx, vk::String**, int) noexcept {
  return static_cast<Operation*>(vk::GetBlockedClientPrivateData(ctx))->reply(ctx);
}

void Operation::on_disconnect(vk::Ctx* ctx, vk::BlockedClient* blocked) noexcept {
  auto* self = static_cast<Operation*>(vk::BlockClientGetPrivateData(blocked));
  if (self == nullptr || !is_rdma(self->kind_)) return;
  module().counters().rdma_cancelled.add();
  module().services().cancel(self->id_);
  // The binding is still there: the connection lives, the server unblocked it on its own (a change
  // of role, say) and has answered for us while the fabric is busy. That answer must not arrive.
  if (module().sessions().find(self->client_) != nullptr)
    vk::DeauthenticateAndCloseClient(ctx, self->client_);
}

void Operation::on_free(vk::Ctx*, void* self) noexcept { delete static_cast<Operation*>(self); }

int Operation::reply(vk::Ctx* ctx) {
  if (kind_ == OperationKind::tcp_get) return vk::kOk;  // the bytes were gathered by the copier
  const Status& status = outcome_.status;
  if (!status.ok()) return reply_failure(ctx, status.error());
  if (is_set(kind_)) return reply_set(ctx);
  return reply_receipt(ctx, buffers->object->length(), buffers->object->crc());
}

int Operation::reply_failure(vk::Ctx* ctx, const Error& error) const {
  Counters& c = module().counters();
  const bool get = kind_ == OperationKind::rdma_get;
  (get ? c.rdma_write_errors : c.rdma_read_errors).add();
  if (!error.quiet) {
    c.rdma_not_quiet.add();
    logf(LogLevel::warning,
         "client %llu: closed without a reply, since its transfer may still be moving: %s",
         static_cast<unsigned long long>(client_), error.describe().c_str());
    vk::DeauthenticateAndCloseClient(ctx, client_);
    return vk::kOk;
  }
  return reply_error(ctx, get ? wire::text::kWriteFailed : wire::text::kReadFailed,
                     error.describe());
}

int Operation::reply_set(vk::Ctx* ctx) {
  const Crc32c crc = outcome_.crc;
  if (expected_crc && *expected_crc != crc) {
    module().counters().rdma_crc_mismatches.add();
    return reply_error(ctx, wire::text::kCrcMismatch);
  }
  store::ObjectRef object = std::move(*buffers->draft).seal(crc);
  buffers->draft.reset();
  return reply_committed(
      ctx, commit(ctx, key_, std::move(object), started, payload_ != nullptr ? payload_ : value_));
}

}  // namespace farlift::blob
