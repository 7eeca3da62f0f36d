#include "blob/client/commands.h"

#include "blob/client/client_core.h"
#include "blob/client/link.h"
#include "core/net/resp/reply_error.h"

#include <strings.h>
#include <utility>

namespace farlift::client {
namespace {

constexpr int kTransactionRedirectsMax = 5;
constexpr int kStaleConnectionsMax = 4;

ClientError request_error(std::string text) { return {ErrorKind::request, std::move(text)}; }

bool is(std::string_view name, const char* command) {
  return ::strncasecmp(name.data(), command, name.size()) == 0 && command[name.size()] == '\0';
}

bool starts(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with;
}

// Whether a MULTI is open, by what the server said (spec blob 10.2 rule 5).
void track_multi(Link& link, std::string_view name, const resp::Value& reply) {
  if (is(name, "MULTI")) {
    if (!reply.is_error()) link.set_multi_open(true);
  } else if (is(name, "EXEC")) {
    if (!reply.is_error() || starts(reply.text(), "EXECABORT") ||
        starts(reply.text(), "ERR EXEC without MULTI")) {
      link.set_multi_open(false);
    }
  } else if (is(name, "DISCARD")) {
    if (!reply.is_error() || starts(reply.text(), "ERR DISCARD without MULTI")) {
      link.set_multi_open(false);
    }
  }
}

bool is_transaction_word(std::string_view name) {
  return is(name, "MULTI") || is(name, "EXEC") || is(name, "DISCARD") || is(name, "WATCH");
}

std::vector<std::string_view> views(const std::vector<std::string>& words) {
  return {words.begin(), words.end()};
}

Expected<void> check_commands(const ClientCore& core,
                              const std::vector<std::vector<std::string>>& commands) {
  if (Expected<void> ok = core.check_open(); !ok) return ok;
  for (const std::vector<std::string>& command : commands) {
    if (auto why = why_refused(views(command))) return request_error(*std::move(why));
  }
  return {};
}

// A connection that is alive as far as can be known: one that the server closed while it was idle
// is replaced before anything is sent on it.
Expected<resp::Router::Lease> lease_live(ClientCore& core, std::string_view key) {
  std::string reason;
  for (int i = 0; i < kStaleConnectionsMax; ++i) {
    auto lease = core.command_router().lease(key, &reason);
    if (!lease.ok()) return core.to_client_error(lease.error(), reason);
    const Result<std::optional<resp::Value>> stray = (*lease)->try_receive();
    if (stray.ok() && !stray->has_value()) return std::move(lease).value();
    (*lease)->cut_off();
  }
  return ClientError{ErrorKind::connection, "the server closes every connection"};
}

Expected<std::vector<resp::Value>> send_all(ClientCore& core, resp::Connection& connection,
                                            std::span<const resp::Arguments> commands) {
  const auto failed = [&](const Error& error) {
    return core.to_client_error(error, connection.last_error_text());
  };
  if (const Status sent = connection.send_many(commands); !sent.ok()) return failed(sent.error());
  std::vector<resp::Value> replies;
  replies.reserve(commands.size());
  Link& link = Link::of(core, connection);
  for (const resp::Arguments command : commands) {
    Result<resp::Value> reply = connection.receive();
    if (!reply.ok()) return failed(reply.error());
    track_multi(link, command[0], *reply);
    replies.push_back(std::move(reply).value());
  }
  return replies;
}

}  // namespace

Expected<resp::Value> run_command(ClientCore& core, Words words, std::span<std::byte> bulk_into) {
  if (Expected<void> ok = core.check_open(); !ok) return ok.error();
  if (auto why = why_refused(words)) return request_error(*std::move(why));
  resp::Router& router = core.command_router();
  if (router.is_cluster() && is_transaction_word(words[0])) {
    return request_error("a transaction in a cluster is sent as a whole; use transaction()");
  }
  std::string reason;
  Result<resp::Value> reply = router.run(
      routing_key(words),
      [&](resp::Connection& connection) -> resp::Attempt {
        if (Result<std::optional<resp::Value>> stray = connection.try_receive(); !stray.ok()) {
          return {stray.error(), false};
        }
        if (const Status sent = connection.send(words); !sent.ok()) return {sent.error(), false};
        Result<resp::Value> answer = connection.receive(
            {net::Deadline::after(core.clock(), connection.request_timeout()), bulk_into});
        if (answer.ok()) track_multi(Link::of(core, connection), words[0], *answer);
        return {std::move(answer), true};
      },
      &reason);
  if (!reply.ok()) return core.to_client_error(reply.error(), reason);
  if (reply->is_error()) return request_error(std::string(reply->text()));
  return std::move(reply).value();
}

Expected<std::vector<Reply>> run_pipeline(ClientCore& core,
                                          const std::vector<std::vector<std::string>>& commands) {
  if (Expected<void> ok = check_commands(core, commands); !ok) return ok.error();
  std::vector<Reply> replies;
  if (commands.empty()) return replies;
  if (core.command_router().is_cluster()) {
    for (const std::vector<std::string>& command : commands) {
      Expected<resp::Value> reply = run_command(core, views(command));
      if (reply) {
        replies.push_back(to_reply(std::move(reply).value()));
      } else if (reply.error().kind == ErrorKind::request) {
        Reply error;
        error.kind = ReplyKind::error;
        error.text = reply.error().text;
        replies.push_back(std::move(error));
      } else {
        return reply.error();
      }
    }
    return replies;
  }
  std::vector<std::vector<std::string_view>> words;
  words.reserve(commands.size());
  for (const std::vector<std::string>& command : commands) words.push_back(views(command));
  auto lease = lease_live(core, "");
  if (!lease) return lease.error();
  const std::vector<resp::Arguments> arguments(words.begin(), words.end());
  auto values = send_all(core, **lease, arguments);
  if (!values) return values.error();
  replies.reserve(values->size());
  for (resp::Value& value : *values) replies.push_back(to_reply(std::move(value)));
  return replies;
}

Expected<std::optional<std::vector<Reply>>> run_transaction(
    ClientCore& core, const std::vector<std::vector<std::string>>& commands) {
  if (Expected<void> ok = check_commands(core, commands); !ok) return ok.error();
  if (core.counters().multis_open.load(std::memory_order_acquire) > 0) {
    return request_error("a transaction is open already; send EXEC or DISCARD first");
  }
  std::vector<std::vector<std::string_view>> words = {{"MULTI"}};
  std::string_view key;
  for (const std::vector<std::string>& command : commands) {
    if (is_transaction_word(command[0])) {
      return request_error(command[0] + " cannot be part of a transaction");
    }
    words.push_back(views(command));
    if (key.empty()) key = routing_key(words.back());
  }
  words.push_back({"EXEC"});
  const std::vector<resp::Arguments> arguments(words.begin(), words.end());
  for (int redirects = 0;; ++redirects) {
    auto lease = lease_live(core, key);
    if (!lease) return lease.error();
    auto values = send_all(core, **lease, arguments);
    if (!values) return values.error();
    resp::Value& last = values->back();
    if (last.is_null()) return std::optional<std::vector<Reply>>();
    if (!last.is_error() && last.type() == resp::Type::array) {
      return std::optional<std::vector<Reply>>(to_reply(std::move(last)).items);
    }
    // EXECABORT: nothing ran; the first command that was refused says why.
    for (const resp::Value& value : *values) {
      if (!value.is_error()) continue;
      const resp::ReplyError error = resp::ReplyError::parse(value.text());
      if (error.kind == resp::ReplyError::Kind::moved && redirects < kTransactionRedirectsMax) {
        core.command_router().on_moved(error, lease->node());
        break;
      }
      return request_error(std::string(value.text()));
    }
    if (!last.is_error())
      return request_error("EXEC was answered with neither a result nor an error");
  }
}

}  // namespace farlift::client
