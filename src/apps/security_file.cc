#include "apps/security_file.h"

#include "apps/files.h"
#include "core/codec/text.h"

#include <fmt/format.h>

namespace farlift::apps {

namespace {

constexpr std::size_t kFileMax = 64 * 1024;

std::string_view trimmed(std::string_view text) {
  const std::size_t from = text.find_first_not_of(" \t\r");
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(" \t\r") - from + 1);
}

// A comment begins at a '#' outside of quotes.
std::string_view without_comment(std::string_view line) {
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') quoted = !quoted;
    if (line[i] == '#' && !quoted) return line.substr(0, i);
  }
  return line;
}

Outcome<void> take(SecurityFile& out, std::string_view section, std::string_view name,
                   std::string_view value, const std::string& where) {
  const bool write = section == "jwt.signing";
  if (!write && section != "jwt.signing.read") return {};
  if (name == "key") {
    if (value.size() < 2 || value.front() != '"' || value.back() != '"')
      return fail(kExitUsage, where + ": the key must stand in double quotes");
    (write ? out.write_key : out.read_key) = std::string(value.substr(1, value.size() - 2));
  } else if (name == "expires_after_seconds") {
    const Result<std::uint32_t> seconds = codec::parse_u32(value);
    if (!seconds.ok())
      return fail(kExitUsage, where + ": expires_after_seconds must be a whole number");
    (write ? out.write_expires_s : out.read_expires_s) = *seconds;
  }
  return {};
}

}  // namespace

Outcome<SecurityFile> parse_security_file(std::string_view text, const std::string& name) {
  SecurityFile out;
  std::string section;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(without_comment(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const std::string where = fmt::format("{}, line {}", name, number);
    if (line.front() == '[') {
      if (line.back() != ']') return fail(kExitUsage, where + ": ']' is missing");
      section = std::string(trimmed(line.substr(1, line.size() - 2)));
      continue;
    }
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos)
      return fail(kExitUsage, where + ": neither [section] nor name = value");
    Outcome<void> taken = take(out, section, trimmed(line.substr(0, equals)),
                               trimmed(line.substr(equals + 1)), where);
    if (!taken) return fail(taken.error());
  }
  return out;
}

Outcome<SecurityFile> read_security_file(const std::string& path) {
  Outcome<std::string> text = read_file(path, kFileMax);
  if (!text) return fail(text.error());
  return parse_security_file(*text, path);
}

}  // namespace farlift::apps
