// The four commands that move bytes: RDMA_GET, RDMA_SET, TCP_GET, TCP_SET.
#include "blob/module/commands.h"
#include "blob/module/evictor.h"
#include "blob/module/keyspace.h"
#include "blob/module/module.h"
#include "blob/module/operation.h"
#include "blob/module/reply.h"
#include "blob/module/words.h"
#include "blob/wire/operands.h"
#include "blob/wire/texts.h"

#include <memory>
#include <utility>

namespace farlift::blob {
namespace {

// Objects up to this length are copied in and out of RESP by the main thread itself: two thread
// hops cost more than the bytes.
constexpr std::uint64_t kInlineBytesMax = 256u << 10;
// The same for transfers. What a plain GET of this length costs the main thread is more. A SET is
// landed and hashed by the main thread; a GET is only sent, and within a host only asked
// for (decision 0015).
constexpr std::uint64_t kInlineSetBytesMax = 1u << 20;
constexpr std::uint64_t kInlineGetBytesMax = 4u << 20;

bool small(Length length) { return length.raw() <= kInlineBytesMax; }

// The replication stream and the AOF cannot wait, and their order is law.
bool must_not_block(vk::Ctx* ctx) {
  return (vk::GetContextFlags(ctx) & (vk::kCtxReplicated | vk::kCtxLoading)) != 0;
}

// EXEC, module calls and whatever else forbids blocking (state rule 1 of spec blob 4), and
// shutdown. nullptr: go on.
const char* context_refusal(vk::Ctx* ctx) {
  if (module().stopping()) return wire::text::kShuttingDown;
  const int flags = vk::GetContextFlags(ctx);
  const bool stream = (flags & (vk::kCtxReplicated | vk::kCtxLoading)) != 0;
  if (!stream && (flags & (vk::kCtxDenyBlocking | vk::kCtxMulti)) != 0)
    return wire::text::kInTransaction;
  return nullptr;
}

std::vector<transfer::RemoteWindow> windows(const std::vector<wire::Region>& regions) {
  std::vector<transfer::RemoteWindow> out;
  out.reserve(regions.size());
  for (const wire::Region& r : regions) out.push_back({r.key, r.addr, r.length});
  return out;
}

TransferAsk ask_for(Operation& op, fabric::OpKind kind, const std::vector<wire::Region>& regions,
                    Length length) {
  TransferAsk ask;
  ask.id = op.id();
  ask.binding = op.binding;
  ask.kind = kind;
  ask.remote = windows(regions);
  ask.length = length;
  ask.keep = op.buffers;
  Buffers& buffers = *op.buffers;
  if (kind == fabric::OpKind::write) {
    for (std::size_t i = 0; i < buffers.object->extents(); ++i)
      ask.local.push_back(buffers.object->lend(i));
    ask.registration = [&buffers](std::size_t rail) { return buffers.object->registration(rail); };
  } else {
    for (std::size_t i = 0; i < buffers.draft->extents(); ++i)
      ask.local.push_back(buffers.draft->span(i));
    ask.registration = [&buffers](std::size_t rail) { return buffers.draft->registration(rail); };
  }
  ask.done = [&op](const transfer::TransferOutcome& outcome) { op.complete(outcome); };
  return ask;
}

int run(vk::Ctx* ctx, std::unique_ptr<Operation> op, TransferAsk ask) {
  Services& services = module().services();
  const bool get = ask.kind == fabric::OpKind::write;
  const std::uint64_t inline_max = get ? kInlineGetBytesMax : kInlineSetBytesMax;
  if (ask.length.raw() <= inline_max && services.transfer_inline(ask)) {
    if (op->completed()) return op->reply(ctx);
    Operation::block(ctx, std::move(op));
    return vk::kOk;
  }
  Operation::block(ctx, std::move(op));
  services.transfer(std::move(ask));
  return vk::kOk;
}

std::unique_ptr<Operation> make_operation(vk::Ctx* ctx, OperationKind kind, vk::String* key) {
  auto op = std::make_unique<Operation>(kind, module().next_job(), vk::GetClientId(ctx));
  op->hold_key(ctx, key);
  return op;
}

int reply_no_room(vk::Ctx* ctx, const Error& error) {
  if (error.code != Errc::too_large) module().counters().dram_pool_exhausted.add();
  return reply_error(ctx, reserve_text(error));
}

int reply_payload(vk::Ctx* ctx, const store::Object& object) {
  if (const auto whole = object.contiguous()) {
    return vk::ReplyWithStringBuffer(ctx, reinterpret_cast<const char*>(whole->data()),
                                     whole->size());
  }
  std::vector<std::byte> whole;
  whole.reserve(object.length().raw());
  for (std::size_t i = 0; i < object.extents(); ++i) {
    whole.insert(whole.end(), object.span(i).begin(), object.span(i).end());
  }
  return vk::ReplyWithStringBuffer(ctx, reinterpret_cast<const char*>(whole.data()), whole.size());
}

}  // namespace

int rdma_get(vk::Ctx* ctx, vk::String** argv, int argc) noexcept {
  if (const char* refusal = context_refusal(ctx)) return reply_error(ctx, refusal);
  const auto operands = wire::parse_rdma_get(operand_words(argv, argc));
  if (!operands) return reply_refusal(ctx, operands.error());
  auto binding = module().sessions().find(vk::GetClientId(ctx));
  if (binding == nullptr) return reply_error(ctx, wire::text::kNoSession);
  Lookup found = lookup(ctx, argv[1], true);
  if (found.found == Found::absent) return reply_nil(ctx);
  if (found.found == Found::other_type) return reply_error(ctx, wire::text::kWrongType);
  const Length length = found.object->length();
  if (wire::coverage(operands->regions) < length) return reply_error(ctx, wire::text::kCoverage);
  module().counters().dram_hits.add();
  auto op = make_operation(ctx, OperationKind::rdma_get, argv[1]);
  op->binding = std::move(binding);
  op->buffers->object = std::move(found.object);
  TransferAsk ask = ask_for(*op, fabric::OpKind::write, operands->regions, length);
  return run(ctx, std::move(op), std::move(ask));
}

int rdma_set(vk::Ctx* ctx, vk::String** argv, int argc) noexcept {
  if (const char* refusal = context_refusal(ctx)) return reply_error(ctx, refusal);
  const auto operands =
      wire::parse_rdma_set(operand_words(argv, argc), module().settings().object_max());
  if (!operands) return reply_refusal(ctx, operands.error());
  auto binding = module().sessions().find(vk::GetClientId(ctx));
  if (binding == nullptr) return reply_error(ctx, wire::text::kNoSession);
  if (wire::coverage(operands->regions) < operands->length)
    return reply_error(ctx, wire::text::kCoverage);
  if (lookup(ctx, argv[1], false).found == Found::other_type)
    return reply_error(ctx, wire::text::kWrongType);
  auto draft = reserve_or_evict(ctx, operands->key, operands->length);
  if (!draft.ok()) return reply_no_room(ctx, draft.error());
  auto op = make_operation(ctx, OperationKind::rdma_set, argv[1]);
  op->binding = std::move(binding);
  op->buffers->draft.emplace(std::move(draft).value());
  op->expected_crc = operands->crc;
  op->started = module().next_start();
  op->pause_ms = module().settings().get().test_pause_before_finalize_set_ms;
  // Asking costs more than the copy of what the main thread moves itself: there the commit asks.
  op->wants_payload = operands->length.raw() > kInlineSetBytesMax && propagation_wanted();
  TransferAsk ask = ask_for(*op, fabric::OpKind::read, operands->regions, operands->length);
  if (op->pause_ms > 0) {  // an inline transfer could end before there is a client to hold back
    Operation::block(ctx, std::move(op));
    module().services().transfer(std::move(ask));
    return vk::kOk;
  }
  return run(ctx, std::move(op), std::move(ask));
}

int tcp_get(vk::Ctx* ctx, vk::String** argv, int argc) noexcept {
  if (const char* refusal = context_refusal(ctx)) return reply_error(ctx, refusal);
  const auto key = wire::parse_tcp_get(operand_words(argv, argc));
  if (!key) return reply_refusal(ctx, key.error());
  Lookup found = lookup(ctx, argv[1], true);
  if (found.found == Found::absent) return reply_nil(ctx);
  if (found.found == Found::other_type) return reply_error(ctx, wire::text::kWrongType);
  module().counters().dram_hits.add();
  if (module().settings().get().bench_mode != 0) {
    return vk::ReplyWithLongLong(ctx, static_cast<long long>(found.object->length().raw()));
  }
  if (small(found.object->length()) || must_not_block(ctx))
    return reply_payload(ctx, *found.object);
  auto made = make_operation(ctx, OperationKind::tcp_get, argv[1]);
  made->buffers->object = std::move(found.object);
  Operation& op = Operation::block(ctx, std::move(made));
  // Made here: only this thread may look at the client.
  vk::Ctx* gather = op.reply_context();
  const auto copy = [&op, gather] {
    reply_payload(gather, *op.buffers->object);
    vk::FreeThreadSafeContext(gather);
    op.complete({});
  };
  if (!module().copiers().submit(copy)) copy();
  return vk::kOk;
}

int tcp_set(vk::Ctx* ctx, vk::String** argv, int argc) noexcept {
  if (const char* refusal = context_refusal(ctx)) return reply_error(ctx, refusal);
  const bool stream = must_not_block(ctx);
  // A primary's stream and an AOF hold what was accepted under the limit of its day.
  const Length object_max = stream ? Length(UINT64_MAX) : module().settings().object_max();
  const auto operands = wire::parse_tcp_set(operand_words(argv, argc), object_max);
  if (!operands) return reply_refusal(ctx, operands.error());
  if (lookup(ctx, argv[1], false).found == Found::other_type)
    return reply_error(ctx, wire::text::kWrongType);
  const Length length(operands->value.size());
  auto draft = stream ? module().store().reserve(length, BlobStore::Growth::at_any_cost)
                      : reserve_or_evict(ctx, operands->key, length);
  if (!draft.ok()) return reply_no_room(ctx, draft.error());
  const std::uint64_t started = module().next_start();
  const long long pause_ms = module().settings().get().test_pause_before_finalize_set_ms;
  if (stream || (small(length) && pause_ms == 0)) {
    const Crc32c crc = draft->fill(std::as_bytes(std::span(operands->value)));
    return reply_committed(ctx,
                           commit(ctx, argv[1], std::move(*draft).seal(crc), started, argv[2]));
  }
  auto made = make_operation(ctx, OperationKind::tcp_set, argv[1]);
  made->hold_value(ctx, argv[2]);
  made->buffers->draft.emplace(std::move(draft).value());
  made->started = started;
  made->pause_ms = pause_ms;
  Operation& op = Operation::block(ctx, std::move(made));
  const auto fill = [&op] {
    transfer::TransferOutcome outcome;
    outcome.crc = op.buffers->draft->fill(std::as_bytes(std::span(view(op.value()))));
    op.complete(outcome);
  };
  if (!module().copiers().submit(fill)) fill();
  return vk::kOk;
}

}  // namespace farlift::blob
