// ReplyError: what a server's error reply says to a client that routes: the code word, and for
// redirections where to go.
//
//   if (reply.is_error()) { const ReplyError error = ReplyError::parse(reply.text()); ... }
//
// Invariants: classified by the code word (the text up to the first blank), never by the detail.
// Threads:    plain value.
// Errors:     a malformed redirection is `other`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace farlift::resp {

// A server as a client addresses it.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
  friend auto operator<=>(const Endpoint&, const Endpoint&) = default;
  std::string text() const;  // host:port, [host]:port for IPv6
};

struct ReplyError {
  enum class Kind : std::uint8_t {
    moved,         // the slot lives elsewhere: go there, refresh the topology
    ask,           // this once, go there and say ASKING first
    try_again,     // TRYAGAIN: a slot is half way between two nodes
    cluster_down,  // CLUSTERDOWN
    master_down,   // MASTERDOWN
    loading,       // LOADING: the server reads its data set
    cross_slot,    // CROSSSLOT
    read_only,     // READONLY: a replica was asked to write
    no_auth,       // NOAUTH, WRONGPASS, NOPERM
    other,
  };

  Kind kind = Kind::other;
  std::string code;        // "MOVED"
  std::uint16_t slot = 0;  // moved, ask
  Endpoint target;         // moved, ask; an empty host means the host that answered

  static ReplyError parse(std::string_view text);
  bool is_redirect() const noexcept { return kind == Kind::moved || kind == Kind::ask; }
  // The server did not run the command and may do so later.
  bool is_retryable() const noexcept {
    return kind == Kind::try_again || kind == Kind::cluster_down || kind == Kind::master_down ||
           kind == Kind::loading;
  }
};

}  // namespace farlift::resp
