// Body: the part of an object, upload or part that is only read whole: fields, tags, checksum,
// chunks, parts. Layout: docs/formats/s3-catalog.md.
//
// Invariants: what encode_body() made, decode_body() gives back; anything else is `corrupt`,
// without an
//             allocation larger than the input.
// Threads:    pure functions.
#pragma once

#include "core/base/result.h"
#include "s3/catalog/record.h"

#include <string>
#include <string_view>

namespace farlift::s3::catalog {

struct Body {
  Fields fields;
  Fields tags;
  std::optional<Checksum> checksum;
  std::vector<Chunk> chunks;
  std::vector<PartSpan> parts;
};

std::string encode_body(const Body& body);
Result<Body> decode_body(std::string_view bytes);

}  // namespace farlift::s3::catalog
