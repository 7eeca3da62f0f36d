// Contender: one way to move a value, in a form that can be measured like any other.
//
// Invariants: op() returns after the whole value is in place, in the bytes of the scene.
// Threads:    prepare() and release() from one thread; op(w), enter(w), leave(w) from worker w,
//             workers in parallel.
// Errors:     Failure; a failed op ends the benchmark, a figure is never made of what is left.
#pragma once

#include "apps/outcome.h"

#include <cstddef>
#include <cstdint>
#include <memory>
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

 private:
  const Label label_;
  const pid_t other_;
};
using Contenders = std::vector<std::unique_ptr<Contender>>;

// The data node and who may read from it.
struct KvAccess {
  std::string tenant;
  std::string key_file;
  pid_t node = 0;
};
void add_kv_contenders(Contenders& out, const std::vector<std::string>& lanes,
                       const KvAccess& access, std::uint16_t peer_port, pid_t peer);
void add_rdma_contenders(Contenders& out, const std::vector<std::string>& lanes, pid_t server);
void add_valkey_contenders(Contenders& out, pid_t server);
// `peer_port`: where run_bench_peer() listens.
void add_raw_contenders(Contenders& out, std::uint16_t peer_port, pid_t peer, bool with_libfabric);

}  // namespace farlift::apps
