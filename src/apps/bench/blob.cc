// The run: scene by scene, round by round, contender by contender.
#include "apps/bench/bench.h"
#include "apps/bench/contender.h"
#include "apps/bench/sample.h"
#include "apps/bench/socket.h"
#include "apps/connect.h"
#include "apps/console.h"
#include "apps/files.h"
#include "apps/private_node.h"
#include "apps/server.h"
#include "core/base/prng.h"
#include "core/fabric/ofi/ofi.h"
#include "core/memory/mapping.h"

#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <optional>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace farlift::apps {

namespace {

constexpr std::uint64_t kSizes[] = {64u << 10, 512u << 10, 1u << 20,  4u << 20,
                                    16u << 20, 64u << 20,  256u << 20};
// The cache's values are shorter.
constexpr std::uint64_t kKvSizes[] = {64u << 10, 256u << 10, 1u << 20,
                                      4u << 20,  16u << 20,  64u << 20};
constexpr std::uint64_t kQuickSizes[] = {64u << 10, 1u << 20, 16u << 20};
constexpr const char* kKvQuota = "2g";
constexpr const char* kKvArena = "128m";
constexpr const char* kPutTenant = "puts";
constexpr std::uint64_t kPutQuota = 512u << 20;
constexpr unsigned kInFlightMax = 16;
constexpr unsigned kOpsMin = 3;  // of each worker in each measurement
constexpr std::size_t kOpsMax = 1000000;

struct Plan {
  std::vector<std::uint64_t> sizes;
  std::vector<unsigned> in_flight;
  std::vector<std::string> lanes;
  std::vector<std::string> only;
  unsigned rounds = 5;
  double seconds = 0.3;
};

Outcome<Plan> plan_of(const BenchOptions& options) {
  Plan plan;
  plan.rounds = options.quick ? 2 : options.rounds;
  plan.seconds = options.quick ? 0.05 : options.seconds;
  for (const std::string& text : options.sizes) {
    Outcome<std::uint64_t> size = parse_bytes(text);
    if (!size) return fail(size.error());
    if (*size == 0 || *size > (512u << 20))
      return fail(kExitUsage, fmt::format("--sizes: {} is not in 1..512m", text));
    plan.sizes.push_back(*size);
  }
  if (plan.sizes.empty() && options.quick)
    plan.sizes.assign(std::begin(kQuickSizes), std::end(kQuickSizes));
  if (plan.sizes.empty() && options.kv) plan.sizes.assign(std::begin(kKvSizes), std::end(kKvSizes));
  if (plan.sizes.empty()) plan.sizes.assign(std::begin(kSizes), std::end(kSizes));
  plan.in_flight = options.in_flight.empty()
                       ? (options.quick ? std::vector<unsigned>{1} : std::vector<unsigned>{1, 4})
                       : options.in_flight;
  for (const unsigned n : plan.in_flight) {
    if (n == 0 || n > kInFlightMax)
      return fail(kExitUsage, fmt::format("--in-flight: {} is not in 1..{}", n, kInFlightMax));
  }
  plan.lanes = options.lanes;
  if (plan.lanes.empty()) plan.lanes = {"remote", "host", "libfabric"};
  for (const std::string& lane : plan.lanes) {
    if (lane != "remote" && lane != "host" && lane != "libfabric") {
      return fail(kExitUsage,
                  fmt::format("--lanes: '{}' is none of remote, host, libfabric", lane));
    }
  }
  plan.only = options.only;
  if (plan.rounds == 0 || !(plan.seconds > 0))
    return fail(kExitUsage, "--rounds and --seconds must be above zero");
  return plan;
}

double seconds_between(Instant from, Instant to) {
  return std::chrono::duration<double>(to - from).count();
}

// One worker of one measurement.
struct Worker {
  Outcome<void> result;
  std::vector<double> latencies_us;
  Instant begun;
  Instant ended;

  void run(Contender& contender, unsigned number, double seconds) {
    const SystemClock clock;
    contender.enter(number);
    begun = clock.now();
    Instant last = begun;
    const Instant limit =
        begun + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
    while ((last < limit || latencies_us.size() < kOpsMin) && latencies_us.size() < kOpsMax) {
      result = contender.op(number);
      if (!result) break;
      const Instant now = clock.now();
      latencies_us.push_back(seconds_between(last, now) * 1e6);
      last = now;
    }
    ended = last;
    contender.leave(number);
  }
};

Outcome<Sample> measure(Contender& contender, const Scene& scene, double seconds) {
  std::vector<Worker> workers(scene.in_flight);
  const double here = contender.cpu_here_s();
  const double there = contender.cpu_there_s();
  Outcome<std::optional<std::vector<double>>> elsewhere = contender.run(seconds);
  if (!elsewhere) return fail(elsewhere.error());
  if (*elsewhere) {
    workers[0].latencies_us = std::move(**elsewhere);
    double usec = 0;
    for (const double one : workers[0].latencies_us) usec += one;
    workers[0].ended = workers[0].begun + std::chrono::duration_cast<Duration>(
                                              std::chrono::duration<double, std::micro>(usec));
  } else if (scene.in_flight == 1) {
    workers[0].run(contender, 0, seconds);
  } else {
    std::barrier start(static_cast<std::ptrdiff_t>(scene.in_flight));
    std::vector<std::jthread> threads;
    for (unsigned w = 0; w < scene.in_flight; ++w) {
      threads.emplace_back([&, w] {
        start.arrive_and_wait();
        workers[w].run(contender, w, seconds);
      });
    }
  }
  Sample sample;
  sample.cpu_here_s = contender.cpu_here_s() - here;
  sample.cpu_there_s = contender.cpu_there_s() - there;
  Instant begun = workers[0].begun;
  Instant ended = workers[0].ended;
  for (Worker& worker : workers) {
    if (!worker.result) return fail(worker.result.error());
    begun = std::min(begun, worker.begun);
    ended = std::max(ended, worker.ended);
    sample.bytes += worker.latencies_us.size() * contender.bytes_per_op(scene);
    sample.latencies_us.insert(sample.latencies_us.end(), worker.latencies_us.begin(),
                               worker.latencies_us.end());
  }
  sample.seconds = seconds_between(begun, ended);
  return sample;
}

// The memory of all scenes: made once, in the largest size, so that no contender pays for first
// touches.
struct Memory {
  std::vector<memory::Mapping> values;
  std::vector<memory::Mapping> scratch;

  Outcome<void> make(std::uint64_t size, unsigned count) {
    Prng prng(1);
    for (unsigned i = 0; i < count; ++i) {
      auto value = memory::Mapping::create(Length(size), {});
      auto other = memory::Mapping::create(Length(size), {});
      if (!value || !other)
        return fail(kExitFailed,
                    fmt::format("no memory for {} values of {}", 2 * count, human_bytes(size)));
      if (i == 0) {
        for (std::size_t at = 0; at + 8 <= size; at += 8) {
          const std::uint64_t word = prng.next();
          std::memcpy(value->bytes().data() + at, &word, sizeof word);
        }
      } else {
        std::memcpy(value->bytes().data(), values[0].bytes().data(), size);
      }
      std::fill(other->bytes().begin(), other->bytes().end(), std::byte{1});
      values.push_back(std::move(*value));
      scratch.push_back(std::move(*other));
    }
    return {};
  }
};

class Run {
 public:
  Run(const BenchOptions& options, Plan plan)
      : kv_(options.kv),
        quick_(options.quick),
        mooncake_python_(options.mooncake),
        plan_(std::move(plan)),
        progress_("bench", 0, options.quiet || options.json) {}

  Outcome<std::vector<Row>> all() {
    if (Outcome<void> started = start(); !started) return fail(started.error());
    const std::uint64_t largest = *std::max_element(plan_.sizes.begin(), plan_.sizes.end());
    const unsigned most = *std::max_element(plan_.in_flight.begin(), plan_.in_flight.end());
    if (Outcome<void> made = memory_.make(largest, most); !made) return fail(made.error());
    std::vector<Row> rows;
    for (const std::uint64_t size : plan_.sizes) {
      for (const unsigned in_flight : plan_.in_flight) {
        if (Outcome<void> done = one_scene(size, in_flight, rows); !done) return fail(done.error());
      }
    }
    if (node_ != nullptr) node_->stop();
    server_->stop();
    return rows;
  }

 private:
  Outcome<void> start() {
    Outcome<TempFolder> folder = TempFolder::make();
    if (!folder) return fail(folder.error());
    folder_.emplace(std::move(*folder));
    ServerOptions options;
    options.directory = folder_->path();
    options.module = {{"fabric-interfaces", "lo"}};
    Outcome<std::unique_ptr<PrivateServer>> server = PrivateServer::start(options);
    if (!server) return fail(server.error());
    server_ = std::move(*server);
    std::uint16_t port = 0;
    Outcome<UniqueFd> listener = listen_on_loopback(&port);
    if (!listener) return fail(listener.error());
    Outcome<Child> child =
        Child::start({{"/proc/self/exe", "bench", "peer", fmt::format("{}", port)}, "", ""});
    if (!child) return fail(child.error());
    peer_.emplace(std::move(*child));
    Outcome<Socket> hello = Socket::accept(*listener);
    if (!hello) return fail(hello.error());
    std::uint16_t peer_port = 0;
    if (auto got = hello->receive_all(std::as_writable_bytes(std::span(&peer_port, 1))); !got)
      return got;
    const bool libfabric = fabric::ofi::library_status(fabric::ofi::kVersionAny).usable;
    if (!libfabric) std::erase(plan_.lanes, "libfabric");
    if (kv_) {
      PrivateNodeOptions wanted;
      wanted.directory = folder_->path();
      wanted.valkey_port = server_->port();
      wanted.quota = kKvQuota;
      wanted.arena_size = kKvArena;
      wanted.more_tenants = {{kPutTenant, fmt::format("{}", kPutQuota)}};
      wanted.flags = {"--grace-ms", "0"};  // nothing but puts makes it rotate
      Outcome<std::unique_ptr<PrivateNode>> node = PrivateNode::start(wanted);
      if (!node) return fail(node.error());
      node_ = std::move(*node);
      add_kv_contenders(contenders_, plan_.lanes,
                        {kPrivateTenant, kPutTenant, quick_ ? 0 : kPutQuota, node_->key_file(),
                         node_->child().pid()},
                        peer_port, peer_->pid());
      start_mooncake_too();
    }
    add_rdma_contenders(contenders_, plan_.lanes, server_->pid());
    add_valkey_contenders(contenders_, server_->pid());
    add_raw_contenders(contenders_, peer_port, peer_->pid(), libfabric);
    if (!plan_.only.empty()) {
      std::erase_if(contenders_, [this](const std::unique_ptr<Contender>& one) {
        return std::find(plan_.only.begin(), plan_.only.end(), one->label().what) ==
               plan_.only.end();
      });
    }
    if (contenders_.empty()) return fail(kExitUsage, "--only: no such rows");
    return {};
  }

  void start_mooncake_too() {
    if (mooncake_python_.empty()) return;
    const std::uint64_t largest = *std::max_element(plan_.sizes.begin(), plan_.sizes.end());
    std::string why;
    const auto store = start_mooncake(mooncake_python_, folder_->path(), largest, why);
    if (store == nullptr) {
      fmt::print(stderr, "bench: the mooncake rows are left out: {}\n", why);
      return;
    }
    add_mooncake_contenders(contenders_, store);
  }

  Outcome<void> store(const Scene& scene) {
    ClientOptions options;
    options.addresses = {{"127.0.0.1", scene.server_port}};
    Expected<Client> client = Client::create(std::move(options));
    if (!client) return fail(explain(client.error(), "bench"));
    const std::string_view value(reinterpret_cast<const char*>(scene.values[0].data()), scene.size);
    // The data node's record and descriptors live in the same server.
    Expected<Reply> gone = kv_ ? client->command({"DEL", scene.blob_key, scene.string_key})
                               : client->command({"FLUSHALL"});
    if (!gone) return fail(explain(gone.error(), "emptying the server"));
    if (Expected<void> set = client->tcp_set(scene.blob_key, value); !set)
      return fail(explain(set.error(), "BLOB.TCP_SET"));
    if (Expected<Reply> set = client->command({"SET", scene.string_key, value}); !set)
      return fail(explain(set.error(), "SET"));
    return {};
  }

  Outcome<void> one_scene(std::uint64_t size, unsigned in_flight, std::vector<Row>& rows) {
    Scene scene;
    scene.size = size;
    scene.in_flight = in_flight;
    scene.server_port = server_->port();
    scene.blob_key = "bench:blob";
    scene.string_key = "bench:string";
    for (unsigned w = 0; w < in_flight; ++w) {
      scene.values.push_back(memory_.values[w].bytes());
      scene.scratch.push_back(memory_.scratch[w].bytes());
    }
    const std::uint32_t before = rdma_checksum(scene.values[0].first(size));
    if (Outcome<void> stored = store(scene); !stored) return stored;
    std::vector<std::vector<Sample>> samples(contenders_.size());
    progress_.restart(fmt::format("{}, {} in flight", human_bytes(size), in_flight),
                      (plan_.rounds + 1) * contenders_.size());
    Outcome<void> result;
    std::uint64_t steps = 0;
    for (std::size_t i = 0; i < contenders_.size() && result; ++i) {
      if (contenders_[i]->fits(scene)) {
        result = contenders_[i]->prepare(scene);
        if (result) result = warm_up(*contenders_[i], scene);
      }
      progress_.at(++steps);
    }
    for (unsigned round = 0; round < plan_.rounds && result; ++round) {
      for (std::size_t i = 0; i < contenders_.size() && result; ++i) {
        if (!contenders_[i]->fits(scene)) continue;
        Outcome<Sample> sample = measure(*contenders_[i], scene, plan_.seconds);
        if (!sample) result = fail(sample.error());
        if (sample) samples[i].push_back(std::move(*sample));
        progress_.at(++steps);
      }
    }
    for (auto& contender : contenders_) contender->release();
    if (!result) return result;
    for (unsigned w = 0; w < in_flight; ++w) {
      if (rdma_checksum(scene.values[w].first(size)) != before)
        return fail(kExitCorrupt, "bench: a value changed on the way");
    }
    for (std::size_t i = 0; i < contenders_.size(); ++i)
      if (!samples[i].empty())
        rows.push_back(summarise(contenders_[i]->label(), scene, samples[i]));
    return {};
  }

  Outcome<void> warm_up(Contender& contender, const Scene& scene) {
    for (unsigned w = 0; w < scene.in_flight; ++w) {
      if (Outcome<void> done = contender.op(w); !done) return done;
    }
    return {};
  }

  const bool kv_;
  const bool quick_;
  const std::string mooncake_python_;
  Plan plan_;
  Progress progress_;
  std::optional<TempFolder> folder_;
  std::unique_ptr<PrivateServer> server_;
  std::unique_ptr<PrivateNode> node_;
  std::optional<Child> peer_;
  Memory memory_;
  Contenders contenders_;  // last: released before the processes end
};

}  // namespace

int run_bench(const BenchOptions& options) {
  if (options.kv && options.scale) return run_kv_scale(options);
  Outcome<Plan> plan = plan_of(options);
  if (!plan) return report(plan.error(), options.json);
  Outcome<std::vector<Row>> rows = Run(options, std::move(*plan)).all();
  if (!rows) return report(rows.error(), options.json);
  if (options.json) {
    print(rows_json(*rows) + "\n");
  } else {
    print(rows_table(*rows));
    if (!options.kv) print(goals_table(*rows));
  }
  return kExitOk;
}

}  // namespace farlift::apps
