#include "s3/volume/http_request.h"

#include "core/codec/text.h"
#include "s3/wire/fid.h"

#include <algorithm>

namespace farlift::s3::volume {
namespace {

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool starts_without_case(std::string_view text, std::string_view start) noexcept {
  return text.size() >= start.size() &&
         codec::equal_ignoring_case(text.substr(0, start.size()), start);
}

// The value of `name` in "a; name=value; b" or name="value"; empty when absent.
std::string_view parameter(std::string_view field, std::string_view name) noexcept {
  std::size_t at = field.find(';');
  while (at != std::string_view::npos) {
    field.remove_prefix(at + 1);
    const std::size_t end = field.find(';');
    const std::string_view one = trimmed(field.substr(0, end));
    const std::size_t equals = one.find('=');
    if (equals != std::string_view::npos &&
        codec::equal_ignoring_case(trimmed(one.substr(0, equals)), name)) {
      std::string_view value = trimmed(one.substr(equals + 1));
      if (value.size() >= 2 && value.front() == '"' && value.back() == '"')
        value = value.substr(1, value.size() - 2);
      return value;
    }
    at = end;
  }
  return {};
}

}  // namespace

Result<DataTarget> parse_target(std::string_view target) {
  if (target.empty() || target.front() != '/' || target.size() > kTargetMax)
    return Error::make(Errc::invalid_argument, "request target");
  DataTarget out;
  const std::size_t mark = target.find('?');
  TRY_ASSIGN(out.path, codec::percent_decode(target.substr(0, mark)));
  std::string_view rest = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  while (!rest.empty()) {
    const std::size_t end = rest.find('&');
    const std::string_view one = rest.substr(0, end);
    rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
    if (one.empty()) continue;
    const std::size_t equals = one.find('=');
    TRY_ASSIGN(std::string name, codec::percent_decode(one.substr(0, equals)));
    std::string value;
    if (equals != std::string_view::npos) {
      TRY_ASSIGN(value, codec::percent_decode(one.substr(equals + 1)));
    }
    out.query.emplace(std::move(name), std::move(value));
  }
  return out;
}

Result<NamedNeedle> needle_of_path(std::string_view path) {
  if (path.empty() || path.front() != '/')
    return Error::make(Errc::invalid_argument, "no file id in the path");
  path.remove_prefix(1);
  path = path.substr(0, path.find('/'));
  path = path.substr(0, path.find('.'));
  NamedNeedle out;
  TRY_ASSIGN(const Fid fid, Fid::parse(path));
  out.fid = path;
  out.ref = {VolumeId(fid.volume), {fid.needle, fid.cookie}};
  return out;
}

std::string find_jwt(const DataTarget& target, std::string_view authorization,
                     std::string_view cookie) {
  constexpr std::string_view kBearer = "Bearer ";
  const auto found = target.query.find("jwt");
  if (found != target.query.end() && !found->second.empty()) return found->second;
  if (starts_without_case(authorization, kBearer))
    return std::string(trimmed(authorization.substr(kBearer.size())));
  while (!cookie.empty()) {
    const std::size_t end = cookie.find(';');
    const std::string_view one = trimmed(cookie.substr(0, end));
    if (one.starts_with("AT=")) return std::string(one.substr(3));
    if (end == std::string_view::npos) break;
    cookie.remove_prefix(end + 1);
  }
  return {};
}

Result<FormPart> find_form_part(std::string_view body, std::string_view content_type) {
  const Error bad = Error::make(Errc::invalid_argument, "multipart body");
  const std::string_view boundary = parameter(content_type, "boundary");
  if (boundary.empty() || boundary.size() > 70) return bad;
  const std::string mark = "--" + std::string(boundary);
  if (!body.starts_with(mark)) return bad;
  std::size_t at = mark.size();
  for (;;) {
    if (!body.substr(at).starts_with("\r\n")) return bad;  // "--": the end, no file came
    at += 2;
    const std::size_t head_end = body.find("\r\n\r\n", at);
    if (head_end == std::string_view::npos) return bad;
    FormPart part;
    bool is_file = false;
    std::string_view lines = body.substr(at, head_end - at);
    while (!lines.empty()) {
      const std::size_t line_end = lines.find("\r\n");
      const std::string_view line = lines.substr(0, line_end);
      lines = line_end == std::string_view::npos ? "" : lines.substr(line_end + 2);
      const std::size_t colon = line.find(':');
      if (colon == std::string_view::npos) return bad;
      const std::string_view name = line.substr(0, colon);
      const std::string_view value = trimmed(line.substr(colon + 1));
      if (codec::equal_ignoring_case(name, "content-disposition")) {
        part.name = parameter(value, "filename");
        is_file = !part.name.empty() || parameter(value, "name") == "file";
      } else if (codec::equal_ignoring_case(name, "content-type")) {
        part.mime = value;
      } else if (codec::equal_ignoring_case(name, "content-encoding")) {
        part.compressed = codec::equal_ignoring_case(value, "gzip");
      }
    }
    part.from = head_end + 4;
    const std::size_t end = body.find("\r\n" + mark, part.from);
    if (end == std::string_view::npos) return bad;
    part.length = end - part.from;
    if (is_file) return part;
    at = end + 2 + mark.size();
  }
}

}  // namespace farlift::s3::volume
