#include "kvcache/control/valkey_directory.h"

#include "core/codec/text.h"
#include "kvcache/control/schema.h"
#include "kvcache/control/valkey_core.h"

#include <map>
#include <set>
#include <string>
#include <utility>

namespace farlift::kv {
namespace {

using resp::Value;

constexpr std::string_view kScanCount = "1000";
constexpr std::size_t kNodesMax = 65536;  // members of the set that are looked at

std::string px_of(Duration time) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(time).count();
  return std::to_string(std::max<std::int64_t>(ms, 1));
}

Error nonsense() { return Error::make(Errc::protocol, "directory reply"); }

Result<std::optional<Bytes>> optional_bytes(const Value& value) {
  if (value.is_null()) return std::optional<Bytes>();
  if (value.type() != resp::Type::bulk) return nonsense();
  return std::optional<Bytes>(Bytes(value.bytes().begin(), value.bytes().end()));
}

Result<Pair> pair_of(const ValkeyAnswer& answer) {
  if (!answer.reply.ok()) return answer.reply.error();
  const Value& value = *answer.reply;
  if (!value.is_aggregate() || value.items().size() != 2) return nonsense();
  Pair pair;
  TRY_ASSIGN(pair.descriptor, optional_bytes(value.items()[0]));
  TRY_ASSIGN(pair.tag, optional_bytes(value.items()[1]));
  return pair;
}

PublishReply publish_reply_of(const ValkeyAnswer& answer) {
  using Kind = PublishReply::Kind;
  if (!answer.reply.ok())
    return {answer.may_have_run ? Kind::unknown : Kind::not_done, std::nullopt,
            answer.reply.error()};
  const Value& value = *answer.reply;
  PublishReply odd{Kind::unknown, std::nullopt, nonsense()};
  if (!value.is_aggregate() || value.items().size() != 2 || !value.items()[0].is_text()) return odd;
  auto current = optional_bytes(value.items()[1]);
  if (!current.ok()) return odd;
  if (*current && (*current)->empty()) current->reset();
  const std::string_view word = value.items()[0].text();
  if (word == "OK") return {Kind::ok, *std::move(current), {}};
  if (word == "EXISTS") return {Kind::exists, *std::move(current), {}};
  if (word == "CONFLICT") return {Kind::conflict, *std::move(current), {}};
  return odd;
}

UnpublishReply unpublish_reply_of(const ValkeyAnswer& answer) {
  using Kind = UnpublishReply::Kind;
  if (!answer.reply.ok())
    return {answer.may_have_run ? Kind::unknown : Kind::not_done, answer.reply.error()};
  if (answer.reply->type() != resp::Type::integer) return {Kind::unknown, nonsense()};
  const std::int64_t code = answer.reply->integer();
  return {code == 1 ? Kind::removed : code == 0 ? Kind::absent : Kind::other, {}};
}

Status status_of(const ValkeyAnswer& answer) {
  if (!answer.reply.ok()) return answer.reply.error();
  return {};
}

class ValkeyDirectoryImpl final : public ValkeyDirectory {
 public:
  explicit ValkeyDirectoryImpl(std::unique_ptr<ValkeyCore> core) : core_(std::move(core)) {}

  void resolve(std::string_view tenant, std::vector<Bytes> keys, OnPairs done) override;
  void publish(PublishRequest request, OnPublish done) override;
  void unpublish(UnpublishRequest request, OnUnpublish done) override;
  void announce(const NodeRecord& record, OnStatus done) override;
  void retract(NodeId node, OnStatus done) override;
  void list_nodes(OnNodes done) override;
  void find_node(NodeId node, OnNode done) override;
  void take_lease(NodeId node, Incarnation incarnation, ArenaId arena, const ClientId& client,
                  Duration time, OnStatus done) override;
  void count_leases(NodeId node, Incarnation incarnation, ArenaId arena, OnCount done) override;
  void put_manifest(std::string_view tenant, std::string_view group, Bytes manifest,
                    OnStatus done) override;
  void get_manifest(std::string_view tenant, std::string_view group, OnManifest done) override;

  bool step() override { return core_->step(); }
  int wait_fd() const noexcept override { return core_->wait_fd(); }
  std::size_t pending() const noexcept override { return core_->pending(); }
  void hold() override { held_ = true; }
  void flush() override {
    held_ = false;
    if (std::exchange(unsent_, false)) core_->flush();
  }
  Counters counters() const override { return core_->counters(); }

 private:
  using Done = std::function<void(ValkeyAnswer)>;
  struct Scan;

  void submit(std::string key, std::vector<std::string> words, bool repeatable, Done done,
              Instant deadline = {});
  void run_script(const Script& script, const std::string& tenant, const Bytes& key,
                  std::vector<std::string> arguments, Done done);
  void both(const std::vector<std::pair<std::string, std::vector<std::string>>>& commands,
            OnStatus done);
  void get_records(const std::vector<std::string>& names, Instant deadline, OnNodes done);
  void scan_on(const std::shared_ptr<Scan>& scan);

  void send() {
    unsent_ = held_;
    if (!held_) core_->flush();
  }

  std::unique_ptr<ValkeyCore> core_;
  bool held_ = false;
  bool unsent_ = false;
};

void ValkeyDirectoryImpl::submit(std::string key, std::vector<std::string> words, bool repeatable,
                                 Done done, Instant deadline) {
  auto command = std::make_unique<ValkeyCommand>();
  command->key = std::move(key);
  command->words = std::move(words);
  command->repeatable = repeatable;
  command->deadline = deadline;
  command->done = std::move(done);
  core_->submit(std::move(command));
}

void ValkeyDirectoryImpl::resolve(std::string_view tenant, std::vector<Bytes> keys, OnPairs done) {
  struct Gather {
    std::vector<Result<Pair>> pairs;
    std::size_t left = 0;
    OnPairs done;
  };
  auto gather = std::make_shared<Gather>();
  gather->pairs.assign(keys.size(), Result<Pair>(nonsense()));
  gather->left = keys.size();
  gather->done = std::move(done);
  if (keys.empty()) {
    // Nothing to ask, but the answer still comes from step().
    submit(std::string(kNodesName), {"PING"}, true,
           [gather](const ValkeyAnswer&) { gather->done({}); });
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::string name = descriptor_name(tenant, keys[i]);
    std::string tag = tag_name(tenant, keys[i]);
    std::vector<std::string> words{"MGET", name, std::move(tag)};
    submit(std::move(name), std::move(words), true, [gather, i](const ValkeyAnswer& answer) {
      gather->pairs[i] = pair_of(answer);
      if (--gather->left == 0) gather->done(std::move(gather->pairs));
    });
  }
  send();
}

void ValkeyDirectoryImpl::run_script(const Script& script, const std::string& tenant,
                                     const Bytes& key, std::vector<std::string> arguments,
                                     Done done) {
  auto command = std::make_unique<ValkeyCommand>();
  command->key = descriptor_name(tenant, key);
  command->words = {"EVALSHA", std::string(script.sha1), "2", command->key, tag_name(tenant, key)};
  for (std::string& argument : arguments) command->words.push_back(std::move(argument));
  command->script = &script;
  command->done = std::move(done);
  core_->submit(std::move(command));
  send();
}

void ValkeyDirectoryImpl::publish(PublishRequest request, OnPublish done) {
  ASSERT(request.mode != PutMode::replace);
  run_script(kPublishScript, request.tenant, request.key,
             {request.mode == PutMode::if_absent ? "A" : "C",
              std::string(text_of(version_operand(request.expected))),
              std::string(text_of(request.descriptor)), std::string(text_of(request.tag)),
              px_of(request.ttl)},
             [done](const ValkeyAnswer& answer) { done(publish_reply_of(answer)); });
}

void ValkeyDirectoryImpl::unpublish(UnpublishRequest request, OnUnpublish done) {
  std::string how = "*", operand;
  if (request.how == UnpublishRequest::How::location) {
    how = "L";
    operand = text_of(encode_location(request.location));
  } else if (request.how == UnpublishRequest::How::version) {
    how = "V";
    operand = text_of(version_operand(request.version));
  } else if (request.how == UnpublishRequest::How::exact) {
    how = "E";
    operand = text_of(request.descriptor);
  }
  run_script(kUnpublishScript, request.tenant, request.key, {std::move(how), std::move(operand)},
             [done](const ValkeyAnswer& answer) { done(unpublish_reply_of(answer)); });
}

// The first failure, or success once all have succeeded.
void ValkeyDirectoryImpl::both(
    const std::vector<std::pair<std::string, std::vector<std::string>>>& commands, OnStatus done) {
  struct Gather {
    std::size_t left = 0;
    Status status;
    OnStatus done;
  };
  auto gather = std::make_shared<Gather>();
  gather->left = commands.size();
  gather->done = std::move(done);
  for (const auto& [key, words] : commands) {
    submit(key, words, true, [gather](const ValkeyAnswer& answer) {
      if (gather->status.ok()) gather->status = status_of(answer);
      if (--gather->left == 0) gather->done(gather->status);
    });
  }
  send();
}

void ValkeyDirectoryImpl::announce(const NodeRecord& record, OnStatus done) {
  const std::string name = node_name(record.node);
  const std::string nodes(kNodesName);
  both({{name, {"SET", name, encode_node_record(record), "PX", px_of(kNodeLease)}},
        {nodes, {"SADD", nodes, std::to_string(record.node.raw())}}},
       std::move(done));
}

void ValkeyDirectoryImpl::retract(NodeId node, OnStatus done) {
  const std::string name = node_name(node);
  const std::string nodes(kNodesName);
  both({{name, {"DEL", name}}, {nodes, {"SREM", nodes, std::to_string(node.raw())}}},
       std::move(done));
}

void ValkeyDirectoryImpl::list_nodes(OnNodes done) {
  const std::string nodes(kNodesName);
  const Instant deadline = core_->deadline();
  submit(
      nodes, {"SMEMBERS", nodes}, true,
      [this, deadline, done](const ValkeyAnswer& answer) {
        if (!answer.reply.ok()) return done(answer.reply.error());
        if (!answer.reply->is_aggregate()) return done(nonsense());
        std::vector<std::string> names;
        for (const Value& member : answer.reply->items()) {
          // Anybody may have written the set; what is no number is no node.
          const auto id = member.is_text() ? codec::parse_u64(member.text())
                                           : Result<std::uint64_t>(nonsense());
          if (id.ok() && names.size() < kNodesMax) names.push_back(node_name(NodeId(*id)));
        }
        get_records(names, deadline, done);
      },
      deadline);
  send();
}

void ValkeyDirectoryImpl::get_records(const std::vector<std::string>& names, Instant deadline,
                                      OnNodes done) {
  struct Gather {
    std::map<NodeId, NodeRecord> records;
    std::size_t left = 0;
    Status status;
    OnNodes done;
  };
  if (names.empty()) return done(std::vector<NodeRecord>{});
  auto gather = std::make_shared<Gather>();
  gather->left = names.size();
  gather->done = std::move(done);
  for (const std::string& name : names) {
    submit(
        name, {"GET", name}, true,
        [gather, name](const ValkeyAnswer& answer) {
          if (!answer.reply.ok()) gather->status = answer.reply.error();
          if (answer.reply.ok() && answer.reply->type() == resp::Type::bulk) {
            auto record = decode_node_record(answer.reply->text());
            if (record.ok() && node_name(record->node) == name) {
              const NodeId node = record->node;
              gather->records.insert_or_assign(node, std::move(record).value());
            }
          }
          if (--gather->left > 0) return;
          if (!gather->status.ok()) return gather->done(gather->status.error());
          std::vector<NodeRecord> all;
          for (auto& [id, record] : gather->records) all.push_back(std::move(record));
          gather->done(std::move(all));
        },
        deadline);
  }
  send();
}

void ValkeyDirectoryImpl::find_node(NodeId node, OnNode done) {
  const std::string name = node_name(node);
  submit(name, {"GET", name}, true, [node, done](const ValkeyAnswer& answer) {
    if (!answer.reply.ok()) return done(answer.reply.error());
    if (answer.reply->type() != resp::Type::bulk) return done(std::optional<NodeRecord>());
    auto record = decode_node_record(answer.reply->text());
    // A record that is none, or another node's, is as good as none.
    if (!record.ok() || record->node != node) return done(std::optional<NodeRecord>());
    done(std::optional<NodeRecord>(std::move(record).value()));
  });
  send();
}

void ValkeyDirectoryImpl::take_lease(NodeId node, Incarnation incarnation, ArenaId arena,
                                     const ClientId& client, Duration time, OnStatus done) {
  const std::string name = lease_name(node, incarnation, arena, client);
  both({{name, {"SET", name, "1", "PX", px_of(time)}}}, std::move(done));
}

// SCAN in pieces; every lease of a node is in one slot. A key may be reported twice.
struct ValkeyDirectoryImpl::Scan {
  std::string pattern;
  std::string route;
  std::string cursor = "0";
  std::set<std::string> found;
  Instant deadline;
  OnCount done;
};

void ValkeyDirectoryImpl::count_leases(NodeId node, Incarnation incarnation, ArenaId arena,
                                       OnCount done) {
  auto scan = std::make_shared<Scan>();
  scan->pattern = lease_pattern(node, incarnation, arena);
  scan->route = node_name(node);
  scan->deadline = core_->deadline();
  scan->done = std::move(done);
  scan_on(scan);
  send();
}

void ValkeyDirectoryImpl::scan_on(const std::shared_ptr<Scan>& scan) {
  const std::string route = scan->route;
  std::vector<std::string> words{"SCAN",        scan->cursor, "MATCH",
                                 scan->pattern, "COUNT",      std::string(kScanCount)};
  // Not repeated elsewhere: a cursor means something to one server only.
  submit(
      route, std::move(words), false,
      [this, scan](const ValkeyAnswer& answer) {
        if (!answer.reply.ok()) return scan->done(answer.reply.error());
        const Value& value = *answer.reply;
        if (!value.is_aggregate() || value.items().size() != 2 || !value.items()[0].is_text() ||
            !value.items()[1].is_aggregate())
          return scan->done(nonsense());
        for (const Value& name : value.items()[1].items()) {
          if (name.is_text()) scan->found.insert(std::string(name.text()));
        }
        scan->cursor = value.items()[0].text();
        if (scan->cursor == "0") return scan->done(std::uint64_t{scan->found.size()});
        scan_on(scan);
        send();
      },
      scan->deadline);
}

void ValkeyDirectoryImpl::put_manifest(std::string_view tenant, std::string_view group,
                                       Bytes manifest, OnStatus done) {
  const std::string name = manifest_name(tenant, group);
  both({{name, {"SET", name, std::string(text_of(manifest)), "PX", px_of(kDescriptorTtl)}}},
       std::move(done));
}

void ValkeyDirectoryImpl::get_manifest(std::string_view tenant, std::string_view group,
                                       OnManifest done) {
  const std::string name = manifest_name(tenant, group);
  submit(name, {"GET", name}, true, [done](const ValkeyAnswer& answer) {
    if (!answer.reply.ok()) return done(answer.reply.error());
    done(optional_bytes(*answer.reply));
  });
  send();
}

Status refuse(std::string* reason, const char* what) {
  if (reason != nullptr) *reason = what;
  return Error::make(Errc::invalid_argument, "directory options");
}

Status check(const ValkeyOptions& options, std::string* reason) {
  if (options.mode == ValkeyOptions::Mode::cluster && options.connection.database != 0)
    return refuse(reason, "a cluster has no databases");
  if (options.mode == ValkeyOptions::Mode::sentinel &&
      (options.sentinels.empty() || options.primary_name.empty()))
    return refuse(reason, "sentinel mode needs sentinels and the name of the primary");
  if (options.timeout <= Duration::zero()) return refuse(reason, "the timeout must be positive");
  return {};
}

}  // namespace

Result<std::unique_ptr<ValkeyDirectory>> ValkeyDirectory::open(const Clock& clock,
                                                               ValkeyOptions options,
                                                               std::string* reason) {
  TRY(check(options, reason));
  TRY_ASSIGN(auto core, ValkeyCore::open(clock, std::move(options), reason));
  return std::unique_ptr<ValkeyDirectory>(std::make_unique<ValkeyDirectoryImpl>(std::move(core)));
}

}  // namespace farlift::kv
