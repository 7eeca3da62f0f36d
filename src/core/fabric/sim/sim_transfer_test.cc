// core/transfer over the simulated fabric: whatever the seed, either the right bytes or an error;
// no byte outside the windows; over means over.
#include "core/base/log.h"
#include "core/base/prng.h"
#include "core/digest/crc32c.h"
#include "core/fabric/sim/sim.h"
#include "core/transfer/engine.h"
#include "core/transfer/transfer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/long_run.h"

namespace farlift::fabric::sim {
namespace {

const std::uint64_t kSeeds = testing::repeats(1500u, 30'000u);
const std::uint64_t kEngineSeeds = testing::repeats(300u, 6000u);
constexpr std::byte kCanary{0xcc};
constexpr std::byte kPoison{0xee};

// Values never hold a canary or the poison.
void fill_value(std::span<std::byte> out, Prng& prng) {
  for (std::byte& b : out) b = static_cast<std::byte>(prng.below(0xc0));
}

SimOptions draw_options(std::uint64_t seed, Prng& prng) {
  SimOptions options;
  options.seed = seed;
  options.fence_mode = prng.chance(1, 2) ? FenceMode::mr : FenceMode::endpoint;
  options.virtual_addressing = prng.chance(1, 2);
  options.refusal_flushes = prng.chance(1, 2);
  options.in_order = prng.chance(1, 4);
  options.in_flight_max = static_cast<std::uint32_t>(1 + prng.below(8));
  options.step_bytes_max = 1 + prng.below(3000);
  if (prng.chance(2, 3)) {
    options.faults.connection_lost = static_cast<std::uint32_t>(prng.below(60));
    options.faults.not_quiet = static_cast<std::uint32_t>(prng.below(60));
    options.faults.spurious_error = static_cast<std::uint32_t>(prng.below(60));
  }
  return options;
}

// Pieces of one block with canaries between, before and after them.
struct Scattered {
  Scattered(std::size_t total, std::size_t pieces_max, Prng& prng) {
    const std::size_t pieces = 1 + prng.below(pieces_max);
    std::vector<std::size_t> cuts;
    for (std::size_t i = 1; i < pieces; ++i) cuts.push_back(prng.below(total + 1));
    cuts.push_back(total);
    std::ranges::sort(cuts);
    std::size_t from = 0;
    std::size_t at = 16;
    for (const std::size_t cut : cuts) {
      places.push_back({at, cut - from});
      at += cut - from + 16;
      from = cut;
    }
    block.assign(at, kCanary);
  }
  std::span<std::byte> piece(std::size_t i) {
    return std::span(block).subspan(places[i].first, places[i].second);
  }
  void scatter(std::span<const std::byte> value) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::size_t n = std::min(places[i].second, value.size() - at);
      std::copy_n(value.begin() + static_cast<std::ptrdiff_t>(at), n, piece(i).begin());
      at += n;
    }
  }
  std::vector<std::byte> gather(std::size_t length) {
    std::vector<std::byte> value;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto bytes = piece(i);
      value.insert(value.end(), bytes.begin(), bytes.end());
    }
    value.resize(length);
    return value;
  }
  bool canaries_intact() {
    std::size_t at = 0;
    for (const auto& [from, length] : places) {
      for (; at < from; ++at) {
        if (block[at] != kCanary) return false;
      }
      at = from + length;
    }
    return std::all_of(block.begin() + static_cast<std::ptrdiff_t>(at), block.end(),
                       [](std::byte b) { return b == kCanary; });
  }

  std::vector<std::byte> block;
  std::vector<std::pair<std::size_t, std::size_t>> places;
};

class TransferRun {
 public:
  explicit TransferRun(std::uint64_t seed)
      : prng_(seed),
        network_(clock_, draw_options(seed, prng_)),
        size_(1 + prng_.below(30'000)),
        kind_(prng_.chance(1, 2) ? OpKind::write : OpKind::read),
        local_(size_, 4, prng_),
        remote_(size_ + prng_.below(1000), 5, prng_),
        value_(size_) {
    fill_value(value_, prng_);
    server_ = network_.open_domain("server");
    client_ = network_.open_domain("client");
    target_ = server_->open_target(TargetOptions{}).value();
    initiator_ = client_->open_initiator(InitiatorOptions{}).value();
    peer_ = initiator_->add_peer(target_->address()).value();
    (kind_ == OpKind::write ? local_ : remote_).scatter(value_);
    lent_ =
        server_
            ->register_memory(MemoryRef{remote_.block, -1, 0},
                              kind_ == OpKind::write ? Access::remote_write : Access::remote_read)
            .value();
  }

  void run() {
    const auto local_before = local_.block;
    const auto remote_before = remote_.block;
    transfer::Transfer t(*initiator_, request(), 9);
    t.start();
    for (int turn = 0; !t.done(); ++turn) {
      ASSERT_LT(turn, 1'000'000) << "never ends";
      disturb();
      Completion out[3];
      const std::size_t n = initiator_->poll(std::span(out).first(1 + prng_.below(3)));
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(out[i].context >> 32, 9u);
        t.on_completion(out[i]);
      }
      if (n == 0) initiator_->wait(1);
    }
    EXPECT_EQ(initiator_->in_flight(), 0u);
    check(t.outcome());
    // Only the side that receives may have changed.
    const bool writing = kind_ == OpKind::write;
    EXPECT_EQ(writing ? local_.block : remote_.block, writing ? local_before : remote_before);
  }

  static int right;
  static int wrong;
  static int unquiet;

 private:
  transfer::TransferRequest request() {
    transfer::TransferRequest r;
    r.kind = kind_;
    r.peer = peer_;
    for (std::size_t i = 0; i < local_.places.size(); ++i)
      r.local.push_back({local_.piece(i), nullptr});
    for (const auto& [from, length] : remote_.places) {
      r.remote.push_back({lent_->key(), lent_->addr() + Offset(from), Length(length)});
    }
    r.piece_max = Length(1 + prng_.below(8000));
    r.in_flight_max = static_cast<std::uint32_t>(1 + prng_.below(12));
    r.compute_crc = kind_ == OpKind::read;
    return r;
  }

  // Now and then the far side, or the caller, does something about it.
  void disturb() {
    if (!prng_.chance(1, 300)) return;
    switch (prng_.below(4)) {
      case 0:
        lent_->close().ignore();
        break;  // the memory stays: under `endpoint` bytes still land
      case 1:
        network_.drop(target_->address());
        break;
      case 2:
        initiator_->abort(peer_);
        break;
      default:
        target_->close().ignore();
        break;
    }
  }

  void check(const transfer::TransferOutcome& outcome) {
    EXPECT_TRUE(local_.canaries_intact());
    EXPECT_TRUE(remote_.canaries_intact());
    if (outcome.status.ok()) {
      ++right;
      EXPECT_EQ(outcome.moved.raw(), size_);
      EXPECT_EQ((kind_ == OpKind::write ? remote_ : local_).gather(size_), value_);
      if (kind_ == OpKind::read) {
        EXPECT_EQ(outcome.crc, digest::crc32c(value_));
      }
    } else {
      ++(outcome.status.error().quiet ? wrong : unquiet);
      EXPECT_LE(outcome.moved.raw(), size_);
    }
    if (!outcome.status.ok() && !outcome.status.error().quiet) {
      initiator_->close();  // the fence that an error which is not quiet asks for
    }
    EXPECT_EQ(network_.moving(), 0u);
    const auto local_after = local_.block;
    const auto remote_after = remote_.block;
    while (network_.step()) {
    }
    EXPECT_EQ(local_.block, local_after) << "late bytes";
    EXPECT_EQ(remote_.block, remote_after) << "late bytes";
  }

  Prng prng_;
  ManualClock clock_;
  SimNetwork network_;
  const std::size_t size_;
  const OpKind kind_;
  Scattered local_;
  Scattered remote_;
  std::vector<std::byte> value_;
  std::unique_ptr<Domain> server_;
  std::unique_ptr<Domain> client_;
  std::unique_ptr<Registration> lent_;
  std::unique_ptr<TargetEndpoint> target_;
  std::unique_ptr<Initiator> initiator_;
  PeerId peer_;
};

int TransferRun::right = 0;
int TransferRun::wrong = 0;
int TransferRun::unquiet = 0;

TEST(SimTransfer, the_right_bytes_or_an_error_whatever_the_seed) {
  for (std::uint64_t seed = 1; seed <= kSeeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TransferRun(seed).run();
  }
  // The seeds must have met all three ends, or the test shows nothing.
  EXPECT_GT(TransferRun::right, 100);
  EXPECT_GT(TransferRun::wrong, 100);
  EXPECT_GT(TransferRun::unquiet, 50);
}

// What one job lends. Once the Engine gives it back the memory is somebody else's: it is poisoned,
// and any byte that moves after that shows.
struct Lent {
  std::vector<std::byte> local;
  std::vector<std::byte> remote;
  std::vector<std::byte> value;
  OpKind kind = OpKind::write;
  std::unique_ptr<Registration> registration;
  int reports = 0;
  bool ok = false;
  bool returned = false;
};

class Owner final : public transfer::Lender {
 public:
  explicit Owner(Lent& lent) : lent_(lent) {}
  ~Owner() override {
    lent_.returned = true;
    std::ranges::fill(lent_.local, kPoison);
  }
  void done(const transfer::TransferOutcome& outcome) noexcept override {
    ++lent_.reports;
    lent_.ok = outcome.status.ok();
    if (!lent_.ok) return;
    EXPECT_EQ(lent_.kind == OpKind::write ? lent_.remote : lent_.local, lent_.value);
  }

 private:
  Lent& lent_;
};

void run_engine(std::uint64_t seed) {
  Prng prng(seed ^ 0x5eed);
  ManualClock clock;
  SimNetwork network(clock, draw_options(seed, prng));
  auto server = network.open_domain("server");
  auto client = network.open_domain("client");
  std::vector<std::unique_ptr<TargetEndpoint>> targets;
  for (int i = 0; i < 3; ++i) targets.push_back(server->open_target(TargetOptions{}).value());
  std::vector<std::unique_ptr<Lent>> jobs;
  transfer::EngineOptions options;
  options.in_flight_max = static_cast<std::uint32_t>(1 + prng.below(16));
  options.piece_max = Length(1 + prng.below(5000));
  auto engine = transfer::Engine::create(*client, clock, options).value();
  std::vector<transfer::TransferId> ids;
  const std::size_t count = 1 + prng.below(12);
  for (std::size_t i = 0; i < count; ++i) {
    auto lent = std::make_unique<Lent>();
    const std::size_t size = 1 + prng.below(20'000);
    lent->kind = prng.chance(1, 2) ? OpKind::write : OpKind::read;
    lent->value.resize(size);
    fill_value(lent->value, prng);
    lent->local = lent->kind == OpKind::write ? lent->value : std::vector<std::byte>(size);
    lent->remote = lent->kind == OpKind::read ? lent->value : std::vector<std::byte>(size);
    lent->registration =
        server->register_memory(MemoryRef{lent->remote, -1, 0}, Access::remote_read_write).value();
    transfer::Job job;
    job.kind = lent->kind;
    job.peer = targets[prng.below(targets.size())]->address();
    job.local.push_back({lent->local, nullptr});
    job.remote.push_back({lent->registration->key(), lent->registration->addr(), Length(size)});
    ids.push_back(engine->submit(std::move(job), std::make_unique<Owner>(*lent)));
    jobs.push_back(std::move(lent));
  }
  for (int turn = 0; engine->live() > 0; ++turn) {
    ASSERT_LT(turn, 1'000'000) << "never ends";
    if (prng.chance(1, 300)) engine->cancel(ids[prng.below(ids.size())]);
    if (prng.chance(1, 1000)) network.drop(targets[prng.below(targets.size())]->address());
    if (prng.chance(1, 2000)) engine->close();
    if (!engine->step()) engine->wait(1);
  }
  engine->close();
  while (network.step()) {
  }
  for (const auto& lent : jobs) {
    EXPECT_EQ(lent->reports, 1);
    EXPECT_TRUE(lent->returned);
    EXPECT_EQ(std::ranges::count(lent->local, kPoison),
              static_cast<std::ptrdiff_t>(lent->local.size()))
        << "memory was written after it was given back";
    EXPECT_EQ(std::ranges::count(lent->remote, kPoison), 0)
        << "memory was read after it was given back";
  }
}

TEST(SimTransfer, the_engine_gives_memory_back_only_when_nothing_touches_it) {
  set_log_level(LogLevel::error);  // it warns of each fence
  for (std::uint64_t seed = 1; seed <= kEngineSeeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_engine(seed);
  }
}

}  // namespace
}  // namespace farlift::fabric::sim
