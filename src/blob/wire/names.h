// The names both ends of the blob door agree on: commands, keywords, limits.
//
// Threads: constants. Errors: none.
#pragma once

#include <cstddef>
#include <string_view>

namespace farlift::blob::wire {

inline constexpr const char kModuleName[] = "largeobj";
inline constexpr const char kTypeName[] = "largeob-k";  // nine characters, as the server demands
inline constexpr const char kAclCategory[] = "largeobj";

inline constexpr const char kRdmaHello[] = "BLOB.RDMA_HELLO";
inline constexpr const char kRdmaGet[] = "BLOB.RDMA_GET";
inline constexpr const char kRdmaSet[] = "BLOB.RDMA_SET";
inline constexpr const char kTcpGet[] = "BLOB.TCP_GET";
inline constexpr const char kTcpSet[] = "BLOB.TCP_SET";
inline constexpr const char kInfo[] = "BLOB.INFO";

inline constexpr std::string_view kKeywordCrc = "CRC";
inline constexpr std::string_view kFieldLen = "len";
inline constexpr std::string_view kFieldCrc = "crc";
inline constexpr std::string_view kFieldTier = "tier";
inline constexpr std::string_view kTierDram = "dram";
inline constexpr std::string_view kTierDisk = "disk";

inline constexpr std::size_t kRegionsMax = 256;  // triples a transfer may name (spec blob 3.2)

inline constexpr const char kEventCreate[] = "largeobj.create";
inline constexpr const char kEventUpdate[] = "largeobj.update";

}  // namespace farlift::blob::wire
