#include "core/disk/sim/sim.h"

#include "core/base/mutex.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace farlift::disk::sim {

namespace {

// One file: what reads see, what is certain to survive, and which sectors differ between the two.
struct Inode {
  std::vector<std::byte> now;
  std::vector<std::byte> durable;
  std::vector<bool> dirty;  // by sector of `now`; a length that changed is dirty by itself

  void touch(std::uint64_t from, std::uint64_t length) {
    const std::size_t last = (now.size() + kSector - 1) / kSector;
    if (dirty.size() < last) dirty.resize(last, true);
    for (std::uint64_t s = from / kSector; s * kSector < from + length && s < dirty.size(); ++s)
      dirty[s] = true;
  }
  void sync() {
    durable = now;
    dirty.assign(dirty.size(), false);
  }
  void crash(Prng& prng) {
    // The length on disk is the old one, the new one, or where some write in between had ended.
    std::uint64_t length = durable.size();
    if (now.size() != durable.size()) {
      const auto low = std::min(now.size(), durable.size());
      const auto high = std::max(now.size(), durable.size());
      const std::uint64_t draw = prng.below(4);
      length = draw == 0 ? low : draw == 1 ? high : low + prng.below(high - low + 1);
    }
    std::vector<std::byte> after(length);
    for (std::uint64_t at = 0; at < length; at += kSector) {
      const std::uint64_t end = std::min<std::uint64_t>(at + kSector, length);
      const bool is_dirty = at / kSector < dirty.size() && dirty[at / kSector];
      const std::vector<std::byte>& from = is_dirty && prng.chance(1, 2) ? now : durable;
      const std::vector<std::byte>& source = is_dirty ? from : durable;
      for (std::uint64_t i = at; i < end; ++i)
        after[i] = i < source.size() ? source[i] : std::byte{0};
    }
    now = after;
    durable = std::move(after);
    dirty.assign((now.size() + kSector - 1) / kSector, false);
  }
};
using InodePtr = std::shared_ptr<Inode>;

// A change to names that is not durable yet.
struct NameChange {
  std::string name;
  InodePtr inode;  // null: removed
  std::string removed_by_rename;
};

}  // namespace

struct Machine {
  explicit Machine(std::uint64_t seed) : prng(seed) {}

  mutable Mutex mutex;
  Prng prng GUARDED_BY(mutex);
  std::map<std::string, InodePtr> names GUARDED_BY(mutex);
  std::map<std::string, InodePtr> durable_names GUARDED_BY(mutex);
  std::vector<NameChange> pending GUARDED_BY(mutex);
  std::uint64_t boot GUARDED_BY(mutex) = 0;  // handles of another boot are dead
  std::uint64_t changes GUARDED_BY(mutex) = 0;
  std::optional<std::uint64_t> fail_at GUARDED_BY(mutex);
  bool fail_forever GUARDED_BY(mutex) = false;
  Error failure GUARDED_BY(mutex);
  std::optional<std::uint64_t> cut_at GUARDED_BY(mutex);
  std::uint64_t free GUARDED_BY(mutex) = std::uint64_t{1} << 40;

  // What is decided before a change: pass, fail, or the lights go out in the middle of it.
  enum class Fate : std::uint8_t { pass, fail, cut };
  Fate fate() REQUIRES(mutex) {
    const std::uint64_t number = changes++;
    if (cut_at && number >= *cut_at) return Fate::cut;
    if (fail_at && (number == *fail_at || (fail_forever && number >= *fail_at))) return Fate::fail;
    return Fate::pass;
  }
  void crash() REQUIRES(mutex) {
    ++boot;
    cut_at.reset();
    // Names: each change survives or not, a rename as one.
    names = durable_names;
    for (const NameChange& change : pending) {
      if (!prng.chance(1, 2)) continue;
      if (change.inode != nullptr) {
        names[change.name] = change.inode;
      } else {
        names.erase(change.name);
      }
      if (!change.removed_by_rename.empty()) names.erase(change.removed_by_rename);
    }
    pending.clear();
    durable_names = names;
    std::vector<Inode*> done;
    for (auto& [name, inode] : names) {
      if (std::find(done.begin(), done.end(), inode.get()) != done.end()) continue;
      inode->crash(prng);
      done.push_back(inode.get());
    }
  }
};

namespace {

class SimFile final : public File {
 public:
  SimFile(std::shared_ptr<Machine> machine, InodePtr inode, std::uint64_t boot, bool writable)
      : machine_(std::move(machine)), inode_(std::move(inode)), boot_(boot), writable_(writable) {}

  Result<std::size_t> read_at(std::span<std::byte> into, Offset offset) override {
    Machine& m = *machine_;
    MutexLock lock(m.mutex);
    TRY(alive());
    const auto& bytes = inode_->now;
    if (offset.raw() >= bytes.size()) return std::size_t{0};
    const std::size_t count = std::min<std::uint64_t>(into.size(), bytes.size() - offset.raw());
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset.raw()), count, into.begin());
    return count;
  }

  Status write_at(std::span<const std::span<const std::byte>> pieces, Offset offset) override {
    Machine& m = *machine_;
    MutexLock lock(m.mutex);
    TRY(alive());
    if (!writable_) return Error::make(Errc::permission, "write file");
    std::vector<std::byte> all;
    for (const auto piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
    const Machine::Fate fate = m.fate();
    std::size_t count = all.size();
    if (fate != Machine::Fate::pass) count = m.prng.below(all.size() + 1);
    Status short_of_space;
    if (offset.raw() + count > inode_->now.size()) {
      const std::uint64_t growth = offset.raw() + count - inode_->now.size();
      if (growth > m.free) {
        count -= std::min<std::size_t>(count, growth - m.free);
        short_of_space = Error::make(Errc::exhausted, "write file");
      }
    }
    write(m, offset.raw(), std::span(all).first(count));
    if (fate == Machine::Fate::cut) return cut(m);
    if (fate == Machine::Fate::fail) return m.failure;
    return short_of_space;
  }

  Status sync() override {
    Machine& m = *machine_;
    MutexLock lock(m.mutex);
    TRY(alive());
    switch (m.fate()) {
      case Machine::Fate::cut:
        return cut(m);
      case Machine::Fate::fail:
        return m.failure;
      case Machine::Fate::pass:
        break;
    }
    inode_->sync();
    return {};
  }

  Status resize(Length length) override {
    Machine& m = *machine_;
    MutexLock lock(m.mutex);
    TRY(alive());
    switch (m.fate()) {
      case Machine::Fate::cut:
        return cut(m);
      case Machine::Fate::fail:
        return m.failure;
      case Machine::Fate::pass:
        break;
    }
    const std::uint64_t before = inode_->now.size();
    inode_->now.resize(length.raw());
    inode_->touch(std::min(before, length.raw()), before + length.raw());
    return {};
  }

  Result<Length> size() override {
    MutexLock lock(machine_->mutex);
    TRY(alive());
    return Length(inode_->now.size());
  }

 private:
  Status alive() REQUIRES(machine_->mutex) {
    if (boot_ != machine_->boot) return Error::make(Errc::closed, "the machine went down");
    return {};
  }
  static Status cut(Machine& m) REQUIRES(m.mutex) {
    m.crash();
    return Error::make(Errc::closed, "the machine went down");
  }
  void write(Machine& m, std::uint64_t at, std::span<const std::byte> bytes) REQUIRES(m.mutex) {
    if (bytes.empty()) return;
    if (at + bytes.size() > inode_->now.size()) {
      m.free -= at + bytes.size() - inode_->now.size();
      inode_->now.resize(at + bytes.size());
    }
    std::copy(bytes.begin(), bytes.end(), inode_->now.begin() + static_cast<std::ptrdiff_t>(at));
    inode_->touch(at, bytes.size());
  }

  const std::shared_ptr<Machine> machine_;
  const InodePtr inode_;
  const std::uint64_t boot_;
  const bool writable_;
};

class SimDirectory final : public Directory {
 public:
  SimDirectory(std::shared_ptr<Machine> machine, std::uint64_t boot)
      : machine_(std::move(machine)), boot_(boot) {}
  const DirectoryInfo& info() const noexcept override { return info_; }

  Result<std::unique_ptr<File>> open(const std::string& name, OpenMode mode) override {
    Machine& m = *machine_;
    MutexLock lock(m.mutex);
    TRY(alive());
    const bool writes = mode != OpenMode::read_only;
    auto found = m.names.find(name);
    if (found == m.names.end()) {
      if (mode == OpenMode::read_only || mode == OpenMode::read_write)
        return Error::make(Errc::not_found, "open file");
      TRY(change(m));
      found = m.names.emplace(name, std::make_shared<Inode>()).first;
      m.pending.push_back({name, found->second, {}});
    } else if (mode == OpenMode::create_new) {
      return Error::make(Errc::already_exists, "open file");
    } else if (mode == OpenMode::create_empty) {
      TRY(change(m));
      found->second->now.clear();
      found->second->dirty.assign(found->second->durable.size() / kSector + 1, true);
    }
    return std::unique_ptr<File>(std::make_unique<SimFile>(machine_, found->second, boot_, writes));
  }

  Status rename(const std::string& from, const std::string& to) override {
    Machine& m = *machine_;
    MutexLock lock(m.mutex);
    TRY(alive());
    const auto found = m.names.find(from);
    if (found == m.names.end()) return Error::make(Errc::not_found, "rename file");
    TRY(change(m));
    const InodePtr inode = found->second;
    m.names.erase(found);
    m.names[to] = inode;
    m.pending.push_back({to, inode, from});
    return {};
  }

  Status remove(const std::string& name) override {
    Machine& m = *machine_;
    MutexLock lock(m.mutex);
    TRY(alive());
    if (!m.names.contains(name)) return Error::make(Errc::not_found, "remove file");
    TRY(change(m));
    m.names.erase(name);
    m.pending.push_back({name, nullptr, {}});
    return {};
  }

  Result<std::vector<std::string>> list() override {
    MutexLock lock(machine_->mutex);
    TRY(alive());
    std::vector<std::string> out;
    for (const auto& [name, inode] : machine_->names) out.push_back(name);
    return out;
  }

  Status sync() override {
    Machine& m = *machine_;
    MutexLock lock(m.mutex);
    TRY(alive());
    TRY(change(m));
    m.pending.clear();
    m.durable_names = m.names;
    return {};
  }

  Result<Length> free_space() override {
    MutexLock lock(machine_->mutex);
    TRY(alive());
    return Length(machine_->free);
  }

 private:
  Status alive() REQUIRES(machine_->mutex) {
    if (boot_ != machine_->boot) return Error::make(Errc::closed, "the machine went down");
    return {};
  }
  static Status change(Machine& m) REQUIRES(m.mutex) {
    switch (m.fate()) {
      case Machine::Fate::cut:
        m.crash();
        return Error::make(Errc::closed, "the machine went down");
      case Machine::Fate::fail:
        return m.failure;
      case Machine::Fate::pass:
        break;
    }
    return {};
  }

  const std::shared_ptr<Machine> machine_;
  const std::uint64_t boot_;
  const DirectoryInfo info_{"sim", {}};
};

}  // namespace

SimDisk::SimDisk(std::uint64_t seed) : machine_(std::make_shared<Machine>(seed)) {}
SimDisk::~SimDisk() = default;

std::unique_ptr<Directory> SimDisk::directory() {
  MutexLock lock(machine_->mutex);
  return std::make_unique<SimDirectory>(machine_, machine_->boot);
}

void SimDisk::crash() {
  MutexLock lock(machine_->mutex);
  machine_->crash();
}

void SimDisk::kill() {
  MutexLock lock(machine_->mutex);
  ++machine_->boot;
}

std::uint64_t SimDisk::changes() const {
  MutexLock lock(machine_->mutex);
  return machine_->changes;
}

void SimDisk::fail_after(std::uint64_t count, Error error, bool forever) {
  MutexLock lock(machine_->mutex);
  machine_->fail_at = machine_->changes + count;
  machine_->failure = error;
  machine_->fail_forever = forever;
}

void SimDisk::cut_power_after(std::uint64_t count) {
  MutexLock lock(machine_->mutex);
  machine_->cut_at = machine_->changes + count;
}

void SimDisk::heal() {
  MutexLock lock(machine_->mutex);
  machine_->fail_at.reset();
  machine_->cut_at.reset();
  machine_->fail_forever = false;
}

void SimDisk::set_free_space(Length left) {
  MutexLock lock(machine_->mutex);
  machine_->free = left.raw();
}

Status SimDisk::flip(const std::string& name, Offset at, std::uint8_t mask) {
  MutexLock lock(machine_->mutex);
  const auto found = machine_->names.find(name);
  if (found == machine_->names.end()) return Error::make(Errc::not_found, "flip");
  Inode& inode = *found->second;
  if (at.raw() >= inode.now.size()) return Error::make(Errc::out_of_range, "flip");
  inode.now[at.raw()] ^= std::byte{mask};
  if (at.raw() < inode.durable.size()) inode.durable[at.raw()] ^= std::byte{mask};
  return {};
}

Result<std::vector<std::byte>> SimDisk::contents(const std::string& name) const {
  MutexLock lock(machine_->mutex);
  const auto found = machine_->names.find(name);
  if (found == machine_->names.end()) return Error::make(Errc::not_found, "contents");
  return found->second->now;
}

void SimDisk::put(const std::string& name, std::vector<std::byte> bytes) {
  MutexLock lock(machine_->mutex);
  auto inode = std::make_shared<Inode>();
  inode->now = std::move(bytes);
  inode->dirty.assign((inode->now.size() + kSector - 1) / kSector, false);
  inode->sync();
  machine_->names[name] = inode;
  machine_->durable_names[name] = inode;
}

}  // namespace farlift::disk::sim
