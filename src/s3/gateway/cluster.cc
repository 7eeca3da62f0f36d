#include "s3/gateway/cluster.h"

#include "core/base/log.h"
#include "core/base/prng.h"
#include "core/codec/json.h"
#include "s3/wire/fid.h"

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <tuple>

namespace farlift::s3::gateway {

namespace {

constexpr std::size_t kPoolRefill = 64;  // fids entered into the ledger at a time
constexpr std::uint64_t kIdsAtATime = 1024;

struct Seen {
  std::uint32_t volume = 0;
  bool writable = false;
};

std::optional<std::vector<Seen>> volumes_of(const std::string& status) {
  const Result<codec::Json> parsed = codec::Json::parse(status);
  const codec::Json* const list = parsed.ok() ? parsed->find("volumes") : nullptr;
  if (list == nullptr || list->array() == nullptr) return std::nullopt;
  std::vector<Seen> out;
  for (const codec::Json& item : *list->array()) {
    const codec::Json* const id = item.find("id");
    const codec::Json* const writable = item.find("writable");
    if (id == nullptr || !id->u64() || writable == nullptr || !writable->boolean())
      return std::nullopt;
    out.push_back({static_cast<std::uint32_t>(*id->u64()), *writable->boolean()});
  }
  return out;
}

class FixedCluster final : public Cluster {
 public:
  FixedCluster(FixedClusterOptions options, catalog::Store& store, VolumeClient& volumes,
               const Clock& clock)
      : options_(std::move(options)), store_(store), volumes_(volumes), clock_(clock) {
    if (!options_.write_key.empty())
      write_key_.emplace(std::as_bytes(std::span(options_.write_key)));
    if (!options_.read_key.empty()) read_key_.emplace(std::as_bytes(std::span(options_.read_key)));
    look();
    thread_ = std::thread([this] { run(); });
  }
  ~FixedCluster() override {
    {
      const MutexLock lock(stop_mutex_);
      stopping_ = true;
    }
    stopped_.notify_all();
    thread_.join();
    // What was taken in advance and not used is nobody's.
    std::vector<std::string> left;
    const MutexLock lock(pool_mutex_);
    for (const Fid& fid : pool_) left.push_back(fid.format());
    store_.discard(left, false).ignore();  // else the next process does it
  }

  Result<std::vector<Place>> assign(std::size_t count) override {
    std::vector<Place> out;
    const MutexLock lock(pool_mutex_);
    while (out.size() < count) {
      if (pool_.empty()) TRY(refill(std::max(kPoolRefill, count - out.size())));
      const Fid fid = pool_.back();
      pool_.pop_back();
      const std::vector<std::string> hosts = hosts_of(fid.volume);
      const std::string text = fid.format();
      if (hosts.empty() || !takes_writes(fid.volume)) {
        TRY(store_.discard(std::span(&text, 1), false));
        continue;
      }
      out.push_back({text, hosts[next_host_++ % hosts.size()], jwt(write_key_, text)});
    }
    return out;
  }

  void give_back(std::vector<Place> unused) override {
    const MutexLock lock(pool_mutex_);
    for (const Place& place : unused) {
      const Result<Fid> fid = Fid::parse(place.fid);
      if (fid.ok()) pool_.push_back(*fid);
    }
  }

  Result<std::vector<Place>> lookup(const std::string& fid) override {
    return places(fid, read_key_);
  }
  Result<std::vector<Place>> holders(const std::string& fid) override {
    return places(fid, write_key_);
  }

 private:
  using Key = std::optional<digest::HmacKey>;

  std::string jwt(const Key& key, const std::string& fid) const {
    return key ? sign_jwt(*key, fid, options_.now_s() + options_.jwt_life_s) : std::string();
  }

  Result<std::vector<Place>> places(const std::string& fid, const Key& key) {
    TRY_ASSIGN(const Fid parsed, Fid::parse(fid));
    std::vector<std::string> hosts = hosts_of(parsed.volume);
    if (hosts.empty()) {
      look();
      hosts = hosts_of(parsed.volume);
    }
    if (hosts.empty()) return Error::make(Errc::unreachable, "volume server");
    std::vector<Place> out;
    for (std::string& host : hosts) out.push_back({fid, std::move(host), jwt(key, fid)});
    return out;
  }

  // Fids spread over all volumes that take writes.
  Status refill(std::size_t count) REQUIRES(pool_mutex_) {
    std::vector<std::uint32_t> targets = writable();
    if (targets.empty()) {
      look();
      targets = writable();
    }
    if (targets.empty()) {
      const MutexLock lock(mutex_);
      return answering_ == 0 ? Error::make(Errc::unreachable, "volume server")
                             : Error::make(Errc::exhausted, "volumes");
    }
    std::vector<std::string> texts;
    std::vector<Fid> made;
    for (std::size_t i = 0; i < count; ++i) {
      if (next_id_ == id_end_) {
        TRY_ASSIGN(next_id_, store_.take_needle_ids(kIdsAtATime));
        id_end_ = next_id_ + kIdsAtATime;
      }
      Fid fid;
      fid.volume = targets[(spread_ + i) % targets.size()];
      fid.needle = next_id_++;
      fid.cookie = static_cast<std::uint32_t>(secure_random_u64());
      texts.push_back(fid.format());
      made.push_back(fid);
    }
    ++spread_;
    TRY(store_.reserve(texts));
    pool_.insert(pool_.end(), made.rbegin(), made.rend());
    return {};
  }

  std::vector<std::uint32_t> writable() {
    const MutexLock lock(mutex_);
    std::vector<std::uint32_t> out;
    for (const auto& [volume, holders] : map_) {
      if (holders.writable) out.push_back(volume);
    }
    return out;
  }
  bool takes_writes(std::uint32_t volume) {
    const MutexLock lock(mutex_);
    const auto found = map_.find(volume);
    return found != map_.end() && found->second.writable;
  }
  std::vector<std::string> hosts_of(std::uint32_t volume) {
    const MutexLock lock(mutex_);
    const auto found = map_.find(volume);
    return found == map_.end() ? std::vector<std::string>() : found->second.hosts;
  }

  // Asks every server what it holds, and makes volumes where there are too few.
  void look() {
    const MutexLock one_at_a_time(look_mutex_);
    std::map<std::uint32_t, Holders> seen;
    std::size_t answering = 0;
    std::vector<std::pair<std::string, std::size_t>> short_of;
    for (const std::string& host : options_.volumes) {
      const Result<std::string> status = volumes_.call("GET", host, "/status", {});
      const auto list = status.ok() ? volumes_of(*status) : std::nullopt;
      note(host, list.has_value());
      if (!list) {
        keep_known(host, seen);
        continue;
      }
      ++answering;
      std::size_t taking = 0;
      for (const Seen& one : *list) {
        Holders& holders = seen[one.volume];
        holders.hosts.push_back(host);
        // All holders must take a write for it to count.
        holders.writable = one.writable && (holders.hosts.size() == 1 || holders.writable);
        if (one.writable) ++taking;
      }
      if (taking < options_.volumes_each)
        short_of.emplace_back(host, options_.volumes_each - taking);
    }
    for (const auto& [host, count] : short_of) {
      for (std::size_t i = 0; i < count; ++i) make_volume(host, seen);
    }
    const MutexLock lock(mutex_);
    map_ = std::move(seen);
    answering_ = answering;
  }

  struct Holders {
    std::vector<std::string> hosts;
    bool writable = false;
  };

  // A server that does not answer keeps its volumes, but takes no new needles.
  void keep_known(const std::string& host, std::map<std::uint32_t, Holders>& seen) {
    const MutexLock lock(mutex_);
    for (const auto& [volume, holders] : map_) {
      if (std::find(holders.hosts.begin(), holders.hosts.end(), host) == holders.hosts.end())
        continue;
      seen[volume].hosts.push_back(host);
      seen[volume].writable = false;
    }
  }

  void make_volume(const std::string& host, std::map<std::uint32_t, Holders>& seen) {
    const std::uint32_t id = seen.empty() ? 1 : seen.rbegin()->first + 1;
    const std::string text = std::to_string(id);
    const Result<std::string> made =
        volumes_.call("POST", host, "/admin/assign_volume?volume=" + text, jwt(write_key_, text));
    if (!made.ok()) {
      logf(LogLevel::warning, "gateway: %s makes no volume %u: %s", host.c_str(), id,
           made.error().describe().c_str());
      return;
    }
    seen[id] = {{host}, true};
  }

  void note(const std::string& host, bool answers) REQUIRES(look_mutex_) {
    bool& before = answered_.try_emplace(host, !answers).first->second;
    if (before == answers) return;
    before = answers;
    logf(answers ? LogLevel::info : LogLevel::warning, "gateway: volume server %s %s", host.c_str(),
         answers ? "answers" : "does not answer");
  }

  void run() {
    for (;;) {
      {
        const MutexLock lock(stop_mutex_);
        if (!stopping_) stopped_.wait_for(stop_mutex_, options_.look_every);
        if (stopping_) return;
      }
      look();
    }
  }

  const FixedClusterOptions options_;
  catalog::Store& store_;
  VolumeClient& volumes_;
  const Clock& clock_;
  Key write_key_;
  Key read_key_;

  Mutex look_mutex_;  // before mutex_
  std::map<std::string, bool> answered_ GUARDED_BY(look_mutex_);
  Mutex mutex_;
  std::map<std::uint32_t, Holders> map_ GUARDED_BY(mutex_);
  std::size_t answering_ GUARDED_BY(mutex_) = 0;

  Mutex pool_mutex_;  // before the others
  std::vector<Fid> pool_ GUARDED_BY(pool_mutex_);
  std::uint64_t next_id_ GUARDED_BY(pool_mutex_) = 0;
  std::uint64_t id_end_ GUARDED_BY(pool_mutex_) = 0;
  std::size_t spread_ GUARDED_BY(pool_mutex_) = 0;
  std::size_t next_host_ GUARDED_BY(pool_mutex_) = 0;

  Mutex stop_mutex_;
  CondVar stopped_;
  bool stopping_ GUARDED_BY(stop_mutex_) = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Cluster> make_fixed_cluster(FixedClusterOptions options, catalog::Store& store,
                                            VolumeClient& volumes, const Clock& clock) {
  return std::make_unique<FixedCluster>(std::move(options), store, volumes, clock);
}

}  // namespace farlift::s3::gateway
