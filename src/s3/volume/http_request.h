// What a request to the data port asks for, taken from its target and fields: pure functions, so
// that they are tested without sockets.
//
// Threads: pure functions. Errors: invalid_argument.
#pragma once

#include "core/base/result.h"
#include "core/base/types.h"
#include "s3/volume/uploads.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace farlift::s3::volume {

inline constexpr std::size_t kTargetMax = 4096;

struct DataTarget {
  std::string path;                                       // decoded
  std::map<std::string, std::string, std::less<>> query;  // the first of each name
};
Result<DataTarget> parse_target(std::string_view target);

struct NamedNeedle {
  std::string fid;  // as the request names it
  NeedleRef ref;
};
// "/3,01637037d6", also with a file name or an extension behind it: "/3,01637037d6/name.jpg".
Result<NamedNeedle> needle_of_path(std::string_view path);

// ?jwt=, Authorization: Bearer, cookie AT, in this order (spec s3 12).
std::string find_jwt(const DataTarget& target, std::string_view authorization,
                     std::string_view cookie);

// The first file of a multipart/form-data body.
struct FormPart {
  std::size_t from = 0;
  std::size_t length = 0;
  std::string name;
  std::string mime;
  bool compressed = false;
};
Result<FormPart> find_form_part(std::string_view body, std::string_view content_type);

}  // namespace farlift::s3::volume
