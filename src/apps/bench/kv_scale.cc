// `farlift bench kv --scale`: how the cache bears very many values on one node, and very many
// tenants on another: rates, memory a value, and how long what concerns all of them takes. Beside
// each the control port is asked once a millisecond: its worst answer shows the longest step.
#include "apps/bench/bench.h"
#include "apps/bench/sample.h"
#include "apps/console.h"
#include "apps/files.h"
#include "apps/kv.h"
#include "apps/private_node.h"
#include "apps/server.h"
#include "core/base/clock.h"
#include "core/base/prng.h"
#include "core/memory/mapping.h"
#include <farlift/client.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

namespace farlift::apps {

namespace {

constexpr std::uint64_t kValueBytes = 4096;
constexpr std::uint64_t kSlotBytes = kValueBytes + 64;  // with its header, as values lie in arenas
constexpr std::size_t kBatch = 1024;
constexpr std::uint64_t kArenaBytes = 256u << 20;
constexpr std::uint64_t kTenantArenaBytes = 8u << 20;
constexpr std::uint64_t kTenantValues = 1000;
constexpr std::uint64_t kNode = 1;
constexpr auto kPollEvery = std::chrono::milliseconds(2);
constexpr Duration kLimit = std::chrono::seconds(300);

double seconds_since(Instant from) {
  return std::chrono::duration<double>(SystemClock().now() - from).count();
}

// Bytes of a process that are its own: neither files nor arenas, which are shared mappings.
std::uint64_t private_bytes(pid_t pid) {
  Outcome<std::string> text = read_file(fmt::format("/proc/{}/status", pid), 65536);
  const std::size_t at = text ? text->find("RssAnon:") : std::string::npos;
  return at == std::string::npos ? 0 : std::strtoull(text->c_str() + at + 8, nullptr, 10) * 1024;
}

Outcome<KvClient> client_of(std::uint16_t valkey, const std::string& tenant,
                            const std::string& key_file) {
  KvOptions options;
  options.valkey = {{"127.0.0.1", valkey}};
  options.tenant = tenant;
  options.key_file = key_file;
  options.cache_entries_max = 1;  // every value is met once
  Expected<KvClient> client = KvClient::create(std::move(options));
  if (!client) return fail(kExitFailed, "bench: " + client.error().text);
  return std::move(*client);
}

// Asks a node over and over while it lives.
class Pinger {
 public:
  explicit Pinger(KvClient client)
      : client_(std::move(client)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

  // The answers since the last call.
  std::vector<double> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(usec_, {});
  }

 private:
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const Instant from = SystemClock().now();
      if (client_.node_statistics(kNode).status == KvStatus::ok) {
        const std::lock_guard lock(mutex_);
        usec_.push_back(seconds_since(from) * 1e6);
      }
      // tidy: allow sleep a steady rate of questions is what is wanted
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  KvClient client_;
  std::mutex mutex_;
  std::vector<double> usec_;
  std::jthread thread_;
};

// Keys and a page of values that differ by their first bytes.
class Values {
 public:
  Outcome<void> make() {
    auto made = memory::Mapping::create(Length(kBatch * kValueBytes), {});
    if (!made) return fail(kExitFailed, "bench: no memory");
    memory_.emplace(std::move(*made));
    Prng prng(7);
    for (std::byte& b : bytes()) b = static_cast<std::byte>(prng.next() >> 56);
    return {};
  }
  std::span<std::byte> bytes() { return memory_->bytes().first(kBatch * kValueBytes); }
  std::span<std::byte> place(std::size_t i) {
    return bytes().subspan(i * kValueBytes, kValueBytes);
  }
  void stamp(std::size_t place_number, std::uint64_t value) {
    std::memcpy(place(place_number).data(), &value, sizeof value);
  }
  bool is_stamped(std::size_t place_number, std::uint64_t value) {
    return std::memcmp(place(place_number).data(), &value, sizeof value) == 0;
  }
  static std::string key(std::uint64_t number) { return fmt::format("block/{:012x}", number); }

 private:
  std::optional<memory::Mapping> memory_;
};

class Scale {
 public:
  explicit Scale(const BenchOptions& options)
      : options_(options), progress_("bench", 0, options.quiet || options.json) {}

  Outcome<std::vector<Row>> all() {
    Outcome<void> done = values_.make();
    if (done) done = many_values();
    stop();
    if (done && options_.scale_tenants > 0) done = many_tenants();
    stop();
    if (!done) return fail(done.error());
    return std::move(rows_);
  }

 private:
  struct Phase {
    std::string what;
    Instant from;
    double cpu_there = 0;
    double cpu_here = 0;
    std::vector<double> batches_us{};
  };

  Outcome<void> start(std::uint64_t quota, std::uint64_t arena, unsigned tenants) {
    Outcome<TempFolder> folder = TempFolder::make();
    if (!folder) return fail(folder.error());
    folder_.emplace(std::move(*folder));
    ServerOptions server;
    server.directory = folder_->path();
    Outcome<std::unique_ptr<PrivateServer>> up = PrivateServer::start(server);
    if (!up) return fail(up.error());
    server_ = std::move(*up);
    node_options_ = {};
    node_options_.directory = folder_->path();
    node_options_.valkey_port = server_->port();
    node_options_.quota = fmt::format("{}", quota);
    node_options_.arena_size = fmt::format("{}", arena);
    node_options_.flags = {"--grace-ms", "0"};
    for (unsigned i = 1; i < tenants; ++i)
      node_options_.more_tenants.emplace_back(fmt::format("t{}", i), node_options_.quota);
    return start_node();
  }
  Outcome<void> start_node() {
    Outcome<std::unique_ptr<PrivateNode>> node = PrivateNode::start(node_options_);
    if (!node) return fail(node.error());
    node_ = std::move(*node);
    Outcome<KvClient> asking = client_of(server_->port(), kPrivateTenant, node_->key_file());
    if (!asking) return fail(asking.error());
    asking_.emplace(std::move(*asking));
    Outcome<KvClient> ping = client_of(server_->port(), kPrivateTenant, node_->key_file());
    if (!ping) return fail(ping.error());
    pinger_ = std::make_unique<Pinger>(std::move(*ping));
    return wait_for("the node", [this] { return count("puts_ok").has_value(); });
  }
  void stop() {
    pinger_.reset();
    asking_.reset();
    node_.reset();
    server_.reset();
    folder_.reset();
  }

  std::optional<std::uint64_t> count(std::string_view name) {
    const KvNodeStatistics now = asking_->node_statistics(kNode);
    for (const auto& [known, value] : now.counters)
      if (known == name) return value;
    return std::nullopt;
  }
  template <class Condition>
  Outcome<void> wait_for(const std::string& what, Condition condition) {
    const Instant from = SystemClock().now();
    while (!condition()) {
      if (SystemClock().now() - from > kLimit)
        return fail(kExitFailed,
                    fmt::format("bench: {} took more than {} s", what,
                                std::chrono::duration_cast<std::chrono::seconds>(kLimit).count()));
      // tidy: allow sleep it is asked for, not guessed
      std::this_thread::sleep_for(kPollEvery);
    }
    return {};
  }

  Phase begin(const std::string& what) {
    (void)pinger_->take();
    return {what, SystemClock().now(), cpu_seconds(node_->child().pid()).value_or(0),
            cpu_seconds(0).value_or(0)};
  }
  // What was done to `values` values since begin(); rates where bytes moved.
  Row& end(Phase phase, std::uint64_t values, bool moved, unsigned tenants) {
    Sample sample;
    sample.seconds = seconds_since(phase.from);
    sample.bytes = values * kValueBytes;
    sample.cpu_here_s = cpu_seconds(0).value_or(0) - phase.cpu_here;
    sample.cpu_there_s = cpu_seconds(node_->child().pid()).value_or(0) - phase.cpu_there;
    sample.latencies_us = std::move(phase.batches_us);
    if (sample.latencies_us.empty()) sample.latencies_us.push_back(sample.seconds * 1e6);
    Scene scene;
    scene.size = kValueBytes;
    Row row = summarise({phase.what, "host", "soft", moved}, scene, {sample});
    row.transfers = values;
    if (!moved) row.gb_per_s = row.gb_per_s_low = row.gb_per_s_high = 0;
    row.more = {{"seconds", sample.seconds},
                {"values", static_cast<double>(values)},
                {"values_per_s", static_cast<double>(values) / sample.seconds},
                {"tenants", tenants},
                {"node_cpu_us_per_value", sample.cpu_there_s * 1e6 / static_cast<double>(values)}};
    std::vector<double> pings = pinger_->take();
    std::sort(pings.begin(), pings.end());
    if (pings.empty()) pings.push_back(0);  // over before anybody could ask
    row.more.emplace_back("control_p50_us", pings[pings.size() / 2]);
    row.more.emplace_back("control_p99_us", pings[pings.size() * 99 / 100]);
    row.more.emplace_back("control_worst_us", pings.back());
    return rows_.emplace_back(std::move(row));
  }

  // A directory that is too busy for a second does not end the benchmark: what it refused is put
  // again, and the time counts.
  Outcome<void> put_all(KvClient& client, std::span<const KvPut> puts) {
    std::vector<KvPut> left(puts.begin(), puts.end());
    for (int tries = 0;; ++tries) {
      const std::vector<KvResult> results = client.mput(left);
      std::vector<KvPut> again;
      for (std::size_t i = 0; i < left.size(); ++i) {
        if (results[i].ok() || (tries > 0 && results[i].status == KvStatus::exists)) continue;
        if (results[i].status != KvStatus::control_down || tries == 5)
          return fail(explain(results[i], "bench: put"));
        again.push_back(left[i]);
      }
      if (again.empty()) return {};
      left = std::move(again);
    }
  }
  Outcome<void> put(KvClient& client, std::uint64_t from, std::uint64_t to, Phase& phase) {
    for (std::uint64_t at = from; at < to; at += kBatch) {
      const std::size_t now = std::min<std::uint64_t>(kBatch, to - at);
      std::vector<std::string> keys;
      std::vector<KvPut> puts;
      keys.reserve(now);
      for (std::size_t i = 0; i < now; ++i) {
        values_.stamp(i, at + i);
        keys.push_back(Values::key(at + i));
        puts.push_back({keys.back(), values_.place(i), KvPutMode::if_absent, 0, false});
      }
      const Instant begun = SystemClock().now();
      if (auto stored = put_all(client, puts); !stored) return stored;
      phase.batches_us.push_back(seconds_since(begun) * 1e6);
      progress_.at(at + now);
    }
    return {};
  }
  Outcome<void> get(KvClient& client, std::uint64_t values, std::uint64_t wanted, Phase& phase) {
    Prng prng(11);
    for (std::uint64_t at = 0; at < wanted; at += kBatch) {
      std::vector<std::string> keys;
      std::vector<std::uint64_t> numbers;
      std::vector<KvGet> gets;
      keys.reserve(kBatch);
      for (std::size_t i = 0; i < kBatch; ++i) {
        numbers.push_back(prng.below(values));
        keys.push_back(Values::key(numbers.back()));
        gets.push_back({keys.back(), values_.place(i), KvReadMode::framed, 0});
      }
      const Instant begun = SystemClock().now();
      const std::vector<KvResult> results = client.mget(gets);
      phase.batches_us.push_back(seconds_since(begun) * 1e6);
      for (std::size_t i = 0; i < kBatch; ++i) {
        if (!results[i].ok()) return fail(explain(results[i], "bench: get"));
        if (!values_.is_stamped(i, numbers[i])) return fail(kExitCorrupt, "bench: another value");
      }
      progress_.at(at);
    }
    return {};
  }

  Outcome<KvClient> worker(const std::string& tenant, std::optional<KvMemory>& lent) {
    Outcome<KvClient> client = client_of(server_->port(), tenant, node_->key_file());
    if (!client) return client;
    Expected<KvMemory> memory = client->register_memory(values_.bytes());
    if (!memory) return fail(kExitFailed, "bench: " + memory.error().text);
    lent.emplace(std::move(*memory));
    return client;
  }

  Outcome<void> many_values() {
    const std::uint64_t values = options_.scale_values;
    const std::uint64_t an_arena = kArenaBytes / kSlotBytes;
    const std::uint64_t arenas = values / an_arena + 2;
    // Puts must not meet the 90 percent at which arenas are emptied.
    if (auto up = start((arenas + arenas / 8 + 1) * kArenaBytes, kArenaBytes, 1); !up) return up;
    std::optional<KvMemory> lent;
    Outcome<KvClient> client = worker(kPrivateTenant, lent);
    if (!client) return fail(client.error());
    const std::uint64_t before = private_bytes(node_->child().pid());
    const std::uint64_t server_before = private_bytes(server_->pid());
    progress_.restart("put", values);
    Phase phase = begin("kv.scale_put");
    if (auto done = put(*client, 0, values, phase); !done) return done;
    const auto grown = [values](std::uint64_t from, std::uint64_t to) {
      return static_cast<double>(to > from ? to - from : 0) / static_cast<double>(values);
    };
    const double book = static_cast<double>(count("bytes_bookkeeping").value_or(0));
    Row& row = end(std::move(phase), values, true, 1);
    row.more.emplace_back("node_bytes_per_value",
                          grown(before, private_bytes(node_->child().pid())));
    row.more.emplace_back("manifest_bytes_per_value", book / static_cast<double>(values));
    row.more.emplace_back("directory_bytes_per_value",
                          grown(server_before, private_bytes(server_->pid())));
    const std::uint64_t reads = std::min<std::uint64_t>(values, 100000);
    progress_.restart("get", reads);
    phase = begin("kv.scale_get");
    if (auto done = get(*client, values, reads, phase); !done) return done;
    end(std::move(phase), reads, true, 1);
    if (auto done = rotate(*client, std::min(values, an_arena)); !done) return done;
    if (auto done = reconcile(values - std::min(values, an_arena)); !done) return done;
    return restart(*client, std::min<std::uint64_t>(values, 100000));
  }

  // One arena full of small values: until its memory is writable again, and until the directory was
  // purged.
  Outcome<void> rotate(KvClient& client, std::uint64_t values) {
    progress_.restart("rotate", 0);
    const std::uint64_t purges = count("purges_done").value_or(0);
    Phase phase = begin("kv.scale_rotate");
    Phase whole = phase;
    whole.what = "kv.scale_rotate_and_purge";
    if (client.rotate(kNode, 1) != KvStatus::ok) return fail(kExitFailed, "bench: no rotation");
    const auto over = [this] { return count("arenas_rotating").value_or(1) == 0; };
    if (auto done = wait_for("a rotation", over); !done) return done;
    end(std::move(phase), values, false, 1);
    const auto purged = [&] { return count("purges_done").value_or(0) > purges; };
    if (auto done = wait_for("a purge", purged); !done) return done;
    end(std::move(whole), values, false, 1);
    return {};
  }

  // The directory pauses for longer than the node waits, and is back: one pass over all values.
  // Then it forgets everything: until all of them are known to be gone.
  Outcome<void> reconcile(std::uint64_t values) {
    progress_.restart("reconcile", 0);
    if (values == 0) return {};
    if (auto lost = pause_server(); !lost) return lost;
    std::uint64_t passes = count("reconciles").value_or(0);
    Phase phase = begin("kv.scale_reconcile");
    ::kill(server_->pid(), SIGCONT);
    const auto passed = [&] { return count("reconciles").value_or(0) > passes; };
    if (auto done = wait_for("a reconcile", passed); !done) return done;
    end(std::move(phase), values, false, 1);
    return {};
  }
  Outcome<void> pause_server() {
    const std::uint64_t losses = count("directory_losses").value_or(0);
    ::kill(server_->pid(), SIGSTOP);
    auto lost = wait_for("a loss", [&] { return count("directory_losses").value_or(0) > losses; });
    if (!lost) ::kill(server_->pid(), SIGCONT);
    return lost;
  }

  // The node dies and comes back: until a key of the dead one takes a value again, and how fast the
  // others follow. Every one of them is blocked by a descriptor that has to be repaired.
  Outcome<void> restart(KvClient& client, std::uint64_t values) {
    progress_.restart("restart", values);
    Phase phase = begin("kv.scale_restart");
    pinger_.reset();
    asking_.reset();
    node_->kill();
    if (auto up = start_node(); !up) return up;
    phase.cpu_there = 0;
    const auto works = [&] {
      values_.stamp(0, 0);
      const KvResult put = client.put(Values::key(0), values_.place(0), KvPutMode::if_absent);
      return put.ok() || put.status == KvStatus::exists;
    };
    if (auto done = wait_for("a put after the restart", works); !done) return done;
    end(std::move(phase), 1, false, 1);
    phase = begin("kv.scale_repair");
    if (auto done = put(client, 1, values, phase); !done) return done;
    end(std::move(phase), values - 1, true, 1);
    return forget(values);
  }
  Outcome<void> forget(std::uint64_t values) {
    progress_.restart("forget", 0);
    Phase phase = begin("kv.scale_flushed");
    Outcome<Client> plain = plain_client();
    if (!plain) return fail(plain.error());
    if (!plain->command({"FLUSHALL"})) return fail(kExitFailed, "bench: FLUSHALL");
    // A loss of the server, which is what it would be, starts a pass at once.
    if (auto lost = pause_server(); !lost) return lost;
    ::kill(server_->pid(), SIGCONT);
    const auto gone = [&] { return count("slots_published").value_or(1) == 0; };
    if (auto done = wait_for("finding what was flushed", gone); !done) return done;
    end(std::move(phase), values, false, 1);
    return {};
  }
  Outcome<Client> plain_client() {
    ClientOptions options;
    options.addresses = {{"127.0.0.1", server_->port()}};
    Expected<Client> client = Client::create(std::move(options));
    if (!client) return fail(kExitFailed, "bench: the server cannot be reached");
    return std::move(*client);
  }

  Outcome<void> many_tenants() {
    const unsigned tenants = options_.scale_tenants;
    const Instant from = SystemClock().now();
    if (auto up = start(2 * kTenantArenaBytes, kTenantArenaBytes, tenants); !up) return up;
    const double started_s = seconds_since(from);
    const std::uint64_t before = private_bytes(node_->child().pid());
    progress_.restart("tenants", tenants);
    Phase phase = begin("kv.scale_tenants_put");
    for (unsigned i = 0; i < tenants; ++i) {
      std::optional<KvMemory> lent;
      Outcome<KvClient> client = worker(tenant(i), lent);
      if (!client) return fail(client.error());
      if (auto done = put(*client, 0, kTenantValues, phase); !done) return done;
    }
    const std::uint64_t after = private_bytes(node_->child().pid());
    Row& row = end(std::move(phase), kTenantValues * tenants, true, tenants);
    row.more.emplace_back("node_start_s", started_s);
    row.more.emplace_back("node_bytes", static_cast<double>(after));
    row.more.emplace_back("node_bytes_per_tenant",
                          static_cast<double>(after > before ? after - before : 0) / tenants);
    phase = begin("kv.scale_tenants_rotate");
    for (unsigned i = 0; i < tenants; ++i) {
      Outcome<KvClient> client = client_of(server_->port(), tenant(i), node_->key_file());
      if (!client) return fail(client.error());
      if (client->rotate(kNode) != KvStatus::ok) return fail(kExitFailed, "bench: no rotation");
    }
    const auto purged = [&] { return count("purges_done").value_or(0) >= tenants; };
    if (auto done = wait_for("rotations", purged); !done) return done;
    end(std::move(phase), kTenantValues * tenants, false, tenants);
    return {};
  }
  static std::string tenant(unsigned i) { return i == 0 ? kPrivateTenant : fmt::format("t{}", i); }

  const BenchOptions options_;
  Progress progress_;
  Values values_;
  std::vector<Row> rows_;
  PrivateNodeOptions node_options_;
  std::optional<TempFolder> folder_;
  std::unique_ptr<PrivateServer> server_;
  std::unique_ptr<PrivateNode> node_;
  std::optional<KvClient> asking_;
  std::unique_ptr<Pinger> pinger_;
};

double more_of(const Row& row, std::string_view name) {
  for (const auto& [known, value] : row.more)
    if (known == name) return value;
  return 0;
}

std::string scale_table(const std::vector<Row>& rows) {
  Table table({"what", "values", "tenants", "s", "values/s", "node CPU us", "control p50 us",
               "p99 us", "worst us"});
  std::string memory;
  for (const Row& row : rows) {
    table.add({row.label.what, fmt::format("{:.0f}", more_of(row, "values")),
               fmt::format("{:.0f}", more_of(row, "tenants")),
               fmt::format("{:.3f}", more_of(row, "seconds")),
               fmt::format("{:.0f}", more_of(row, "values_per_s")),
               fmt::format("{:.2f}", more_of(row, "node_cpu_us_per_value")),
               fmt::format("{:.0f}", more_of(row, "control_p50_us")),
               fmt::format("{:.0f}", more_of(row, "control_p99_us")),
               fmt::format("{:.0f}", more_of(row, "control_worst_us"))});
    for (const auto& [name, value] : row.more) {
      if (name.find("bytes") == std::string::npos && name != "node_start_s") continue;
      memory += fmt::format("{}: {} {:.1f}\n", row.label.what, name, value);
    }
  }
  return table.text() + "\n" + memory;
}

}  // namespace

int run_kv_scale(const BenchOptions& options) {
  Outcome<std::vector<Row>> rows = Scale(options).all();
  if (!rows) return report(rows.error(), options.json);
  print(options.json ? rows_json(*rows) + "\n" : scale_table(*rows));
  return kExitOk;
}

}  // namespace farlift::apps
