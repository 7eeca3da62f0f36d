#include "s3/wire/push_map.h"

#include "core/codec/text.h"

namespace farlift::s3 {
namespace {

std::string_view trimmed(std::string_view text) noexcept {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

Error refuse(std::string* reason, std::string why) {
  if (reason != nullptr) *reason = std::move(why);
  return Error::make(Errc::invalid_argument, "push map");
}

}  // namespace

Result<HostPort> HostPort::parse(std::string_view text) {
  const Error malformed = Error::make(Errc::invalid_argument, "host:port");
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return malformed;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[')) {
    if (!host.ends_with(']')) return malformed;
    host = host.substr(1, host.size() - 2);
    if (host.find_first_of("[]") != std::string_view::npos) return malformed;
  } else if (host.find_first_of(":[]") != std::string_view::npos) {
    return malformed;
  }
  if (host.empty() || host.find_first_of(" \t=;/") != std::string_view::npos) return malformed;
  const auto port = codec::parse_u32(text.substr(colon + 1));
  if (!port.ok() || *port == 0 || *port > 65535) return malformed;
  return HostPort{std::string(host), static_cast<std::uint16_t>(*port)};
}

std::string HostPort::format() const {
  const std::string number = std::to_string(port);
  return host.find(':') == std::string::npos ? host + ":" + number : "[" + host + "]:" + number;
}

Result<PushMap> PushMap::parse(std::string_view text, std::string* reason) {
  PushMap map;
  if (trimmed(text).empty()) return refuse(reason, "the map is empty");
  for (;;) {
    const std::size_t end = text.find(';');
    const std::string_view entry = trimmed(text.substr(0, end));
    const std::size_t equals = entry.find('=');
    const std::string shown = "'" + std::string(entry) + "'";
    if (entry.empty()) return refuse(reason, "an entry of the map is empty");
    if (equals == std::string_view::npos) return refuse(reason, shown + " has no '='");
    const std::string_view from = entry.substr(0, equals);
    if (!HostPort::parse(from).ok())
      return refuse(reason, shown + ": left of '=' belongs a volume's host:port");
    auto to = HostPort::parse(entry.substr(equals + 1));
    if (!to.ok()) return refuse(reason, shown + ": right of '=' belongs a control host:port");
    if (!map.entries_.emplace(from, std::move(to).value()).second)
      return refuse(reason, std::string(from) + " is mapped twice");
    if (end == std::string_view::npos) return map;
    text.remove_prefix(end + 1);
  }
}

const HostPort* PushMap::find(std::string_view volume_endpoint) const {
  const auto at = entries_.find(volume_endpoint);
  return at == entries_.end() ? nullptr : &at->second;
}

}  // namespace farlift::s3
