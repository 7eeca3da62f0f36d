#include "kvcache/client/placement.h"

#include "core/digest/hash.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>

namespace farlift::kv::client {
namespace {

constexpr double kFreshShare = 0.1;

// Uniform in (0, 1), from the key and the node alone.
double draw(ByteView key, NodeId node) {
  std::array<std::byte, 8> id{};
  for (std::size_t i = 0; i < id.size(); ++i) {
    id[i] = static_cast<std::byte>(node.raw() >> (8 * i) & 0xff);
  }
  digest::Sha256 hash;
  hash.update(id);
  hash.update(key);
  const digest::Sha256Digest digest = hash.finish();
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    number |= std::to_integer<std::uint64_t>(digest[i]) << (8 * i);
  }
  return (static_cast<double>(number >> 11) + 0.5) / 9007199254740992.0;  // 2^53
}

double weight(const NodeRecord& node, Duration ramp_up) {
  const double full = std::chrono::duration<double>(ramp_up).count();
  const double age = static_cast<double>(node.up_seconds);
  if (full <= 0 || age >= full) return 1.0;
  return kFreshShare + (1.0 - kFreshShare) * age / full;
}

}  // namespace

std::vector<NodeRecord> place(ByteView key, Length length, const std::vector<NodeRecord>& nodes,
                              Duration ramp_up) {
  struct Scored {
    double score;
    const NodeRecord* node;
  };
  std::vector<Scored> scored;
  for (const NodeRecord& node : nodes) {
    const bool room =
        node.free_bytes >= kHeaderBytes && node.free_bytes - kHeaderBytes >= length.raw();
    if (node.state != NodeRecord::State::up || !room) continue;
    scored.push_back({-weight(node, ramp_up) / std::log(draw(key, node.node)), &node});
  }
  std::sort(scored.begin(), scored.end(), [](const Scored& a, const Scored& b) {
    return a.score != b.score ? a.score > b.score : a.node->node < b.node->node;
  });
  std::vector<NodeRecord> order;
  order.reserve(scored.size());
  for (const Scored& one : scored) order.push_back(*one.node);
  return order;
}

}  // namespace farlift::kv::client
