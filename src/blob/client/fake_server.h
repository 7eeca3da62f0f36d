// FakeServer: a scripted peer for tests of the client: speaks RESP on a loopback port and moves
// bytes by the soft provider as the initiator: replies and landings can be wrong on purpose.
//
//   FakeServer server;
//   server.put("key", bytes);
//   server.on("BLOB.RDMA_GET", [](FakeServer::Call& call) { call.reply(":1\r\n"); });
//
// Invariants: commands without a script are answered as a real server would, as far as the client
//             needs; all threads end with the object.
// Threads:    scripts run on the thread of the connection; everything else from any thread.
// Errors:     what cannot go wrong in a test is an ASSERT.
#pragma once

#include "core/base/clock.h"
#include "core/base/unique_fd.h"
#include "core/fabric/fabric.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace farlift::testing {

class FakeServer {
 public:
  using Bytes = std::vector<std::byte>;

  class Call {
   public:
    const std::vector<std::string>& words() const { return words_; }
    void reply(std::string_view raw);  // as it goes over the wire
    void hang_up();                    // after what was replied
    // Reads or writes the client's memory through the triples from `first` on.
    Status write(const Bytes& bytes, std::size_t first_triple = 2);
    Status read(Bytes& bytes, std::size_t first_triple);
    // Through a key, wherever in its registration.
    Status write_at(const std::string& key, std::uint64_t addr, Bytes& bytes);
    void as_usual();  // what happens without a script
    FakeServer& server() { return server_; }

   private:
    friend class FakeServer;
    struct Peer;
    Call(FakeServer& server, Peer& peer, std::vector<std::string> words)
        : server_(server), peer_(peer), words_(std::move(words)) {}
    Status move(fabric::OpKind kind, Bytes& bytes, std::size_t first_triple);
    Status move_one(fabric::OpKind kind, std::span<std::byte> bytes, std::uint64_t key,
                    std::uint64_t addr);
    FakeServer& server_;
    Peer& peer_;
    std::vector<std::string> words_;
  };
  using Script = std::function<void(Call&)>;

  FakeServer();
  ~FakeServer();
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::uint16_t port() const { return port_; }
  void on(const std::string& command, Script script);  // upper case; empty: as usual again
  void put(const std::string& key, Bytes bytes);
  Bytes get(const std::string& key);
  int count(const std::string& command);  // how often it was received
  int connections() const { return connections_.load(); }

 private:
  void accept_all();
  void serve(UniqueFd fd);
  void run_usual(Call& call);
  void usual_get(Call& call);
  void usual_set(Call& call);

  SystemClock clock_;
  std::unique_ptr<fabric::Domain> domain_;
  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> connections_{0};
  std::mutex mutex_;
  std::map<std::string, Script> scripts_;
  std::map<std::string, Bytes> values_;
  std::map<std::string, int> counts_;
  std::vector<int> open_fds_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

// "*2\r\n:<length>\r\n:<crc>\r\n"
std::string get_reply(std::uint64_t length, std::uint32_t crc);

}  // namespace farlift::testing
