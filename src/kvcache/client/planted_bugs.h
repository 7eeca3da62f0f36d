// Bugs planted on purpose (spec kv 12), so that a test can prove that its checkers bite. Compiled
// in only with FARLIFT_PLANTED_BUGS: target farlift_kv_client_planted. In the library everybody
// links every answer is the constant false and ClientOptions has no such member.
//
// Threads: plain values.
#pragma once

namespace farlift::kv {

#ifdef FARLIFT_PLANTED_BUGS
struct PlantedClientBugs {
  bool report_on_soft_timeout = false;  // T_op reports without closing the endpoint
  bool tag_without_key = false;         // neither the tag nor the key hash bind the key
  bool skip_crc = false;                // what landed is not compared with the CRC
};
#else
struct PlantedClientBugs {
  // NOLINTBEGIN(readability-identifier-naming): named as the members they stand for
  static constexpr bool report_on_soft_timeout = false;
  static constexpr bool tag_without_key = false;
  static constexpr bool skip_crc = false;
  // NOLINTEND(readability-identifier-naming)
};
#endif

}  // namespace farlift::kv
