#include "tests/sim/plan.h"

#include "core/base/prng.h"

#include <sstream>

namespace farlift::kv::simulation {
namespace {

using namespace std::chrono_literals;

template <class T>
T one_of(Prng& prng, std::initializer_list<T> from) {
  return from.begin()[prng.below(from.size())];
}

// Most seeds have a few kinds of faults, often; that finds more than all of them, seldom.
std::uint32_t weight(Prng& prng, std::uint32_t in_use = 4) {
  return prng.chance(in_use, 10) ? static_cast<std::uint32_t>(1 + prng.below(10)) : 0;
}
std::uint32_t rate(Prng& prng, std::uint32_t at_most) {
  return prng.chance(3, 10) ? static_cast<std::uint32_t>(1 + prng.below(at_most)) : 0;
}

FaultWeights draw_weights(Prng& prng) {
  FaultWeights w;
  for (std::uint32_t* const one :
       {&w.partition, &w.lose_links, &w.pause, &w.crash, &w.crash_client, &w.valkey_down,
        &w.fail_over, &w.flush_all, &w.evict, &w.evict_half, &w.forge, &w.replay, &w.swap,
        &w.across_tenants, &w.jump}) {
    *one = weight(prng);
  }
  w.flush_all = w.flush_all > 0 ? 1 : 0;
  w.drain = prng.chance(1, 10) ? 1 : 0;
  return w;
}

void draw_fabric(Prng& prng, Plan& plan) {
  fabric::sim::SimOptions& f = plan.fabric;
  f.seed = prng.next();
  f.fence_mode = plan.fence;
  f.virtual_addressing = prng.chance(1, 5);
  f.counting_keys = plan.tenants == 1 && prng.chance(1, 2);
  f.refusal_flushes = prng.chance(1, 2);
  f.in_order = prng.chance(1, 4);
  f.in_flight_max = one_of<std::uint32_t>(prng, {2, 8, 64});
  f.step_bytes_max = one_of<std::size_t>(prng, {64, 512, 4096});
  f.delay_max = one_of<Duration>(prng, {50us, 2ms, 200ms});
  if (plan.calm) return;
  f.faults.connection_lost = rate(prng, 50);
  f.faults.not_quiet = rate(prng, 50);
  f.faults.spurious_error = rate(prng, 50);
  f.faults.repeated_key = f.counting_keys ? 0 : one_of<std::uint32_t>(prng, {0, 0, 100, 400});
}

void draw_control(Prng& prng, Plan& plan) {
  if (plan.calm) return;
  plan.links.lost_on_send = rate(prng, 20);
  plan.links.slow = rate(prng, 100);
  plan.valkey.refused = rate(prng, 50);
  plan.valkey.never_applied = rate(prng, 50);
  plan.valkey.reply_lost = rate(prng, 100);
  plan.valkey.applied_late = rate(prng, 150);
  plan.valkey.slow = rate(prng, 150);
  plan.valkey.lagging = rate(prng, 300);
  plan.close_fails = prng.chance(1, 10) ? 100 : 0;
}

}  // namespace

std::uint32_t FaultWeights::total() const {
  return partition + lose_links + pause + crash + crash_client + valkey_down + fail_over +
         flush_all + evict + evict_half + forge + replay + swap + across_tenants + jump + rotate +
         rotate_all + hand_over + drain + reconcile;
}

Plan Plan::of(std::uint64_t seed) {
  Prng prng(seed * 0x9e3779b97f4a7c15ULL + 1);
  Plan plan;
  plan.seed = seed;
  plan.calm = prng.chance(1, 8);
  plan.nodes = static_cast<std::uint32_t>(1 + prng.below(3));
  plan.clients = static_cast<std::uint32_t>(1 + prng.below(3));
  plan.tenants = static_cast<std::uint32_t>(1 + prng.below(2));
  plan.lanes = static_cast<std::uint32_t>(1 + prng.below(4));
  plan.keys = one_of<std::uint32_t>(prng, {2, 4, 8});
  plan.rails = prng.chance(1, 4) ? 2 : 1;
  plan.operations = static_cast<std::uint32_t>(40 + prng.below(120));
  plan.fence = prng.chance(1, 2) ? fabric::FenceMode::mr : fabric::FenceMode::endpoint;
  draw_fabric(prng, plan);
  draw_control(prng, plan);
  plan.arenas_quota = 2 + prng.below(3);
  plan.grace = one_of<Duration>(prng, {0s, 1s, 20s});
  plan.lease = one_of<Duration>(prng, {2s, 10s});
  plan.operation_limit = one_of<Duration>(prng, {1s, 5s});
  plan.reconcile_every = one_of<Duration>(prng, {5s, 30s});
  plan.think_max = one_of<Duration>(prng, {1ms, 100ms, 1s});
  plan.fault_every = one_of<Duration>(prng, {50ms, 500ms, 3s});
  plan.lengths = prng.chance(1, 6) ? std::vector<std::size_t>{0, 1, 4096, 20000, 61440}
                                   : std::vector<std::size_t>{0, 1, 31, 32, 33, 500, 2000, 6000};
  plan.pushes = prng.chance(3, 4);
  plan.deletes = prng.chance(3, 4);
  if (!plan.calm) plan.faults = draw_weights(prng);
  plan.faults.rotate = static_cast<std::uint32_t>(1 + prng.below(12));
  plan.faults.rotate_all = weight(prng, 3);
  plan.faults.hand_over = plan.tenants > 1 ? weight(prng) : 0;
  plan.faults.reconcile = weight(prng, 3);
  plan.spin = prng.chance(1, 8);
  return plan;
}

std::string Plan::describe() const {
  std::ostringstream out;
  out << "seed " << seed << (calm ? " calm" : "") << (spin ? " spin" : "") << " nodes " << nodes
      << " clients " << clients << " tenants " << tenants << " lanes " << lanes << " keys " << keys
      << " rails " << rails << " fence " << fabric::to_string(fence) << " operations "
      << operations;
  return out.str();
}

}  // namespace farlift::kv::simulation
