// What the catalog keeps of buckets, objects and uploads, as plain values.
//
// Invariants: chunks are in the order of their offsets, without hole or overlap, and end at size;
// parts
//             likewise. Names of checksum algorithms are those of the headers, lower case: crc32,
//             crc32c, crc64nvme, sha1, sha256.
// Threads:    plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace farlift::s3::catalog {

struct Chunk {
  std::uint64_t offset = 0;  // in the object, or in the part
  std::uint64_t size = 0;
  std::string fid;
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

struct Checksum {
  std::string algorithm;
  std::string value;       // base64; composite: followed by "-N"
  bool composite = false;  // over the parts' checksums instead of the bytes
  friend bool operator==(const Checksum&, const Checksum&) = default;
};

struct PartSpan {
  std::uint32_t number = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  friend bool operator==(const PartSpan&, const PartSpan&) = default;
};

using Fields = std::vector<std::pair<std::string, std::string>>;

inline constexpr const char* kNullVersion = "null";

// One version of one key as listings show it.
struct Listed {
  std::string key;
  std::string version = kNullVersion;
  bool latest = true;
  bool marker = false;  // a delete marker: nothing but key, version and time
  std::uint64_t size = 0;
  std::string etag;                // without quotes
  std::int64_t modified_ms = 0;    // since the epoch
  std::string checksum_algorithm;  // empty: none
  bool checksum_composite = false;
};

// All that is known of it.
struct Object : Listed {
  Fields fields;  // header fields kept with it, names in lower case: content-type, x-amz-meta-...
  Fields tags;
  std::optional<Checksum> checksum;
  std::vector<Chunk> chunks;
  std::vector<PartSpan> parts;  // empty: it was put whole
};

enum class Versioning : std::uint8_t { never, enabled, suspended };

struct Bucket {
  std::string name;
  std::string owner;
  std::int64_t created_ms = 0;
  Versioning versioning = Versioning::never;
};

struct Upload {
  std::string id;
  std::string bucket;
  std::string key;
  std::string owner;
  std::int64_t started_ms = 0;
  Fields fields;
  Fields tags;
  std::string checksum_algorithm;  // empty: none was asked for
  bool checksum_composite = true;
};

struct Part {
  std::uint32_t number = 0;  // 1..10000
  std::uint64_t size = 0;
  std::string etag;
  std::int64_t modified_ms = 0;
  std::optional<Checksum> checksum;
  std::vector<Chunk> chunks;
};

}  // namespace farlift::s3::catalog
