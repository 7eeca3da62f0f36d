// Bugs that the simulation must find (spec kv 12, last paragraph), compiled in only with
// FARLIFT_PLANTED_BUGS: target farlift_kv_node_planted. In the library everybody links planted()
// is the constant false and NodeOptions has no such member.
//
// Threads: plain values.
#pragma once

#include <cstdint>

namespace farlift::kv {

enum class PlantedBug : std::uint8_t {
  none,
  skip_grace_and_fence,     // an arena is written again with neither wait nor fence
  constant_key,             // a key that was in use before is taken (8.2 step 8 left out)
  tag_without_key,          // the tag does not bind the key
  purge_by_version,         // unpublish V where L is right: deletes what was moved
  crc_before_grant_close,   // the writer may still write what was checked
  restored_incarnation,     // a counter that a failover hands out twice
  free_on_unknown_publish,  // a slot that may be visible is used again
  fence_mr_everywhere,      // a software provider trusted as if it were a card
};

}  // namespace farlift::kv
