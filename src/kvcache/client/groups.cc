#include "kvcache/client/groups.h"

#include "kvcache/client/validate.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::client {
namespace {

constexpr std::size_t kGroupBytesMax = 512;

bool valid_group(const std::string& group) noexcept {
  return !group.empty() && group.size() <= kGroupBytesMax;
}

}  // namespace

struct Groups::Writing {
  std::string group;
  Manifest manifest;
  Client::Group result;
  std::size_t left = 0;
  std::uint64_t id = 0;
};

std::uint64_t Groups::begin(OnGroup done) {
  pending_.emplace(next_, std::move(done));
  return next_++;
}

void Groups::finish(std::uint64_t id, Client::Group result) {
  auto node = pending_.extract(id);
  if (node.empty()) return;
  core_.report([done = std::move(node.mapped()), result = std::move(result)] { done(result); });
}

void Groups::end_all() {
  while (!pending_.empty()) {
    Client::Group result;
    result.outcome = Outcome::timeout;
    finish(pending_.begin()->first, std::move(result));
  }
}

void Groups::write(std::string group, std::uint64_t version, std::vector<Bytes> keys,
                   OnGroup done) {
  const bool good = valid_group(group) && !keys.empty() && keys.size() <= Manifest::kEntriesMax &&
                    std::all_of(keys.begin(), keys.end(), valid_key);
  const std::uint64_t id = begin(std::move(done));
  if (!good) return finish(id, {Outcome::bad_arg, 0, {}});
  auto writing = std::make_shared<Writing>();
  writing->id = id;
  writing->group = std::move(group);
  writing->manifest.version = writing->result.version = version;
  writing->left = keys.size();
  writing->manifest.entries.resize(keys.size());
  writing->result.entries.resize(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    writing->result.entries[i].key = keys[i];
    writing->manifest.entries[i].key = keys[i];
    core_.resolver.ask(
        keys[i], [this, writing, i](const Resolved& answer) { resolved(writing, i, answer); });
  }
}

void Groups::resolved(const std::shared_ptr<Writing>& writing, std::size_t index,
                      const Resolved& answer) {
  Client::Group::Entry& entry = writing->result.entries[index];
  if (!answer.pair.ok()) {
    entry.outcome = Outcome::control_down;
  } else {
    const Verified verified = verify(core_.options, core_.keys, entry.key, *answer.pair, 0);
    entry.outcome = verified.outcome;
    entry.length = verified.descriptor.length;
    if (verified.outcome == Outcome::ok) {
      ManifestEntry& line = writing->manifest.entries[index];
      line.descriptor = *answer.pair->descriptor;
      if (answer.pair->tag && answer.pair->tag->size() == line.tag.size()) {
        std::copy(answer.pair->tag->begin(), answer.pair->tag->end(), line.tag.begin());
      }
    }
  }
  if (--writing->left == 0) store(writing);
}

// A chain with a hole is of no use beyond it, but what stands before it is: absent ones are left
// out and said in the result.
void Groups::store(const std::shared_ptr<Writing>& writing) {
  std::erase_if(writing->manifest.entries,
                [](const ManifestEntry& line) { return line.descriptor.empty(); });
  if (writing->manifest.entries.empty()) {
    const bool down = std::any_of(
        writing->result.entries.begin(), writing->result.entries.end(),
        [](const Client::Group::Entry& entry) { return entry.outcome == Outcome::control_down; });
    writing->result.outcome = down ? Outcome::control_down : Outcome::miss;
    return finish(writing->id, writing->result);
  }
  Bytes bytes = encode_manifest(writing->manifest, core_.keys.signing(), core_.options.tenant,
                                writing->group);
  core_.environment.directory.put_manifest(
      core_.options.tenant, writing->group, std::move(bytes),
      [this, writing, alive = std::weak_ptr<int>(alive_)](const Status& status) {
        if (alive.expired()) return;
        writing->result.outcome = status.ok() ? Outcome::ok : Outcome::control_down;
        finish(writing->id, writing->result);
      });
}

void Groups::read(const std::string& group, OnGroup done) {
  const std::uint64_t id = begin(std::move(done));
  if (!valid_group(group)) return finish(id, {Outcome::bad_arg, 0, {}});
  const Stamp stamp = core_.cache.stamp();
  const Instant asked = core_.now();
  core_.environment.directory.get_manifest(
      core_.options.tenant, group,
      [this, id, group, stamp, asked,
       alive = std::weak_ptr<int>(alive_)](const Result<std::optional<Bytes>>& found) {
        if (!alive.expired()) finish(id, opened(group, found, stamp, asked));
      });
}

// A manifest does not say which key signed it: each of the ring is tried.
Result<Manifest> Groups::open_manifest(const std::string& group, const Bytes& bytes) const {
  for (const KeyId id : core_.keys.ids()) {
    auto manifest = decode_manifest(bytes, *core_.keys.find(id), core_.options.tenant, group);
    if (manifest.ok() || manifest.code() != Errc::access) return manifest;
  }
  return Error::make(Errc::access, "manifest tag");
}

Client::Group Groups::opened(const std::string& group, const Result<std::optional<Bytes>>& found,
                             Stamp stamp, Instant asked) {
  Client::Group result;
  if (!found.ok()) {
    result.outcome = Outcome::control_down;
    return result;
  }
  if (!found->has_value()) return result;
  const auto manifest = open_manifest(group, **found);
  if (!manifest.ok()) {
    ++core_.counters.rejects;
    result.outcome = manifest.code() == Errc::access ? Outcome::reject_sig : Outcome::reject_format;
    return result;
  }
  result.outcome = Outcome::ok;
  result.version = manifest->version;
  for (const ManifestEntry& line : manifest->entries) {
    const Pair pair{line.descriptor, Bytes(line.tag.begin(), line.tag.end())};
    const Verified verified = verify(core_.options, core_.keys, line.key, pair, 0);
    result.entries.push_back({line.key, verified.outcome, verified.descriptor.length});
    if (verified.outcome == Outcome::ok) {
      core_.cache.insert(line.key, verified.descriptor, stamp, asked);
    } else {
      ++core_.counters.rejects;
    }
  }
  return result;
}

}  // namespace farlift::kv::client
