// What each request of the control port does (spec s3 6): decisions and replies. Sockets and
// threads are in control.cc.
#include "core/codec/text.h"
#include "s3/volume/control.h"
#include "s3/volume/control_connection.h"
#include "s3/wire/fid.h"

#include <algorithm>
#include <utility>

namespace farlift::s3::volume {
namespace {

ControlReply refusal(std::uint32_t seq, ControlCode code, std::string message) {
  ControlReply reply;
  reply.seq = seq;
  reply.code = code;
  reply.message = std::move(message);
  return reply;
}

// none: valid.
ControlCode code_of(JwtVerdict verdict) noexcept {
  switch (verdict) {
    case JwtVerdict::valid:
      return ControlCode::none;
    case JwtVerdict::missing:
      return ControlCode::auth_missing;
    case JwtVerdict::expired:
      return ControlCode::auth_expired;
    case JwtVerdict::wrong_fid:
      return ControlCode::auth_fid;
    case JwtVerdict::invalid:
      break;
  }
  return ControlCode::auth_invalid;
}

// Of what volumes and their files say.
ControlCode code_of(Errc code) noexcept {
  switch (code) {
    case Errc::not_found:
      return ControlCode::not_found;
    case Errc::permission:
      return ControlCode::cookie;
    case Errc::unsupported:
    case Errc::exhausted:
      return ControlCode::read_only;
    case Errc::already_exists:
    case Errc::invalid_argument:
      return ControlCode::bad_request;
    case Errc::checksum:
      return ControlCode::crc;
    case Errc::out_of_range:
      return ControlCode::range;
    default:
      return ControlCode::internal;
  }
}

ControlCode code_of(const PushOutcome& outcome) noexcept {
  const Errc code = outcome.status.error().code;
  switch (outcome.stage) {
    case PushStage::budget:
    case PushStage::memory:
      return ControlCode::budget;
    case PushStage::read:
      return code_of(code);
    case PushStage::send:
      break;
  }
  return code == Errc::timeout ? ControlCode::deadline : ControlCode::rdma;
}

HandleState state_of(UploadState state) noexcept {
  switch (state) {
    case UploadState::prepared:
      return HandleState::prepared;
    case UploadState::committed:
      return HandleState::committed;
    case UploadState::not_committed:
      return HandleState::not_committed;
    case UploadState::unknown:
      break;
  }
  return HandleState::unknown;
}

NeedleRef ref_of(const Fid& fid) noexcept {
  return {VolumeId(fid.volume), {fid.needle, fid.cookie}};
}

std::optional<UploadHandle> handle_of(std::string_view text) {
  UploadHandle handle;
  const auto bytes = codec::hex_decode(text);
  if (!bytes.ok() || bytes->size() != handle.size()) return std::nullopt;
  std::copy(bytes->begin(), bytes->end(), handle.begin());
  return handle;
}

}  // namespace

Result<RemoteTarget> Control::target_of(const Token& token) const {
  if (options_.target_of) return options_.target_of(token);
  const bool allowed = options_.targets ? options_.targets->allow(token.gid, std::nullopt)
                                        : may_be_target(token.gid);
  if (!allowed) return Error::make(Errc::permission, "the token names a forbidden address");
  TRY_ASSIGN(const auto bytes, socket_address_of(token));
  RemoteTarget target;
  TRY_ASSIGN(target.peer, fabric::Address::from_bytes(bytes));
  target.key = provider_key(options_.dc_key, token.rkey);
  target.addr = token.addr;
  return target;
}

Result<Token> Control::token_of(const Window& window) const {
  if (options_.token_of) return options_.token_of(window);
  TRY_ASSIGN(const GidAndPort at, gid_of(window.address().bytes()));
  Token token;
  token.addr = window.addr();
  token.size = Length(window.bytes().size());
  token.rkey = static_cast<std::uint32_t>(window.key().raw());
  token.dctn = at.port;
  token.gid = at.gid;
  // A key that another DC key made could never be opened by who holds ours.
  if (provider_key(options_.dc_key, token.rkey) != window.key())
    return Error::make(Errc::internal, "key below another DC key");
  return token;
}

void Control::run(Task task) {
  if (task.request.op == ControlOp::push) return push(std::move(task));
  ControlReply reply;
  switch (task.request.op) {
    case ControlOp::prepare:
      reply = prepare(task);
      break;
    case ControlOp::commit:
      reply = commit(task);
      break;
    case ControlOp::abort:
    case ControlOp::query:
      reply = about_handle(task);
      break;
    case ControlOp::push:
    case ControlOp::ping:
      reply.ok = true;
      break;
  }
  reply.seq = task.request.seq;
  answer(*task.connection, reply);
  task.connection->end();
}

void Control::push(Task task) {
  const ControlRequest& request = task.request;
  const auto connection = task.connection;
  const auto refuse = [&](ControlCode code, std::string message) {
    ControlReply reply = refusal(request.seq, code, std::move(message));
    reply.nothing_written = true;
    answer(*connection, reply);
    connection->end();
  };
  const ControlCode auth = code_of(parts_.access.check_push(request.jwt, request.fid));
  if (auth != ControlCode::none) return refuse(auth, "the read JWT was refused");
  const auto fid = Fid::parse(request.fid);
  if (!fid.ok()) return refuse(ControlCode::bad_request, "malformed fid");
  const auto volume = parts_.store.find(VolumeId(fid->volume));
  if (!volume.ok()) return refuse(ControlCode::not_found, "no such volume");
  auto needle = (*volume)->find({fid->needle, fid->cookie});
  if (!needle.ok()) return refuse(code_of(needle.code()), needle.error().describe());
  if (!needle->plain()) return refuse(ControlCode::unsupported, "compressed or a manifest");
  if (!fits(Offset(request.offset), Length(request.size), needle->length()))
    return refuse(ControlCode::range, "past the end of the needle");
  if (!fits(Offset(request.window_offset), Length(request.size), request.token.size))
    return refuse(ControlCode::range, "past the end of the window");
  if (request.size == 0) return refuse(ControlCode::bad_request, "nothing to push");
  auto target = target_of(request.token);
  if (!target.ok()) return refuse(ControlCode::rdma, target.error().describe());
  target->addr = target->addr + Offset(request.window_offset);
  PushRequest job{std::move(needle).value(), Offset(request.offset), Length(request.size),
                  std::move(target).value(), task.deadline};
  parts_.mover.push(std::move(job), [this, connection, seq = request.seq,
                                     size = request.size](const PushOutcome& outcome) {
    ControlReply reply;
    reply.seq = seq;
    if (outcome.status.ok()) {
      reply.ok = true;
      reply.bytes = outcome.written.raw();
      reply.crc32c = outcome.crc;
      pushes_done_.fetch_add(1, std::memory_order_relaxed);
      pushed_bytes_.fetch_add(size, std::memory_order_relaxed);
    } else {
      reply.code = code_of(outcome);
      reply.message = outcome.status.error().describe();
      reply.nothing_written = outcome.untouched;
    }
    answer(*connection, reply);
    connection->end();
  });
}

ControlReply Control::prepare(const Task& task) {
  const ControlRequest& request = task.request;
  const auto refuse = [&](ControlCode code, std::string message) {
    return refusal(request.seq, code, std::move(message));
  };
  const ControlCode auth = code_of(parts_.access.check(Right::write, request.jwt, request.fid));
  if (auth != ControlCode::none) return refuse(auth, "the upload JWT was refused");
  const auto fid = Fid::parse(request.fid);
  if (!fid.ok()) return refuse(ControlCode::bad_request, "malformed fid");
  if (request.size == 0 || request.size > options_.max_transfer.raw())
    return refuse(ControlCode::range, "size outside what this volume takes");
  const NeedleRef needle = ref_of(*fid);
  const Status room = parts_.writes.check(needle, Length(request.size));
  if (!room.ok()) return refuse(code_of(room.error().code), room.error().describe());
  auto window = parts_.mover.open_window(Length(request.size), task.deadline);
  if (!window.ok()) {
    const Errc code = window.code();
    const bool memory = code == Errc::timeout || code == Errc::too_large ||
                        code == Errc::no_memory || code == Errc::exhausted;
    return refuse(memory ? ControlCode::budget : ControlCode::internal, window.error().describe());
  }
  const auto token = token_of(**window);
  if (!token.ok()) return refuse(ControlCode::internal, token.error().describe());
  const auto handle = parts_.uploads.add(std::move(window).value(), needle, task.connection->id());
  if (!handle.ok()) return refuse(ControlCode::budget, handle.error().describe());
  prepares_done_.fetch_add(1, std::memory_order_relaxed);
  ControlReply reply;
  reply.ok = true;
  reply.handle = codec::hex_encode(*handle);
  reply.token = *token;
  reply.expires_ms = kPreparedLifeMs;
  return reply;
}

ControlReply Control::commit(const Task& task) {
  const ControlRequest& request = task.request;
  const auto handle = handle_of(request.handle);
  const auto fid = Fid::parse(request.fid);
  if (!handle || !fid.ok()) {
    ControlReply reply = refusal(request.seq, ControlCode::bad_request, "malformed handle or fid");
    reply.state = HandleState::not_committed;
    return reply;
  }
  const CommitOutcome outcome =
      parts_.uploads.commit(*handle, ref_of(*fid), Length(request.size), request.crc32c);
  ControlReply reply;
  reply.state = state_of(outcome.state);
  switch (outcome.code) {
    case CommitCode::ok:
      reply.ok = true;
      reply.size = outcome.write.length.raw();
      reply.etag = crc_text(outcome.write.crc);
      commits_.fetch_add(1, std::memory_order_relaxed);
      committed_bytes_.fetch_add(outcome.write.length.raw(), std::memory_order_relaxed);
      break;
    case CommitCode::unknown_handle:
      reply.code = ControlCode::unknown_handle;
      reply.state = HandleState::unknown;
      reply.message = "no such handle";
      break;
    case CommitCode::expired:
      reply.code = ControlCode::expired;
      reply.message = "the prepared buffer is gone";
      break;
    case CommitCode::bad_request:
      reply.code = ControlCode::bad_request;
      reply.message = "another fid or size than was prepared";
      break;
    case CommitCode::crc:
      reply.code = ControlCode::crc;
      reply.message = "the buffer does not have this CRC";
      break;
    case CommitCode::failed:
      reply.code = code_of(outcome.write.status.error().code);
      reply.message = outcome.write.status.error().describe();
      break;
  }
  return reply;
}

ControlReply Control::about_handle(const Task& task) {
  const ControlRequest& request = task.request;
  const auto handle = handle_of(request.handle);
  if (!handle) return refusal(request.seq, ControlCode::bad_request, "malformed handle");
  ControlReply reply;
  reply.ok = true;
  reply.state = state_of(request.op == ControlOp::abort ? parts_.uploads.abort(*handle)
                                                        : parts_.uploads.query(*handle));
  return reply;
}

}  // namespace farlift::s3::volume
