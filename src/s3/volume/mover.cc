#include "s3/volume/mover.h"

#include "core/base/log.h"
#include "core/digest/crc32c.h"

#include <algorithm>
#include <utility>

namespace farlift::s3::volume {
namespace {

// How long a cancelled piece is waited for before its end is left to the rail thread.
constexpr Duration kCancelPatience = std::chrono::milliseconds(200);

constexpr std::size_t kForgetBytes = 4096;

// What a piece lends. Declared so that the registration ends before the memory, and the memory
// before its share of the budget.
struct Lent {
  PinBudget::Pass pass;
  Buffer buffer;
  std::unique_ptr<fabric::Registration> registration;
};

}  // namespace

Status Window::close() {
  // Where an endpoint is the fence it ends first, registrations after it (core/fabric/fabric.h).
  if (endpoint_ != nullptr) TRY(endpoint_->close());
  if (registration_ != nullptr) {
    TRY(registration_->close());
    registration_.reset();
  }
  endpoint_.reset();
  pass_.leave();
  return {};
}

Window::~Window() {
  const Status closed = close();
  if (!closed.ok()) {
    // Memory that may still be written to is never used again.
    logf(LogLevel::error, "a receive window could not be closed: %s",
         closed.error().describe().c_str());
    ASSERT(closed.ok());
  }
}

// One piece on its way: what it lends, and who hears of its end. Either the pushing thread waits
// for it, or, when it has waited long enough, leaves the reply here.
struct Mover::Piece {
  Mutex mutex;
  CondVar ended;
  bool done GUARDED_BY(mutex) = false;
  transfer::TransferOutcome outcome GUARDED_BY(mutex);
  std::function<void(const transfer::TransferOutcome&)> left_behind GUARDED_BY(mutex);

  void end(const transfer::TransferOutcome& how) {
    std::function<void(const transfer::TransferOutcome&)> call;
    {
      MutexLock lock(mutex);
      done = true;
      outcome = how;
      call = std::move(left_behind);
      ended.notify_all();
    }
    if (call) call(how);
  }
};

Mover::Mover(fabric::Domain& domain, const Clock& clock, MoverOptions options)
    : domain_(domain),
      clock_(clock),
      options_(std::move(options)),
      budget_(options_.budget.raw() > 0 ? options_.budget : PinBudget::from_rlimit(), clock) {}

Result<std::unique_ptr<Mover>> Mover::create(fabric::Domain& domain, const Clock& clock,
                                             MoverOptions options) {
  std::unique_ptr<Mover> mover(new Mover(domain, clock, std::move(options)));
  if (domain.info().fence_mode == fabric::FenceMode::mr) {
    TRY_ASSIGN(mover->endpoint_, domain.open_target(mover->options_.target));
  }
  TRY_ASSIGN(mover->runner_, transfer::Runner::create(domain, clock, mover->options_.runner));
  return mover;
}

Mover::~Mover() { stop(); }

void Mover::stop() {
  if (runner_ != nullptr) runner_->stop();
}

Result<std::unique_ptr<fabric::Registration>> Mover::register_buffer(const Buffer& buffer,
                                                                     fabric::Access access) {
  auto registration = domain_.register_memory({buffer.bytes(), buffer.memfd(), 0}, access);
  // Not tried again in a loop: less is asked for, for a while (spec s3 10).
  if (!registration.ok() &&
      (registration.code() == Errc::no_memory || registration.code() == Errc::exhausted))
    budget_.registration_failed();
  return registration;
}

void Mover::push(PushRequest request, std::function<void(const PushOutcome&)> reply) {
  PushOutcome outcome;
  const auto fail = [&](PushStage stage, const Error& error) {
    outcome.status = error;
    outcome.stage = stage;
    reply(outcome);
  };
  const std::uint64_t slice = budget_.slice_max().raw();
  // More than one piece: what the last one finds must not come after the first was sent.
  if (request.length == request.needle.length() && request.length.raw() > slice) {
    const Status right = request.needle.verify();
    if (!right.ok()) return fail(PushStage::read, right.error());
  }
  for (std::uint64_t at = 0; at < request.length.raw();) {
    const Length length(std::min(slice, request.length.raw() - at));
    // Lent together, and ended in this order from the last: registration, memory, budget.
    auto job = std::make_shared<Lent>();
    auto pass = budget_.enter(PinBudget::cost(0, length), PinUse::push, request.deadline);
    if (!pass.ok()) return fail(PushStage::budget, pass.error());
    job->pass = std::move(pass).value();
    auto buffer = buffers_->take(length);
    if (!buffer.ok()) return fail(PushStage::memory, buffer.error());
    job->buffer = std::move(buffer).value();
    const auto crc = request.needle.read(request.offset + Length(at), job->buffer.bytes());
    if (!crc.ok()) return fail(PushStage::read, crc.error());
    auto registration = register_buffer(job->buffer, fabric::Access::local);
    if (!registration.ok()) return fail(PushStage::memory, registration.error());
    job->registration = std::move(registration).value();
    if (clock_.now() >= request.deadline)
      return fail(PushStage::send, Error::make(Errc::timeout, "push"));

    auto piece = std::make_shared<Piece>();
    transfer::Job transfer_job;
    transfer_job.kind = fabric::OpKind::write;
    transfer_job.peer = request.target.peer;
    transfer_job.local.push_back({job->buffer.bytes(), job->registration.get()});
    transfer_job.remote.push_back({request.target.key, request.target.addr + Offset(at), length});
    // The lender owns the memory; it goes after done(), when nothing can touch it.
    auto lender = transfer::lend([piece, job](const transfer::TransferOutcome& how) mutable {
      job.reset();
      piece->end(how);
    });
    job.reset();
    const auto id = runner_->submit(std::move(transfer_job), std::move(lender));
    if (!id.ok()) return fail(PushStage::send, id.error());
    outcome.untouched = false;
    transfer::TransferOutcome how;
    {
      MutexLock lock(piece->mutex);
      bool cancelled = false;
      Instant give_up = request.deadline;
      while (!piece->done) {
        const Instant now = clock_.now();
        if (now < give_up) {
          piece->ended.wait_for(piece->mutex, give_up - now);
          continue;
        }
        if (!cancelled) {
          cancelled = true;
          runner_->cancel(*id);
          give_up = now + kCancelPatience;
          continue;
        }
        piece->left_behind =
            [outcome, reply = std::move(reply)](const transfer::TransferOutcome& late) mutable {
              outcome.status =
                  late.status.ok() ? Status(Error::make(Errc::timeout, "push")) : late.status;
              outcome.stage = PushStage::send;
              reply(outcome);
            };
        return;
      }
      how = piece->outcome;
    }
    if (!how.status.ok()) return fail(PushStage::send, how.status.error());
    outcome.crc = digest::crc32c_combine(outcome.crc, *crc, length);
    outcome.written += length;
    at += length.raw();
  }
  reply(outcome);
}

Result<std::unique_ptr<Window>> Mover::open_window(Length length, Instant deadline) {
  std::unique_ptr<Window> window(new Window());
  TRY_ASSIGN(window->pass_, budget_.enter(PinBudget::cost(0, length), PinUse::receive, deadline));
  TRY_ASSIGN(window->buffer_, buffers_->take(length));
  // What an earlier use left behind must not pass for what this one was to bring.
  const auto bytes = window->buffer_.bytes();
  std::fill_n(bytes.begin(), std::min(bytes.size(), kForgetBytes), std::byte{0});
  TRY_ASSIGN(window->registration_, register_buffer(window->buffer_, fabric::Access::remote_write));
  if (endpoint_ != nullptr) {
    window->address_ = endpoint_->address();
  } else {
    TRY_ASSIGN(window->endpoint_, domain_.open_target(options_.target));
    window->address_ = window->endpoint_->address();
  }
  window->key_ = window->registration_->key();
  window->addr_ = window->registration_->addr();
  return window;
}

}  // namespace farlift::s3::volume
