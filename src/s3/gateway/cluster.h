// Cluster: where new needles go and where old ones lie.
//
// Invariants: a fid that was assigned is in the catalog's ledger before it is returned, so that a
// crash leaves
//             no needle that nobody knows of.
// Threads:    any.
// Errors:     assign: exhausted (no volume takes writes), unreachable (no volume server answers),
// those of
//             the catalog. lookup: unreachable (no server that answers has the volume).
#pragma once

#include "core/base/result.h"
#include "s3/catalog/store.h"
#include "s3/gateway/volume_client.h"
#include "s3/wire/jwt.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace farlift::s3::gateway {

class Cluster {
 public:
  virtual ~Cluster() = default;
  // Each to be published or discarded.
  virtual Result<std::vector<Place>> assign(std::size_t count) = 0;
  // Not used after all: certainly nothing was written to them.
  virtual void give_back(std::vector<Place> unused) = 0;
  // Every holder, with a JWT to read.
  virtual Result<std::vector<Place>> lookup(const std::string& fid) = 0;
  // With a JWT to delete.
  virtual Result<std::vector<Place>> holders(const std::string& fid) = 0;
};

struct FixedClusterOptions {
  std::vector<std::string> volumes;  // "host:port" of each volume server
  std::string write_key;             // JWT; empty: none
  std::string read_key;
  std::uint32_t jwt_life_s = 60;
  Duration look_every = std::chrono::seconds(2);
  std::size_t volumes_each = 2;  // made on a server that has fewer that take writes
  std::function<std::uint64_t()> now_s;
};

// Volume servers named one by one; what they hold they are asked for. Servers that report the same
// volume are its holders.
std::unique_ptr<Cluster> make_fixed_cluster(FixedClusterOptions options, catalog::Store& store,
                                            VolumeClient& volumes, const Clock& clock);

}  // namespace farlift::s3::gateway
