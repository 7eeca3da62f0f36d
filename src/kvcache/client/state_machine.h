// StateMachine: the Client of client.h, put together from its parts.
//
// Threads and errors: as client.h.
#pragma once

#include "kvcache/client/commander.h"
#include "kvcache/client/core.h"
#include "kvcache/client/groups.h"
#include "kvcache/client/node_list.h"
#include "kvcache/client/reader.h"
#include "kvcache/client/remover.h"
#include "kvcache/client/writer.h"

#include <memory>
#include <string>
#include <vector>

namespace farlift::kv::client {

class StateMachine final : public Client {
 public:
  StateMachine(const Environment& environment, ClientOptions options, Domains domains,
               std::unique_ptr<HeaderPool> headers);
  ~StateMachine() override;

  Result<std::unique_ptr<LandingMemory>> register_memory(std::span<std::byte> bytes) override;
  Result<std::unique_ptr<LandingMemory>> borrow_memory(std::span<std::byte> bytes) override;
  bool registered(std::span<const std::byte> part) const override {
    return landings_->find(part) != nullptr;
  }
  void get(GetRequest request, std::function<void(GetResult)> done) override;
  void mget(std::vector<GetRequest> requests,
            std::function<void(std::vector<GetResult>)> done) override;
  void put(PutRequest request, std::function<void(PutResult)> done) override;
  void mput(std::vector<PutRequest> requests,
            std::function<void(std::vector<PutResult>)> done) override;
  void exists(std::vector<Bytes> keys, std::function<void(std::vector<bool>)> done) override;
  void remove(Bytes key, std::optional<Version> version,
              std::function<void(Removed)> done) override;
  void stat(Bytes key, std::function<void(GetResult)> done) override;
  void write_group(std::string group, std::uint64_t version, std::vector<Bytes> keys,
                   std::function<void(Group)> done) override;
  void read_group(const std::string& group, std::function<void(Group)> done) override;
  void command(NodeId node, FrameType type, Bytes body, std::function<void(Answer)> done) override;
  void list_nodes(std::function<void(Result<std::vector<NodeRecord>>)> done) override;
  Status add_key(KeyId id, ByteView secret) override;
  Status drop_key(KeyId id) override;
  void replace_keys(Keyring keys) override;
  bool step() override;
  std::vector<int> wait_fds() const override;
  Instant next_deadline() const override;
  std::vector<std::pair<std::string, std::uint64_t>> counters() const override;

 private:
  bool report();
  Result<std::shared_ptr<Landing>> make_landing(std::span<std::byte> bytes);
  std::shared_ptr<Landing> landing_of(const LandingMemory* named,
                                      std::span<const std::byte> part) const;

  // Closed from the bottom up: operations, links with their engines, registrations, domains.
  const Environment environment_;
  ClientOptions options_;
  Keyring keys_;
  Counters counters_;
  Domains domains_;
  std::unique_ptr<HeaderPool> headers_;
  std::shared_ptr<LandingSet> landings_ = std::make_shared<LandingSet>();
  std::unique_ptr<transfer::CrcPool> crc_pool_;
  DescriptorCache cache_;
  LinkContext link_context_;
  Links links_;
  Resolver resolver_;
  Core core_;
  NodeList nodes_;
  Reader reader_;
  Writer writer_;
  Remover remover_;
  Groups groups_;
  Commander commander_;
};

}  // namespace farlift::kv::client
