// HttpPeer: another volume server as a holder of the same needles, by its data port.
//
// Threads: any. Errors: see Peer; refused: what the peer said no to.
#pragma once

#include "core/net/http/client.h"
#include "s3/volume/access.h"
#include "s3/volume/writes.h"

#include <memory>
#include <string>

namespace farlift::s3::volume {

class HttpPeer final : public Peer {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(30);

  // `access` signs what is sent; both outlive the peer.
  HttpPeer(const std::string& host, std::uint16_t port, const Access& access, const Clock& clock);
  Result<bool> put(const NeedleRef& needle, const NeedleMeta& meta, std::span<const std::byte> data,
                   Crc32c crc, bool* sent) override;
  Status remove(const NeedleRef& needle) override;

 private:
  struct Answer {
    std::uint32_t status = 0;
    std::string body;
  };
  Result<Answer> call(std::string_view method, const std::string& target,
                      net::http::Headers headers, std::span<const std::byte> body, bool* sent);
  net::http::Headers signed_headers(const std::string& fid) const;

  const Access& access_;
  const Clock& clock_;
  net::http::Client client_;
};

}  // namespace farlift::s3::volume
