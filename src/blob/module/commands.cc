#include "blob/module/commands.h"

#include "blob/module/keyspace.h"
#include "blob/module/module.h"
#include "blob/module/reply.h"
#include "blob/module/words.h"
#include "blob/wire/names.h"
#include "blob/wire/operands.h"
#include "blob/wire/texts.h"
#include "core/codec/text.h"

#include <array>
#include <string>

namespace farlift::blob {
namespace {

struct CommandSpec {
  const char* name;
  vk::CommandFn body;
  const char* flags;
  const char* categories;
  int key;  // position, 0: none
  std::uint64_t key_flags;
  int arity;
  const char* summary;
  const char* complexity;
};

constexpr std::uint64_t kReads = vk::kKeyReadOnly | vk::kKeyAccess;
constexpr std::uint64_t kWrites = vk::kKeyOverwrite | vk::kKeyUpdate;

constexpr std::array kCommands = {
    CommandSpec{wire::kRdmaHello, rdma_hello, "fast deny-script", "connection fast largeobj", 0, 0,
                2, "Binds this connection to a client's fabric address.",
                "O(N) in the number of fabric services"},
    CommandSpec{wire::kRdmaGet, rdma_get, "readonly fast deny-script blocking",
                "read fast largeobj", 1, kReads, -5,
                "Writes a large object into memory that the client registered.",
                "O(N) in the object's length"},
    CommandSpec{wire::kRdmaSet, rdma_set, "write deny-oom fast deny-script blocking",
                "write fast largeobj", 1, kWrites, -6,
                "Stores a large object read from memory that the client registered.",
                "O(N) in the object's length"},
    CommandSpec{wire::kTcpGet, tcp_get, "readonly fast deny-script blocking", "read fast largeobj",
                1, kReads, 2, "Returns a large object in the reply.",
                "O(N) in the object's length"},
    CommandSpec{wire::kTcpSet, tcp_set, "write deny-oom fast deny-script blocking",
                "write fast largeobj", 1, kWrites, 3, "Stores a large object from the request.",
                "O(N) in the object's length"},
    CommandSpec{wire::kInfo, blob_info, "readonly fast", "read fast largeobj", 1, kReads, -2,
                "Returns length, CRC-32C and tier of a large object.", "O(1)"},
};

bool describe(vk::Command* command, const CommandSpec& spec) {
  static constexpr vk::CommandInfoVersion kVersion;
  std::array<vk::KeySpec, 2> keys{};
  keys[0].flags = spec.key_flags;
  keys[0].begin = vk::KeySpecBegin::index;
  keys[0].bs.index.pos = spec.key;
  keys[0].find = vk::KeySpecFind::range;
  keys[0].fk.range = {0, 1, 0};
  vk::CommandInfo info;
  info.version = &kVersion;
  info.summary = spec.summary;
  info.complexity = spec.complexity;
  info.since = "0.1.0";
  info.arity = spec.arity;
  info.key_specs = spec.key > 0 ? keys.data() : nullptr;
  return vk::SetCommandInfo(command, &info) == vk::kOk;
}

// What HELLO may not name, in words; empty when it may.
std::string address_refusal(vk::Ctx* ctx, const fabric::Address& address) {
  vk::ClientInfo client;
  if (vk::GetClientInfoById(&client, vk::GetClientId(ctx)) != vk::kOk)
    return "no connection to bind";
  if (!module().services().address_forms().socket) return {};
  const auto target = IpAddress::from_sockaddr(address.bytes());
  if (!target) return "not a socket address";
  std::optional<IpAddress> peer;
  if ((client.flags & vk::kClientUnixSocket) == 0) {
    peer = IpAddress::parse(client.addr);
    if (!peer) return "the peer's own address is unknown";
  }
  if (module().settings().address_policy().admits(*target, peer)) return {};
  return "not the connection's own address (see fabric-allow)";
}

int reply_tier(vk::Ctx* ctx) {
  return vk::ReplyWithStringBuffer(ctx, wire::kTierDram.data(), wire::kTierDram.size());
}

int reply_name(vk::Ctx* ctx, std::string_view name) {
  return vk::ReplyWithStringBuffer(ctx, name.data(), name.size());
}

}  // namespace

const char* register_commands(vk::Ctx* ctx) {
  if (vk::AddACLCategory(ctx, wire::kAclCategory) != vk::kOk) return wire::kAclCategory;
  for (const CommandSpec& spec : kCommands) {
    const int step = spec.key > 0 ? 1 : 0;
    if (vk::CreateCommand(ctx, spec.name, spec.body, spec.flags, spec.key, spec.key, step) !=
        vk::kOk)
      return spec.name;
    vk::Command* command = vk::GetCommand(ctx, spec.name);
    if (command == nullptr || !describe(command, spec)) return spec.name;
    if (vk::SetCommandACLCategories(command, spec.categories) != vk::kOk) return spec.name;
  }
  return nullptr;
}

int rdma_hello(vk::Ctx* ctx, vk::String** argv, int argc) noexcept {
  const auto bytes = wire::parse_hello(operand_words(argv, argc));
  if (!bytes) return reply_refusal(ctx, bytes.error());
  Services& services = module().services();
  if (!services.available() || module().stopping())
    return reply_error(ctx, wire::text::kNoProvider);
  if (const auto refusal = wire::check_address_length(bytes->size(), services.address_forms())) {
    return reply_refusal(ctx, *refusal);
  }
  const std::uint64_t client = vk::GetClientId(ctx);
  if (module().sessions().find(client) != nullptr)
    return reply_error(ctx, wire::text::kSessionExists);
  const auto address = fabric::Address::from_bytes(*bytes);
  if (!address.ok())
    return reply_error(ctx, wire::text::kSessionCreate, address.error().describe());
  const std::string refusal = address_refusal(ctx, *address);
  if (!refusal.empty()) return reply_error(ctx, wire::text::kSessionCreate, refusal);
  auto binding = services.bind(*address);
  if (!binding.ok())
    return reply_error(ctx, wire::text::kSessionCreate, binding.error().describe());
  module().sessions().add(client, std::move(binding).value());
  const auto& announced = services.announced();
  vk::ReplyWithArray(ctx, static_cast<long>(announced.size()));
  for (const fabric::Address& own : announced) {
    const std::string hex = own.hex();
    vk::ReplyWithStringBuffer(ctx, hex.data(), hex.size());
  }
  return vk::kOk;
}

int blob_info(vk::Ctx* ctx, vk::String** argv, int argc) noexcept {
  const auto operands = wire::parse_info(operand_words(argv, argc));
  if (!operands) return reply_refusal(ctx, operands.error());
  const Lookup found = lookup(ctx, argv[1], false);
  if (found.found == Found::absent) return reply_nil(ctx);
  if (found.found == Found::other_type) return reply_error(ctx, wire::text::kWrongType);
  const auto length = static_cast<long long>(found.object->length().raw());
  const auto crc = static_cast<long long>(found.object->crc().raw());
  switch (operands->field) {
    case wire::InfoField::len:
      return vk::ReplyWithLongLong(ctx, length);
    case wire::InfoField::crc:
      return vk::ReplyWithLongLong(ctx, crc);
    case wire::InfoField::tier:
      return reply_tier(ctx);
    case wire::InfoField::all:
      break;
  }
  vk::ReplyWithArray(ctx, 6);
  reply_name(ctx, wire::kFieldLen);
  vk::ReplyWithLongLong(ctx, length);
  reply_name(ctx, wire::kFieldCrc);
  vk::ReplyWithLongLong(ctx, crc);
  reply_name(ctx, wire::kFieldTier);
  return reply_tier(ctx);
}

}  // namespace farlift::blob
