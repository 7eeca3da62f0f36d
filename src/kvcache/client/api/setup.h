// Setup: everything a KvClient stands on, from its options: clock, links, directory, rails, key
// ring.
//
// Threads: made by one thread, then the loop's. Errors: configuration, in words.
#pragma once

#include "core/base/clock.h"
#include "kvcache/client/client.h"
#include "kvcache/control/socket_transport.h"
#include "kvcache/control/valkey_directory.h"
#include <farlift/kv.h>

#include <memory>

namespace farlift::kv::client {

struct Setup {
  SystemClock clock;
  std::unique_ptr<SocketTransport> transport;
  std::unique_ptr<ValkeyDirectory> directory;
  std::unique_ptr<Environment> environment;
};

Expected<std::unique_ptr<Setup>> make_setup(const KvOptions& options);
Expected<Keyring> read_keys(const KvOptions& options);
ClientOptions client_options(const KvOptions& options, Keyring keys);

}  // namespace farlift::kv::client
