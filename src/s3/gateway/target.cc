#include "s3/gateway/target.h"

#include "core/codec/text.h"

#include <algorithm>

namespace farlift::s3::gateway {
namespace {

bool alphanumeric(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// '+' is a blank in a query, as every S3 server reads it; in a path it is itself.
S3Result<std::string> decode_query(std::string_view text) {
  std::string plain(text);
  std::replace(plain.begin(), plain.end(), '+', ' ');
  Result<std::string> decoded = codec::percent_decode(plain);
  if (!decoded.ok()) return refuse(S3Code::invalid_uri);
  return std::move(decoded).value();
}

std::string_view without_port(std::string_view host) noexcept {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool looks_like_ipv4(std::string_view name) noexcept {
  return std::count(name.begin(), name.end(), '.') == 3 &&
         name.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

S3Result<Query> Query::parse(std::string_view raw) {
  Query query;
  while (!raw.empty()) {
    const std::size_t end = std::min(raw.find('&'), raw.size());
    const std::string_view field = raw.substr(0, end);
    raw.remove_prefix(std::min(end + 1, raw.size()));
    if (field.empty()) continue;
    if (query.fields_.size() == kQueryFieldsMax)
      return refuse(S3Code::invalid_uri, "There are too many query parameters.");
    const std::size_t equals = std::min(field.find('='), field.size());
    TRY_ASSIGN(std::string name, decode_query(field.substr(0, equals)));
    TRY_ASSIGN(std::string value, decode_query(field.substr(std::min(equals + 1, field.size()))));
    query.fields_.emplace_back(std::move(name), std::move(value));
  }
  return query;
}

const std::string* Query::find(std::string_view name) const noexcept {
  for (const auto& [field, value] : fields_) {
    if (field == name) return &value;
  }
  return nullptr;
}

std::string_view Query::get(std::string_view name) const noexcept {
  const std::string* const value = find(name);
  return value == nullptr ? std::string_view() : std::string_view(*value);
}

bool valid_bucket_name(std::string_view name) noexcept {
  if (name.size() < 3 || name.size() > 63) return false;
  if (!alphanumeric(name.front()) || !alphanumeric(name.back())) return false;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (alphanumeric(name[i]) || name[i] == '-') continue;
    if (name[i] != '.' || name[i - 1] == '.') return false;
  }
  return !looks_like_ipv4(name) && !name.starts_with("xn--") && !name.ends_with("-s3alias");
}

S3Result<Target> parse_target(std::string_view target, std::string_view host,
                              std::string_view domain) {
  Target result;
  const std::size_t question = std::min(target.find('?'), target.size());
  result.raw_path = std::string(target.substr(0, question));
  TRY_ASSIGN(result.query, Query::parse(target.substr(std::min(question + 1, target.size()))));
  Result<std::string> path = codec::percent_decode(result.raw_path);
  if (!path.ok() || path->empty() || path->front() != '/') return refuse(S3Code::invalid_uri);
  if (path->find('\0') != std::string::npos) return refuse(S3Code::invalid_uri);
  std::string_view rest = std::string_view(*path).substr(1);
  const std::string_view name = without_port(host);
  const bool in_host =
      !domain.empty() && name.size() > domain.size() + 1 &&
      codec::equal_ignoring_case(name.substr(name.size() - domain.size()), domain) &&
      name[name.size() - domain.size() - 1] == '.';
  if (in_host) {
    result.bucket = std::string(name.substr(0, name.size() - domain.size() - 1));
    result.key = std::string(rest);
  } else {
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    result.bucket = std::string(rest.substr(0, slash));
    result.key = std::string(rest.substr(std::min(slash + 1, rest.size())));
    if (result.bucket.empty() && !rest.empty()) return refuse(S3Code::invalid_bucket_name);
  }
  if (result.key.size() > kKeyBytesMax) return refuse(S3Code::key_too_long);
  return result;
}

}  // namespace farlift::s3::gateway
