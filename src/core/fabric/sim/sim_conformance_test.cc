// The conformance suite over the simulated fabric, in each fence mode, with and without order.
#include "core/fabric/conformance.h"
#include "core/fabric/sim/sim.h"

#include <utility>

namespace farlift::fabric {
namespace {

// Both ends of a case are domains of one network; cases of one provider share it, as they would a
// network card.
ConformanceProvider provider(const char* name, const sim::SimOptions& options) {
  struct World {
    explicit World(const sim::SimOptions& o) : network(clock, o) {}
    ManualClock clock;
    sim::SimNetwork network;
  };
  ConformanceProvider p;
  p.name = name;
  p.open = [world = std::make_shared<World>(options)]() -> Result<std::unique_ptr<Domain>> {
    return world->network.open_domain("sim");
  };
  p.separate_processes = false;
  p.one_thread = true;
  p.exact_refusal = !options.refusal_flushes;
  p.rounds_percent = 20;
  p.bulk_bytes = 1u << 20;
  return p;
}

}  // namespace

std::vector<ConformanceProvider> conformance_providers() {
  sim::SimOptions card;
  card.seed = 1;
  card.step_bytes_max = 64 << 10;
  card.delay_max = std::chrono::milliseconds(2);  // the cases look at it between two steps
  card.refusal_flushes = false;
  card.in_flight_max = 256;
  sim::SimOptions queue_pair = card;
  queue_pair.in_order = true;
  queue_pair.refusal_flushes = true;
  queue_pair.virtual_addressing = true;
  sim::SimOptions software = card;
  software.fence_mode = FenceMode::endpoint;
  software.refusal_flushes = true;
  return {provider("sim_card", card), provider("sim_queue_pair", queue_pair),
          provider("sim_software", software)};
}

}  // namespace farlift::fabric
