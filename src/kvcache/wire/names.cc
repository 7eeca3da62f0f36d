#include "kvcache/wire/names.h"

#include "core/codec/text.h"
#include "core/digest/hash.h"
#include "kvcache/wire/sink.h"

#include <charconv>
#include <optional>

namespace farlift::kv {
namespace {

constexpr std::size_t kEncodedKeyBytesMax = 512;
constexpr std::string_view kRecordMagic = "okn1";
constexpr std::size_t kRecordBytesMax = 8192;

// What percent_encode keeps by itself ("-._~", letters, digits) plus these is spec kv 6's set.
constexpr std::string_view kKept = "@:=+,/";

std::string tagged(std::string_view prefix, std::string_view hash_tag) {
  return std::string(prefix) + "{" + std::string(hash_tag) + "}";
}

template <class T>
std::optional<T> number(std::string_view text, int base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::string hex16(std::uint64_t value) {
  Sink sink;
  for (int shift = 56; shift >= 0; shift -= 8) sink.u8(static_cast<std::uint8_t>(value >> shift));
  return codec::hex_encode(sink.bytes());
}

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(by);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

Error malformed() { return Error::make(Errc::invalid_argument, "node record"); }

}  // namespace

std::string encode_key(ByteView key) {
  std::string encoded = codec::percent_encode(text_of(key), kKept);
  if (encoded.size() <= kEncodedKeyBytesMax) return encoded;
  return "#" + codec::hex_encode(digest::sha256(key));
}

std::string descriptor_name(std::string_view tenant, ByteView key) {
  return tagged("okv:d:" + std::string(tenant) + ":", encode_key(key));
}

std::string tag_name(std::string_view tenant, ByteView key) {
  return descriptor_name(tenant, key) + ":sig";
}

std::string node_name(NodeId node) { return tagged("okv:n:", std::to_string(node.raw())); }

std::string lease_name(NodeId node, Incarnation incarnation, ArenaId arena,
                       const ClientId& client) {
  std::string prefix = lease_pattern(node, incarnation, arena);
  prefix.pop_back();
  return prefix + codec::hex_encode(client);
}

std::string lease_pattern(NodeId node, Incarnation incarnation, ArenaId arena) {
  return tagged("okv:l:", std::to_string(node.raw())) + ":" + hex16(incarnation.raw()) + ":" +
         std::to_string(arena.raw()) + ":*";
}

std::string manifest_name(std::string_view tenant, std::string_view group) {
  return tagged("okv:m:" + std::string(tenant) + ":", encode_key(bytes_of(group)));
}

// okn1 <node> <incarnation hex> <host> <port> <last_port> <up|draining> <free> <up_s>
// <provider>[,...]
std::string encode_node_record(const NodeRecord& record) {
  std::string text(kRecordMagic);
  const auto add = [&text](const std::string& word) { text.append(1, ' ').append(word); };
  add(std::to_string(record.node.raw()));
  add(hex16(record.incarnation.raw()));
  add(codec::percent_encode(record.host, ":"));
  add(std::to_string(record.port));
  add(std::to_string(record.last_port));
  add(record.state == NodeRecord::State::up ? "up" : "draining");
  add(std::to_string(record.free_bytes));
  add(std::to_string(record.up_seconds));
  std::string rails;
  for (const RailRecord& rail : record.rails)
    rails += (rails.empty() ? "" : ",") + codec::percent_encode(rail.provider);
  add(rails);
  return text;
}

Result<NodeRecord> decode_node_record(std::string_view text) {
  if (text.size() > kRecordBytesMax) return malformed();
  const std::vector<std::string_view> words = split(text, ' ');
  if (words.size() != 10 || words[0] != kRecordMagic) return malformed();
  const auto node = number<std::uint64_t>(words[1], 10);
  const auto incarnation = number<std::uint64_t>(words[2], 16);
  const auto host = codec::percent_decode(words[3]);
  const auto port = number<std::uint16_t>(words[4], 10);
  const auto last_port = number<std::uint16_t>(words[5], 10);
  const auto free_bytes = number<std::uint64_t>(words[7], 10);
  const auto up_seconds = number<std::uint64_t>(words[8], 10);
  if (!node || !incarnation || !host.ok() || host->empty() || !port || *port == 0 || !last_port ||
      !free_bytes || !up_seconds)
    return malformed();
  NodeRecord record;
  if (words[6] != "up" && words[6] != "draining") return malformed();
  record.state = words[6] == "up" ? NodeRecord::State::up : NodeRecord::State::draining;
  record.node = NodeId(*node);
  record.incarnation = Incarnation(*incarnation);
  record.host = *host;
  record.port = *port;
  record.last_port = *last_port;
  record.free_bytes = *free_bytes;
  record.up_seconds = *up_seconds;
  for (const std::string_view rail : split(words[9], ',')) {
    auto provider = codec::percent_decode(rail);
    if (!provider.ok() || provider->empty() || record.rails.size() == kRailsMax) return malformed();
    record.rails.push_back({std::move(provider).value()});
  }
  return record;
}

}  // namespace farlift::kv
