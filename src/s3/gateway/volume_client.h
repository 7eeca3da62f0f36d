// VolumeClient: needles in and out of volume servers, by their HTTP ports.
//
//   TRY_ASSIGN(auto upload, volumes.upload(place, length, deadline));
//   TRY(upload->write(bytes)); ...                       // exactly length bytes
//   TRY_ASSIGN(const Crc32c crc, upload->finish());      // durable, with this CRC
//
// Invariants: an upload that is not finished may or may not be stored; its fid is to be discarded
// as doubtful. Threads:    VolumeClient from any; an upload or download belongs to one thread.
// Errors:     those of the connection; not_found, permission (JWT refused), exhausted (volume
// full),
//             io (the volume failed), protocol.
#pragma once

#include "core/base/mutex.h"
#include "core/base/types.h"
#include "core/net/http/client.h"

#include <map>
#include <memory>
#include <span>
#include <string>

namespace farlift::s3::gateway {

// One needle and how to get at it.
struct Place {
  std::string fid;
  std::string host;  // "host:port"
  std::string jwt;   // empty: none is needed
};

struct VolumeClientOptions {
  Duration connect_patience = std::chrono::seconds(2);
  Duration answer_patience = std::chrono::seconds(30);  // for a head, after the request was sent
  std::size_t kept_connections_max = 32;                // of each volume server
};

class VolumeClient {
 public:
  class Upload {
   public:
    Upload(std::unique_ptr<net::http::ClientExchange> exchange) : exchange_(std::move(exchange)) {}
    Status write(std::span<const std::byte> bytes) { return exchange_->write(bytes); }
    Result<Crc32c> finish();

   private:
    std::unique_ptr<net::http::ClientExchange> exchange_;
  };
  class Download {
   public:
    Download(std::unique_ptr<net::http::ClientExchange> exchange)
        : exchange_(std::move(exchange)) {}
    // After this, read() gives exactly what was asked for, or fails.
    Status begin();
    // 0 at the end.
    Result<std::size_t> read(std::span<std::byte> into) { return exchange_->body().read(into); }

   private:
    std::unique_ptr<net::http::ClientExchange> exchange_;
  };

  VolumeClient(VolumeClientOptions options, const Clock& clock)
      : options_(options), clock_(clock) {}

  Result<std::unique_ptr<Upload>> upload(const Place& place, std::uint64_t length);
  // The request is sent; begin() waits for the answer, so that several may be on their way.
  Result<std::unique_ptr<Download>> download(const Place& place, std::uint64_t offset,
                                             std::uint64_t length);
  // Ok when the needle is not there any more.
  Status remove(const Place& place);
  // GET and POST of small JSON answers: /status, /admin/...
  Result<std::string> call(std::string_view method, const std::string& host,
                           const std::string& target, const std::string& jwt);

 private:
  Result<net::http::Client*> client_of(const std::string& host);
  net::Deadline deadline() const {
    return net::Deadline::after(clock_, options_.connect_patience + options_.answer_patience);
  }

  const VolumeClientOptions options_;
  const Clock& clock_;
  Mutex mutex_;
  std::map<std::string, std::unique_ptr<net::http::Client>> clients_ GUARDED_BY(mutex_);
};

}  // namespace farlift::s3::gateway
