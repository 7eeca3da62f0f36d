// ClientOptions: where the server is, how to speak to it, and whether large values travel by RDMA.
//
//   farlift::ClientOptions options;
//   options.addresses = {{"10.0.0.7", 6379}};
//   options.rdma = farlift::RdmaConfiguration{};   // the soft provider, no card needed
//
// Threads: plain values. Errors: Client::create() names both options when two exclude each other
// (spec blob 10.4).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace farlift {

enum class RdmaProvider {
  soft,        // ours, for hosts without a card; needs nothing installed
  tcp,         // libfabric's tcp, the published emulation
  efa_direct,  // AWS EFA through libfabric >= 2.4
  verbs,       // InfiniBand or RoCE through libfabric
};

struct RdmaConfiguration {
  RdmaProvider provider = RdmaProvider::soft;
  // Network interface or card, e.g. "eth0". Empty: for soft and tcp the one that reaches the
  // server, else the first card.
  std::string interface_name;
  // How many transfers may run at once. 1: transfers share the connection of ordinary commands.
  // More: that many connections of their own, opened when needed, all using the same registrations.
  unsigned connections = 1;
  // Compare the CRC-32C of what landed with the server's. Off: receipts are unverified; for
  // measurements only.
  bool verify = true;
  // Soft only: microseconds to poll before sleeping while a reply is awaited, on a machine with
  // more than one core and while it pays. 0: never.
  unsigned spin_us = 100;
  // Soft only: let a server on the same host move bytes by process_vm_readv. Off: always by TCP.
  bool host_lane = true;
};

struct NodeAddress {
  std::string host = "127.0.0.1";
  std::uint16_t port = 6379;
};

struct TlsOptions {
  bool enabled = false;
  std::string ca_file;           // PEM; empty: the system's
  std::string certificate_file;  // PEM, for mutual TLS
  std::string key_file;
  std::string server_name;  // name to verify; empty: the host
  bool verify_peer = true;
};

enum class ReadFrom { primary, prefer_replica, az_affinity, az_affinity_replicas_and_primary };

struct ClientOptions {
  std::vector<NodeAddress> addresses = {NodeAddress{}};  // the server; in cluster mode the seeds
  std::string unix_path;                                 // instead of addresses; standalone only
  bool cluster = false;
  TlsOptions tls;
  std::string username;
  std::string password;
  std::uint32_t database = 0;
  int resp_version = 3;  // 2 or 3
  std::string client_name;
  std::chrono::milliseconds connect_timeout{2000};
  std::chrono::milliseconds request_timeout{
      5000};                              // ordinary commands; a transfer has none. 0: none
  std::optional<RdmaConfiguration> rdma;  // empty: no RDMA, and nothing is loaded for it

  // Reads always go to the primary; any value is accepted, and transfers ignore it.
  ReadFrom read_from = ReadFrom::primary;
  // Not offered together with rdma; they exist so that a configuration carried over is refused, not
  // misread.
  bool compression = false;
  bool lazy_connect = false;
  bool read_only = false;
  bool static_discovery = false;
  bool asynchronous = false;
  bool client_pool = false;

  // Called about ten times a second from a thread that waits inside a transfer. It cannot end the
  // wait: a region stays exposed until the reply (spec blob 10.2 rule 9). Must not call the client.
  std::function<void()> on_wait;
};

}  // namespace farlift
