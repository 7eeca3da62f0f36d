#include "apps/kv.h"

#include "apps/console.h"
#include "apps/files.h"
#include "apps/stack.h"
#include "core/base/clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace farlift::apps {

namespace {

constexpr int kReadTries = 5;  // a value may be replaced by a longer one between look and read

double seconds_since(Instant start) {
  return std::chrono::duration<double>(SystemClock().now() - start).count();
}

Outcome<RdmaProvider> provider_of(const std::string& name) {
  if (name == "soft") return RdmaProvider::soft;
  if (name == "tcp") return RdmaProvider::tcp;
  if (name == "verbs") return RdmaProvider::verbs;
  if (name == "efa") return RdmaProvider::efa_direct;
  return fail(kExitUsage, fmt::format("'{}' is no provider; choose soft, tcp, verbs or efa", name));
}

std::string version_text(std::uint64_t version) {
  return fmt::format("{}.{:08x}", version >> 32, version & 0xffffffff);
}

int announce(const KvCommand& command, const char* verb, const KvResult& result, double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(result.length) / seconds : 0;
  if (command.json) {
    print(JsonObject()
              .text("verb", verb)
              .text("key", command.key)
              .text("file", command.file)
              .integer("bytes", static_cast<std::int64_t>(result.length))
              .text("version", version_text(result.version))
              .number("seconds", seconds)
              .number("gb_per_s", rate / 1e9)
              .str() +
          "\n");
  } else {
    say(command.quiet, fmt::format("{} {}: {}, version {}, {:.1f} ms, {}", verb, command.key,
                                   human_bytes(result.length), version_text(result.version),
                                   seconds * 1e3, human_rate(rate)));
  }
  return kExitOk;
}

Outcome<int> put(const KvCommand& command, KvClient& client) {
  Outcome<MappedFile> file = MappedFile::source(command.file);
  if (!file) return fail(file.error());
  Progress progress("put " + command.file, 0, command.quiet || command.json);
  const Instant start = SystemClock().now();
  KvPut request{command.key, file->bytes(),
                command.mode == "replace" ? KvPutMode::replace : KvPutMode::if_absent, 0,
                command.push};
  const KvResult result = client.mput({&request, 1}).front();
  if (result.status == KvStatus::exists) {
    return fail(kExitFailed,
                fmt::format("there is a value '{}' (version {}); --replace puts a new one",
                            command.key, version_text(result.version)));
  }
  if (!result.ok()) return fail(explain(result, "cannot put '" + command.key + "'"));
  return announce(command, "put", result, seconds_since(start));
}

Outcome<int> get(const KvCommand& command, KvClient& client) {
  Progress progress("get " + command.key, 0, command.quiet || command.json);
  for (int tries = 0; tries < kReadTries; ++tries) {
    const KvResult look = client.stat(command.key);
    if (!look.ok()) return fail(explain(look, "cannot get '" + command.key + "'"));
    Outcome<NewFile> target = NewFile::create(command.file);
    if (!target) return fail(target.error());
    const Instant start = SystemClock().now();
    KvResult result;
    if (look.length == 0) {
      result = client.get(command.key, {});
    } else {
      Outcome<MappedFile> mapped = target->map(look.length);
      if (!mapped) return fail(mapped.error());
      result = client.get(command.key, mapped->bytes());
    }
    const double seconds = seconds_since(start);
    if (result.status == KvStatus::too_small) continue;
    if (!result.ok()) return fail(explain(result, "cannot get '" + command.key + "'"));
    if (Outcome<void> published = target->publish(result.length); !published)
      return fail(published.error());
    return announce(command, "got", result, seconds);
  }
  return fail(kExitFailed, fmt::format("'{}' grew {} times while it was read; try again",
                                       command.key, kReadTries));
}

Outcome<int> remove(const KvCommand& command, KvClient& client) {
  const KvResult result = client.remove(command.key);
  if (!result.ok()) return fail(explain(result, "cannot remove '" + command.key + "'"));
  if (command.json) {
    print(JsonObject().text("verb", "rm").text("key", command.key).str() + "\n");
  } else {
    say(command.quiet, "removed " + command.key);
  }
  return kExitOk;
}

// What is said of one key, or the counters of nodes.
Outcome<int> stat_key(const KvCommand& command, KvClient& client) {
  const KvResult look = client.stat(command.key);
  if (!look.ok()) return fail(explain(look, "cannot look at '" + command.key + "'"));
  if (command.json) {
    print(JsonObject()
              .text("key", command.key)
              .integer("bytes", static_cast<std::int64_t>(look.length))
              .text("version", version_text(look.version))
              .str() +
          "\n");
  } else {
    say(false, fmt::format("{}: {}, version {}", command.key, human_bytes(look.length),
                           version_text(look.version)));
  }
  return kExitOk;
}

Outcome<std::vector<KvNode>> chosen_nodes(const KvCommand& command, KvClient& client) {
  Expected<std::vector<KvNode>> nodes = client.nodes();
  if (!nodes) return fail(kExitUnreachable, nodes.error().text);
  if (command.node == 0) return *nodes;
  std::erase_if(*nodes, [&](const KvNode& node) { return node.id != command.node; });
  if (nodes->empty())
    return fail(kExitNotFound, fmt::format("no node {} has a live record", command.node));
  return *nodes;
}

Outcome<int> stat_nodes(const KvCommand& command, KvClient& client) {
  Outcome<std::vector<KvNode>> nodes = chosen_nodes(command, client);
  if (!nodes) return fail(nodes.error());
  std::vector<std::string> lines;
  for (const KvNode& node : *nodes) {
    const KvNodeStatistics statistics = client.node_statistics(node.id);
    JsonObject row;
    row.integer("node", static_cast<std::int64_t>(node.id))
        .text("status", to_string(statistics.status));
    if (!command.json) {
      print(fmt::format("node {} at {}:{}: {}\n", node.id, node.host, node.port,
                        to_string(statistics.status)));
    }
    for (const auto& [name, value] : statistics.counters) {
      row.integer(name, static_cast<std::int64_t>(value));
      if (!command.json) print(fmt::format("  {:<32} {}\n", name, value));
    }
    lines.push_back(row.str());
  }
  if (command.json) print(json_list(lines, true) + "\n");
  return kExitOk;
}

Outcome<int> list(const KvCommand& command, KvClient& client) {
  Outcome<std::vector<KvNode>> nodes = chosen_nodes(command, client);
  if (!nodes) return fail(nodes.error());
  Table table({"node", "state", "address", "free", "up s", "rails", "incarnation"});
  std::vector<std::string> lines;
  for (const KvNode& node : *nodes) {
    const std::string rails = fmt::format("{}", fmt::join(node.providers, ","));
    const char* state = node.draining ? "draining" : "up";
    const std::string incarnation = fmt::format("{:016x}", node.incarnation);
    table.add({std::to_string(node.id), state, fmt::format("{}:{}", node.host, node.port),
               human_bytes(node.free_bytes), std::to_string(node.up_seconds), rails, incarnation});
    lines.push_back(JsonObject()
                        .integer("node", static_cast<std::int64_t>(node.id))
                        .text("state", state)
                        .text("host", node.host)
                        .integer("port", node.port)
                        .integer("free_bytes", static_cast<std::int64_t>(node.free_bytes))
                        .integer("up_seconds", static_cast<std::int64_t>(node.up_seconds))
                        .text("rails", rails)
                        .text("incarnation", incarnation)
                        .str());
  }
  if (command.json) {
    print(json_list(lines, true) + "\n");
  } else if (nodes->empty()) {
    say(false, "no data node has a live record; start one with `farlift node`");
  } else {
    print(table.text());
  }
  return kExitOk;
}

Outcome<int> operate(const KvCommand& command, KvClient& client, bool drain) {
  if (command.node == 0 && drain) return fail(kExitUsage, "which node? give --node");
  Outcome<std::vector<KvNode>> nodes = chosen_nodes(command, client);
  if (!nodes) return fail(nodes.error());
  for (const KvNode& node : *nodes) {
    std::optional<std::uint32_t> arena;
    if (command.arena >= 0) arena = static_cast<std::uint32_t>(command.arena);
    const KvStatus status = drain ? client.drain(node.id) : client.rotate(node.id, arena);
    const char* what = drain ? "drains" : "rotates";
    if (status == KvStatus::miss)
      return fail(kExitNotFound, fmt::format("node {} has no such arena", node.id));
    if (status != KvStatus::ok)
      return fail(kExitFailed, fmt::format("node {}: {}", node.id, to_string(status)));
    say(command.quiet || command.json, fmt::format("node {} {}", node.id, what));
  }
  return kExitOk;
}

Outcome<int> run(const KvCommand& command) {
  Outcome<KvClient> client = connect_kv(command.connect);
  if (!client) return fail(client.error());
  switch (command.verb) {
    case KvCommand::Verb::put:
      return put(command, *client);
    case KvCommand::Verb::get:
      return get(command, *client);
    case KvCommand::Verb::remove:
      return remove(command, *client);
    case KvCommand::Verb::stat:
      return command.key.empty() ? stat_nodes(command, *client) : stat_key(command, *client);
    case KvCommand::Verb::list:
      return list(command, *client);
    case KvCommand::Verb::rotate:
      return operate(command, *client, false);
    case KvCommand::Verb::drain:
      return operate(command, *client, true);
  }
  return kExitFailed;
}

}  // namespace

Outcome<NodeAddress> parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string::npos;
  const unsigned long number = digits ? std::stoul(port) : 0;
  if (number == 0 || number > 65535 || colon == 0)
    return fail(kExitUsage, fmt::format("'{}' is no HOST:PORT", text));
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  return NodeAddress{host, static_cast<std::uint16_t>(number)};
}

Failure explain(const KvResult& result, const std::string& doing) {
  const auto because = [&](int code, const char* text) {
    return Failure{
        code, fmt::format("{}: {}{}{}", doing, text, result.text.empty() ? "" : ": ", result.text)};
  };
  switch (result.status) {
    case KvStatus::ok:
      break;
    case KvStatus::miss:
      return because(kExitNotFound, "there is no such key");
    case KvStatus::stale:
      return because(kExitNotFound, "its node has restarted since it was put, the value is gone");
    case KvStatus::access:
      return because(kExitNotFound, "its memory has been given to other values");
    case KvStatus::reject_nosig:
      return because(kExitCorrupt, "its descriptor is not signed");
    case KvStatus::reject_sig:
      return because(kExitCorrupt, "its signature is not of this tenant, key and secret");
    case KvStatus::reject_format:
      return because(kExitCorrupt, "what the directory holds is no descriptor");
    case KvStatus::bad_magic:
    case KvStatus::bad_key:
    case KvStatus::bad_version:
    case KvStatus::bad_length:
    case KvStatus::bad_crc:
      return because(kExitCorrupt, "what landed is not what was promised; nothing was written");
    case KvStatus::unreachable:
      return because(kExitUnreachable, "no data node can be reached; `farlift kv ls` lists them");
    case KvStatus::timeout:
      return because(kExitUnreachable, "it did not end in time");
    case KvStatus::control_down:
      return because(kExitUnreachable, "the directory (Valkey) does not answer");
    case KvStatus::full:
      return because(kExitFailed, "no node has room for it now");
    case KvStatus::too_large:
      return because(kExitFailed, "it is longer than an arena of the nodes");
    case KvStatus::too_small:
    case KvStatus::exists:
    case KvStatus::conflict:
    case KvStatus::bad_arg:
      return because(kExitFailed, to_string(result.status));
  }
  return because(kExitFailed, to_string(result.status));
}

Outcome<KvClient> connect_kv(const KvConnect& options) {
  KvOptions wanted;
  wanted.username = options.username;
  wanted.password = options.password;
  wanted.tls = options.tls;
  wanted.node_tls = options.node_tls;
  wanted.tenant = options.tenant;
  wanted.key_file = options.key_file;
  wanted.development = options.development;
  wanted.interfaces = options.interfaces;
  wanted.valkey.clear();
  if (!options.directory.empty()) {
    Outcome<Stack> stack = read_stack(options.directory);
    if (!stack) return fail(stack.error());
    wanted.valkey.push_back({stack->host, stack->port});
    if (wanted.password.empty()) wanted.password = stack->password;
    if (wanted.tenant.empty()) wanted.tenant = stack->tenant;
    if (wanted.key_file.empty() && !wanted.development) wanted.key_file = stack->key_file;
  } else {
    for (const std::string& text : options.valkey) {
      Outcome<NodeAddress> address = parse_address(text);
      if (!address) return fail(Failure{kExitUsage, "--valkey: " + address.error().text});
      wanted.valkey.push_back(*address);
    }
  }
  if (const char* password = getenv("FARLIFT_PASSWORD");
      wanted.password.empty() && password != nullptr) {
    wanted.password = password;
  }
  if (wanted.tenant.empty()) return fail(kExitUsage, "which tenant? give --tenant");
  if (wanted.key_file.empty() && !wanted.development)
    return fail(kExitUsage, "give --keys FILE, or --development where nothing is signed");
  if (options.cluster) wanted.control = KvOptions::Control::cluster;
  if (!options.sentinel_primary.empty()) {
    wanted.control = KvOptions::Control::sentinel;
    wanted.sentinel_primary = options.sentinel_primary;
  }
  Outcome<RdmaProvider> provider = provider_of(options.provider);
  if (!provider) return fail(provider.error());
  wanted.provider = *provider;
  Expected<KvClient> client = KvClient::create(std::move(wanted));
  if (!client) return fail(kExitUsage, client.error().text);
  return std::move(*client);
}

int run_kv(const KvCommand& command) {
  Outcome<int> done = run(command);
  return done ? *done : report(done.error(), command.json);
}

}  // namespace farlift::apps
