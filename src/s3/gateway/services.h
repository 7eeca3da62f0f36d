// Services: what every operation of the gateway works with, and the knobs it obeys.
//
// Threads: any; all parts outlive the gateway's server.
#pragma once

#include "core/base/clock.h"
#include "s3/catalog/store.h"
#include "s3/gateway/cluster.h"
#include "s3/gateway/identities.h"
#include "s3/gateway/volume_client.h"

#include <cstdint>
#include <functional>
#include <string>

namespace farlift::s3::gateway {

inline constexpr std::uint64_t kObjectSizeMax = std::uint64_t{5} << 40;  // 5 TiB
inline constexpr std::uint64_t kPutSizeMax = std::uint64_t{5} << 30;     // of one PUT or part
inline constexpr std::uint64_t kMetadataBytesMax = 2048;  // names and values of x-amz-meta-*
inline constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20;

struct GatewayOptions {
  std::string region = "us-east-1";
  std::string domain;  // "bucket.DOMAIN" names a bucket; empty: paths only
  bool composite_etag = false;
  std::size_t chunks_in_flight = 3;  // uploads of one request that wait for their answer
};

struct Services {
  const Clock& clock;
  catalog::Store& store;
  Cluster& cluster;
  VolumeClient& volumes;
  IdentitySource& identities;
  GatewayOptions options;
  std::function<std::int64_t()> now_ms;
};

}  // namespace farlift::s3::gateway
