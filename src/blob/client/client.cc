#include "blob/client/client_core.h"
#include "blob/client/commands.h"
#include "blob/client/rdma_buffer.h"
#include "blob/client/transfer.h"
#include "blob/wire/names.h"
#include <farlift/client.h>

#include <algorithm>
#include <utility>

namespace farlift {
namespace {

// The child of a fork cannot end what is the parent's; it is left alive there on purpose.
void let_go(std::shared_ptr<client::ClientCore> core) {
  if (!core) return;
  if (core->forked()) {
    static_cast<void>(new std::shared_ptr<client::ClientCore>(std::move(core)));  // NOLINT
    return;
  }
  core->close();
}

ClientError odd_reply(const char* command) {
  return {ErrorKind::request, std::string("an unexpected reply to ") + command};
}

}  // namespace

void client::Hooks::install(Client& client, Hooks hooks) {
  client.core_->hooks() = std::move(hooks);
}

Client::Client(std::shared_ptr<client::ClientCore> core) noexcept : core_(std::move(core)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&& other) noexcept {
  if (this != &other) let_go(std::exchange(core_, std::move(other.core_)));
  return *this;
}
Client::~Client() { let_go(std::move(core_)); }

Expected<Client> Client::create(ClientOptions options) {
  auto core = client::ClientCore::open(std::move(options));
  if (!core) return core.error();
  return Client(std::move(core).value());
}

Expected<RdmaRegion> Client::register_rdma_region(std::span<std::byte> memory,
                                                  std::shared_ptr<void> owner) {
  auto region = core_->register_region({.bytes = memory}, std::move(owner));
  if (!region) return region.error();
  return RdmaRegion(std::move(region).value());
}

Expected<RdmaRegion> Client::register_rdma_region(const RdmaBuffer& buffer) {
  const client::BufferState& state = *buffer.state_;
  auto region = core_->register_region(
      {.bytes = buffer.bytes(), .memfd = state.mapping.memfd(), .memfd_offset = 0}, buffer.state_);
  if (!region) return region.error();
  return RdmaRegion(std::move(region).value());
}

Expected<std::optional<RdmaReadReceipt>> Client::rdma_get(std::string_view key,
                                                          const RdmaWindow& window) {
  return rdma_get(key, std::span(&window, 1));
}

Expected<std::optional<RdmaReadReceipt>> Client::rdma_get(std::string_view key,
                                                          std::span<const RdmaWindow> windows) {
  std::vector<client::Target> targets;
  targets.reserve(windows.size());
  for (const RdmaWindow& one : windows) targets.push_back({one.state_, one.offset_, one.length_});
  return client::Transfer(*core_, client::Transfer::Kind::get, key, std::move(targets),
                          std::nullopt)
      .run();
}

Expected<void> Client::rdma_set(std::string_view key, const RdmaWindow& window,
                                std::optional<std::uint32_t> checksum) {
  return rdma_set(key, std::span(&window, 1), checksum);
}

Expected<void> Client::rdma_set(std::string_view key, std::span<const RdmaWindow> windows,
                                std::optional<std::uint32_t> checksum) {
  std::vector<client::Target> targets;
  targets.reserve(windows.size());
  for (const RdmaWindow& one : windows) targets.push_back({one.state_, one.offset_, one.length_});
  auto done =
      client::Transfer(*core_, client::Transfer::Kind::set, key, std::move(targets), checksum)
          .run();
  if (!done) return done.error();
  return {};
}

Expected<std::optional<std::string>> Client::tcp_get(std::string_view key) {
  const std::string_view words[] = {blob::wire::kTcpGet, key};
  auto value = client::run_command(*core_, words);
  if (!value) return value.error();
  if (value->is_null()) return std::optional<std::string>();
  if (value->type() != resp::Type::bulk) return odd_reply(blob::wire::kTcpGet);
  return std::optional<std::string>(std::in_place, value->text());
}

Expected<std::optional<std::size_t>> Client::tcp_get(std::string_view key,
                                                     std::span<std::byte> into) {
  const std::string_view words[] = {blob::wire::kTcpGet, key};
  auto value = client::run_command(*core_, words, into);
  if (!value) return value.error();
  if (value->is_null()) return std::optional<std::size_t>();
  if (value->type() != resp::Type::bulk) return odd_reply(blob::wire::kTcpGet);
  const std::size_t length = value->bytes().size();
  if (!value->borrowed() && length > 0) {
    if (length > into.size()) {
      return ClientError{ErrorKind::request, "the value of " + std::to_string(length) +
                                                 " bytes does not fit into " +
                                                 std::to_string(into.size())};
    }
    std::copy(value->bytes().begin(), value->bytes().end(), into.begin());
  }
  return std::optional<std::size_t>(length);
}

Expected<void> Client::tcp_set(std::string_view key, std::string_view value) {
  const std::string_view words[] = {blob::wire::kTcpSet, key, value};
  auto reply = client::run_command(*core_, words);
  if (!reply) return reply.error();
  if (reply->type() != resp::Type::simple || reply->text() != "OK") {
    return odd_reply(blob::wire::kTcpSet);
  }
  return {};
}

Expected<std::optional<BlobInfo>> Client::blob_info(std::string_view key) {
  const std::string_view words[] = {blob::wire::kInfo, key};
  auto value = client::run_command(*core_, words);
  if (!value) return value.error();
  if (value->is_null()) return std::optional<BlobInfo>();
  if (value->type() != resp::Type::array || value->items().size() % 2 != 0) {
    return odd_reply(blob::wire::kInfo);
  }
  BlobInfo info;
  const auto items = value->items();
  for (std::size_t i = 0; i < items.size(); i += 2) {
    if (!items[i].is_text()) return odd_reply(blob::wire::kInfo);
    const std::string_view name = items[i].text();
    const resp::Value& field = items[i + 1];
    const bool number = field.type() == resp::Type::integer && field.integer() >= 0;
    if (name == blob::wire::kFieldLen && number) {
      info.length = static_cast<std::uint64_t>(field.integer());
    } else if (name == blob::wire::kFieldCrc && number) {
      info.checksum = static_cast<std::uint32_t>(field.integer());
    } else if (name == blob::wire::kFieldTier && field.is_text()) {
      info.tier = std::string(field.text());
    }
  }
  return std::optional<BlobInfo>(std::move(info));
}

Expected<Reply> Client::command(std::span<const std::string_view> arguments) {
  auto value = client::run_command(*core_, arguments);
  if (!value) return value.error();
  return client::to_reply(std::move(value).value());
}

Expected<Reply> Client::command(std::initializer_list<std::string_view> arguments) {
  return command(std::span<const std::string_view>(arguments.begin(), arguments.size()));
}

Expected<std::vector<Reply>> Client::pipeline(
    const std::vector<std::vector<std::string>>& commands) {
  return client::run_pipeline(*core_, commands);
}

Expected<std::optional<std::vector<Reply>>> Client::transaction(
    const std::vector<std::vector<std::string>>& commands) {
  return client::run_transaction(*core_, commands);
}

bool Client::multi_open() const noexcept {
  return core_->counters().multis_open.load(std::memory_order_acquire) > 0;
}

void Client::close() {
  if (!core_->forked()) core_->close();
}

bool Client::closed() const noexcept { return core_->closing(); }

Client::Statistics Client::statistics() const {
  const auto& counters = core_->counters();
  Statistics out;
  out.handshakes = counters.handshakes.load(std::memory_order_relaxed);
  out.transfers = counters.transfers.load(std::memory_order_relaxed);
  out.verified_on_landing = counters.verified_on_landing.load(std::memory_order_relaxed);
  out.verified_afterwards = counters.verified_afterwards.load(std::memory_order_relaxed);
  out.connections_opened = core_->command_router().counters().connects;
  if (&core_->transfer_router() != &core_->command_router()) {
    out.connections_opened += core_->transfer_router().counters().connects;
  }
  return out;
}

}  // namespace farlift
