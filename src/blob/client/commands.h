// Ordinary commands of the client: what may be sent, where it goes, and whether a MULTI is open.
//
// Threads: any. Errors: farlift::ClientError; request for what must not be sent.
#pragma once

#include "core/net/resp/value.h"
#include <farlift/client.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::client {

class ClientCore;

using Words = std::span<const std::string_view>;

// Why a command must not be sent by hand; nullopt: it may (spec blob 10.2 rule 15, and commands
// that would leave the connection in a state that the client does not expect).
std::optional<std::string> why_refused(Words words);

// The first key of a command, for routing in a cluster; empty: any node will do.
std::string_view routing_key(Words words);

Reply to_reply(resp::Value&& value);

// A bulk reply that fits is received into `bulk_into`.
Expected<resp::Value> run_command(ClientCore& core, Words words,
                                  std::span<std::byte> bulk_into = {});
Expected<std::vector<Reply>> run_pipeline(ClientCore& core,
                                          const std::vector<std::vector<std::string>>& commands);
Expected<std::optional<std::vector<Reply>>> run_transaction(
    ClientCore& core, const std::vector<std::vector<std::string>>& commands);

}  // namespace farlift::client
