// Contender: one way to move a value, in a form that can be measured like any other.
//
// Invariants: op() returns after the whole value is in place, in the bytes of the scene.
// Threads:    prepare() and release() from one thread; op(w), enter(w), leave(w) from worker w,
//             workers in parallel.
// Errors:     Failure; a failed op ends the benchmark, a figure is never made of what is left.
#pragma once

#include "apps/outcome.h"
#include "apps/process.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

namespace farlift::apps {

// What all contenders share for one size and number of transfers in flight.
struct Scene {
  std::uint64_t size = 0;
  unsigned in_flight = 1;
  std::vector<std::span<std::byte>>
      values;  // one a worker: hold the value before and after each op
  std::vector<std::span<std::byte>> scratch;  // one a worker: anything may land here
  std::uint16_t server_port = 0;
  std::string blob_key;    // holds the value as a large object
  std::string string_key;  // holds it as a string
};

struct Label {
  std::string what;      // blob.rdma_get, raw_tcp, ...
  std::string lane;      // remote, host, one core, two cores, or empty
  std::string provider;  // soft, tcp, or empty
  bool verified = false;
};

class Contender {
 public:
  Contender(Label label, pid_t other) : label_(std::move(label)), other_(other) {}
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  virtual ~Contender() = default;

  const Label& label() const noexcept { return label_; }
  pid_t other() const noexcept { return other_; }  // the process at the far side, 0: none

  // Whether it has anything to say of such a scene, and how much it moves at once there.
  virtual bool fits(const Scene&) const { return true; }
  virtual std::uint64_t bytes_per_op(const Scene& scene) const { return scene.size; }
  virtual Outcome<void> prepare(const Scene& scene) = 0;
  virtual Outcome<void> op(unsigned worker) = 0;
  virtual void release() = 0;
  // Around the measured ops of a worker, in its thread.
  virtual void enter(unsigned) {}
  virtual void leave(unsigned) {}
  // Where the ops happen in a process of its own: all of a measurement there, the microseconds of
  // each. Empty: op() is to be called.
  virtual Outcome<std::optional<std::vector<double>>> run(double /*seconds*/) {
    return std::nullopt;
  }
  // CPU time used so far at this side and at the far one.
  virtual double cpu_here_s() const { return cpu_seconds(0).value_or(0); }
  virtual double cpu_there_s() const { return other_ == 0 ? 0 : cpu_seconds(other_).value_or(0); }

 private:
  const Label label_;
  const pid_t other_;
};
using Contenders = std::vector<std::unique_ptr<Contender>>;

// The data node and who may read from it. Puts have a tenant of their own, whose arenas may turn
// over without taking away what the reads want.
struct KvAccess {
  std::string tenant;
  std::string put_tenant;
  std::uint64_t put_quota = 0;  // of the latter; 0: its arenas are not to be warmed up
  std::string key_file;
  pid_t node = 0;
};
void add_kv_contenders(Contenders& out, const std::vector<std::string>& lanes,
                       const KvAccess& access, std::uint16_t peer_port, pid_t peer);
// Mooncake Store over tcp, by a Python whose environment has it: a master, a process that lends the
// memory, and one that reads and writes. Null, and `why`, when it cannot be started.
struct MooncakeStore;
std::shared_ptr<MooncakeStore> start_mooncake(const std::string& python, const std::string& folder,
                                              std::uint64_t largest, std::string& why);
void add_mooncake_contenders(Contenders& out, const std::shared_ptr<MooncakeStore>& store);
void add_rdma_contenders(Contenders& out, const std::vector<std::string>& lanes, pid_t server);
void add_valkey_contenders(Contenders& out, pid_t server);
// `peer_port`: where run_bench_peer() listens.
void add_raw_contenders(Contenders& out, std::uint16_t peer_port, pid_t peer, bool with_libfabric);

}  // namespace farlift::apps
