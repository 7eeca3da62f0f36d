// TlsContext: how we prove ourselves and whom we trust, read once and shared by many streams.
// TLS 1.2 or newer.
//
// Invariants: the server is verified (chain and name) unless `insecure` says otherwise.
// Threads:    immutable after make(); share freely.
// Errors:     invalid_argument when a file cannot be read or does not fit; `reason` says which.
#pragma once

#include "core/base/result.h"
#include "core/net/stream.h"

#include <memory>
#include <string>

namespace farlift::net {

struct TlsOptions {
  // Trusted certificates (PEM) and a hashed directory of them; neither: the system's.
  std::string ca_file = {};
  std::string ca_directory = {};
  // Our own certificate chain and its key (PEM); both or neither.
  std::string certificate_file = {};
  std::string key_file = {};
  // Name to expect and to announce (SNI); empty: the host that is connected to.
  std::string server_name = {};
  bool verify_hostname = true;  // false: any name will do, the chain is still verified
  bool insecure = false;        // true: nothing is verified; for tests and emergencies
  bool only_tls13 = false;
};

class TlsContext {
 public:
  static Result<std::shared_ptr<const TlsContext>> make(const TlsOptions& options,
                                                        std::string* reason = nullptr);
  // For accepting: certificate and key are needed; with a CA, clients must show a certificate of
  // it.
  static Result<std::shared_ptr<const TlsContext>> make_server(const TlsOptions& options,
                                                               std::string* reason = nullptr);
  virtual ~TlsContext() = default;

  // Shakes hands as the client over a connected nonblocking socket.
  virtual Result<std::unique_ptr<Stream>> connect(UniqueFd fd, const std::string& host,
                                                  std::shared_ptr<const WakeSignal> stop,
                                                  const Clock& clock, Deadline deadline,
                                                  std::string* reason) const = 0;

  // The same without waiting, as the client or as the server: hands are shaken within the stream's
  // first try_read and try_write, which say `again` until that is over (either may then be worth
  // calling when the descriptor is readable or writable), and nothing of ours is sent before the
  // peer is verified.
  virtual Result<std::unique_ptr<Stream>> start_client(UniqueFd fd, const std::string& host,
                                                       std::shared_ptr<const WakeSignal> stop,
                                                       const Clock& clock) const = 0;
  virtual Result<std::unique_ptr<Stream>> start_server(UniqueFd fd,
                                                       std::shared_ptr<const WakeSignal> stop,
                                                       const Clock& clock) const = 0;
};

}  // namespace farlift::net
