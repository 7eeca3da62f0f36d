#include "apps/connect.h"

#include "apps/stack.h"

#include <fmt/format.h>

#include <cstdlib>

namespace farlift::apps {

namespace {

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

Outcome<RdmaProvider> provider_of(const std::string& name) {
  if (name == "soft") return RdmaProvider::soft;
  if (name == "tcp") return RdmaProvider::tcp;
  if (name == "verbs") return RdmaProvider::verbs;
  if (name == "efa") return RdmaProvider::efa_direct;
  return fail(kExitUsage, fmt::format("'{}' is no provider; choose soft, tcp, verbs or efa", name));
}

// What a person can do about an error that the server or the client words tersely.
const char* advice(const std::string& text) {
  if (contains(text, "unknown command")) return "; the server has not loaded libfarlift_blob.so";
  if (contains(text, "max object size exceeded"))
    return "; raise largeobj.max-object-size on the server";
  if (contains(text, "provider unavailable"))
    return "; the server opened no fabric, see its log and INFO largeobj";
  if (contains(text, "NOAUTH")) return "; give --password, or set FARLIFT_PASSWORD";
  if (contains(text, "OOM "))
    return "; the server has no room, raise maxmemory or delete something";
  return "";
}

}  // namespace

Failure explain(const ClientError& error, const std::string& doing) {
  int code = kExitFailed;
  if (error.kind == ErrorKind::connection || error.kind == ErrorKind::timeout)
    code = kExitUnreachable;
  if (error.kind == ErrorKind::configuration || error.kind == ErrorKind::type) code = kExitUsage;
  if (error.kind == ErrorKind::rdma &&
      (contains(error.text, "CRC") || contains(error.text, "checksum"))) {
    code = kExitCorrupt;
  }
  return Failure{code, doing + ": " + error.text + advice(error.text)};
}

Outcome<Client> connect(const ConnectOptions& options, std::function<void()> on_wait) {
  ClientOptions wanted;
  NodeAddress node{options.host, options.port};
  wanted.password = options.password;
  if (!options.directory.empty()) {
    Outcome<Stack> stack = read_stack(options.directory);
    if (!stack) return fail(stack.error());
    node = NodeAddress{stack->host, stack->port};
    if (wanted.password.empty()) wanted.password = stack->password;
  }
  if (const char* password = getenv("FARLIFT_PASSWORD");
      wanted.password.empty() && password != nullptr) {
    wanted.password = password;
  }
  const std::string where =
      options.unix_path.empty() ? fmt::format("{}:{}", node.host, node.port) : options.unix_path;
  wanted.addresses = {node};
  wanted.unix_path = options.unix_path;
  wanted.cluster = options.cluster;
  wanted.username = options.username;
  wanted.database = options.database;
  wanted.client_name = "farlift-tool";
  wanted.tls = options.tls;
  wanted.on_wait = std::move(on_wait);
  Outcome<RdmaProvider> provider = provider_of(options.provider);
  if (!provider) return fail(provider.error());
  RdmaConfiguration rdma;
  rdma.provider = *provider;
  rdma.interface_name = options.interface_name;
  wanted.rdma = rdma;
  Expected<Client> client = Client::create(std::move(wanted));
  if (!client) return fail(explain(client.error(), "cannot use the server at " + where));
  return std::move(*client);
}

}  // namespace farlift::apps
