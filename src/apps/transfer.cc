#include "apps/transfer.h"

#include "apps/console.h"
#include "apps/files.h"
#include "core/base/clock.h"
#include "core/digest/crc32c.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace farlift::apps {

namespace {

constexpr std::size_t kHashPiece = 4u << 20;  // between two movements of the bar
constexpr int kReadTries = 5;                 // a value may grow between the look and the read

double seconds_since(Instant start) {
  return std::chrono::duration<double>(SystemClock().now() - start).count();
}

struct Lifted {
  std::uint64_t bytes = 0;
  std::uint32_t checksum = 0;
  double seconds = 0;
};

int announce(const TransferOptions& options, const char* verb, const Lifted& lifted) {
  const double rate = lifted.seconds > 0 ? static_cast<double>(lifted.bytes) / lifted.seconds : 0;
  if (options.json) {
    print(JsonObject()
              .text("verb", verb)
              .text("key", options.key)
              .text("file", options.file)
              .integer("bytes", static_cast<std::int64_t>(lifted.bytes))
              .text("crc32c", fmt::format("{:08x}", lifted.checksum))
              .number("seconds", lifted.seconds)
              .number("gb_per_s", rate / 1e9)
              .str() +
          "\n");
  } else {
    say(options.quiet,
        fmt::format("{} {} {} {}: {}, CRC-32C {:08x} checked, {:.1f} ms, {}", verb, options.key,
                    verb[0] == 'p' ? "from" : "into", options.file, human_bytes(lifted.bytes),
                    lifted.checksum, lifted.seconds * 1e3, human_rate(rate)));
  }
  return kExitOk;
}

std::uint32_t checksum_of(std::span<const std::byte> bytes, Progress& progress) {
  digest::Crc32cStream crc;
  for (std::size_t at = 0; at < bytes.size(); at += kHashPiece) {
    crc.update(bytes.subspan(at, std::min(kHashPiece, bytes.size() - at)));
    progress.at(at);
  }
  return crc.value().raw();
}

Outcome<Lifted> put(const TransferOptions& options) {
  Outcome<MappedFile> file = MappedFile::source(options.file);
  if (!file) return fail(file.error());
  const std::uint64_t size = file->bytes().size();
  Progress progress("checksum of " + options.file, size, options.quiet || options.json);
  std::uint64_t beats = 0;
  Outcome<Client> client = connect(options.connect, [&] { progress.at(++beats); });
  if (!client) return fail(client.error());
  const std::uint32_t checksum = checksum_of(file->bytes(), progress);
  // No part of it can be shown: the server reads the memory by itself, which leaves no trace here
  // (on one host not even a byte on a socket), counts the bytes when all are there, and replies
  // once.
  progress.restart(fmt::format("put {} ({})", options.file, human_bytes(size)), 0);
  const Instant start = SystemClock().now();
  Expected<RdmaRegion> region = client->register_rdma_region(file->bytes());
  if (!region) return fail(explain(region.error(), "cannot register " + options.file));
  Expected<RdmaWindow> window = region->window();
  if (!window) return fail(explain(window.error(), "cannot use " + options.file));
  Expected<void> done = client->rdma_set(options.key, *window, checksum);
  if (!done) return fail(explain(done.error(), "cannot put '" + options.key + "'"));
  const Lifted lifted{size, checksum, seconds_since(start)};
  if (Expected<void> closed = region->close(); !closed)
    return fail(explain(closed.error(), "cannot release " + options.file));
  return lifted;
}

// One try: empty when the value had grown meanwhile.
Outcome<std::optional<Lifted>> read_once(const TransferOptions& options, Client& client,
                                         NewFile& target, std::uint64_t length,
                                         const MappedFile*& shown, Progress& progress) {
  Outcome<MappedFile> file = target.map(length);
  if (!file) return fail(file.error());
  progress.restart("get " + options.key, length);
  shown = &*file;
  const Instant start = SystemClock().now();
  Expected<RdmaRegion> region = client.register_rdma_region(file->bytes());
  if (!region) return fail(explain(region.error(), "cannot register " + options.file));
  Expected<RdmaWindow> window = region->window();
  if (!window) return fail(explain(window.error(), "cannot use " + options.file));
  Expected<std::optional<RdmaReadReceipt>> receipt = client.rdma_get(options.key, *window);
  shown = nullptr;
  if (!receipt) {
    const bool grown = receipt.error().text.find("address space smaller") != std::string::npos;
    if (grown) return std::optional<Lifted>();
    return fail(explain(receipt.error(), "cannot get '" + options.key + "'"));
  }
  if (!*receipt) return fail(kExitNotFound, fmt::format("there is no key '{}'", options.key));
  const Lifted lifted{(*receipt)->bytes_written, (*receipt)->checksum, seconds_since(start)};
  if (Expected<void> closed = region->close(); !closed)
    return fail(explain(closed.error(), "cannot release " + options.file));
  return std::optional<Lifted>(lifted);
}

Outcome<Lifted> get(const TransferOptions& options) {
  Progress progress("get " + options.key, 0, options.quiet || options.json);
  const MappedFile* shown = nullptr;
  Outcome<Client> client = connect(options.connect, [&] {
    if (shown != nullptr) progress.at(shown->resident_bytes());
  });
  if (!client) return fail(client.error());
  for (int tries = 0; tries < kReadTries; ++tries) {
    Expected<std::optional<BlobInfo>> info = client->blob_info(options.key);
    if (!info) return fail(explain(info.error(), "cannot look at '" + options.key + "'"));
    if (!*info) return fail(kExitNotFound, fmt::format("there is no key '{}'", options.key));
    Outcome<NewFile> target = NewFile::create(options.file);
    if (!target) return fail(target.error());
    Outcome<std::optional<Lifted>> lifted =
        read_once(options, *client, *target, (*info)->length, shown, progress);
    shown = nullptr;
    if (!lifted) return fail(lifted.error());
    if (!*lifted) continue;
    if (Outcome<void> published = target->publish((*lifted)->bytes); !published)
      return fail(published.error());
    return **lifted;
  }
  return fail(kExitFailed, fmt::format("'{}' grew {} times while it was read; try again",
                                       options.key, kReadTries));
}

}  // namespace

int run_put(const TransferOptions& options) {
  Outcome<Lifted> lifted = put(options);
  return lifted ? announce(options, "put", *lifted) : report(lifted.error(), options.json);
}

int run_get(const TransferOptions& options) {
  Outcome<Lifted> lifted = get(options);
  return lifted ? announce(options, "get", *lifted) : report(lifted.error(), options.json);
}

}  // namespace farlift::apps
