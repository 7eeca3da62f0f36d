// XML as S3 speaks it: a writer for replies, and the few request bodies as values.
//
// Invariants: the writer escapes every value, and characters that XML 1.0 cannot carry come out as
//             U+FFFD; the readers refuse more than kXmlBytesMax bytes, more than kXmlDepthMax
//             levels, a document type (so no entity is ever expanded), and lists that are longer
//             than the operation allows.
// Threads:    plain values. Errors: malformed_xml, in words where that helps.
#pragma once

#include "s3/gateway/s3_error.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::s3::gateway {

inline constexpr std::size_t kXmlBytesMax = std::size_t{4} << 20;
inline constexpr std::size_t kXmlDepthMax = 16;
inline constexpr std::size_t kDeleteKeysMax = 1000;
inline constexpr std::size_t kPartsMax = 10000;
inline constexpr std::size_t kTagsMax = 10;

class XmlWriter {
 public:
  XmlWriter();
  XmlWriter& open(std::string_view name);
  // The root, in S3's namespace.
  XmlWriter& root(std::string_view name);
  XmlWriter& close(std::string_view name);
  XmlWriter& element(std::string_view name, std::string_view value);
  XmlWriter& element(std::string_view name, std::uint64_t value);
  XmlWriter& flag(std::string_view name, bool value);
  XmlWriter& text(std::string_view value);
  // Left out when empty.
  XmlWriter& optional(std::string_view name, std::string_view value);
  std::string finish() && { return std::move(out_); }
  std::size_t size() const noexcept { return out_.size(); }

 private:
  void escape(std::string_view value);
  std::string out_;
};

struct DeleteRequest {
  struct Key {
    std::string key;
    std::string version;  // empty: none given
    std::string etag;     // condition; empty: none
  };
  std::vector<Key> keys;
  bool quiet = false;
};
S3Result<DeleteRequest> parse_delete(std::string_view xml);

struct CompletePart {
  std::uint32_t number = 0;
  std::string etag;                              // as sent, with or without quotes
  std::map<std::string, std::string> checksums;  // "crc32" → base64
};
S3Result<std::vector<CompletePart>> parse_complete(std::string_view xml);

using Tags = std::vector<std::pair<std::string, std::string>>;
S3Result<Tags> parse_tagging(std::string_view xml);

// <CreateBucketConfiguration>: the place asked for; empty text is allowed and means ours.
S3Result<std::string> parse_create_bucket(std::string_view xml);
// <VersioningConfiguration>: "Enabled" or "Suspended".
S3Result<std::string> parse_versioning(std::string_view xml);

}  // namespace farlift::s3::gateway
