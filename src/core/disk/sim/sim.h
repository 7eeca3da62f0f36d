// A disk in memory that crashes on command: what was not synced may be lost, torn or out of order
// afterwards, exactly as core/disk/disk.h allows and no more.
//
//   SimDisk disk(seed);
//   auto directory = disk.directory();
//   ... a store writes ...
//   disk.crash();                  // every open file and directory is dead from here on
//   auto again = disk.directory(); // what the machine finds when it is up again
//
// Faults: fail_after(n, error) lets n operations that change something pass, then fails one (or
// all from there on); cut_power_after(n) crashes in the middle of operation n + 1.
//
// The unit of tearing is a sector of kSector bytes, aligned: each sector of an unsynced write is
// old or new on its own. A sector that was never written reads as zeros.
//
// Threads: any. Errors: as core/disk/disk.h; closed after a crash.
#pragma once

#include "core/base/prng.h"
#include "core/disk/disk.h"

#include <cstdint>
#include <memory>
#include <string>

namespace farlift::disk::sim {

inline constexpr std::size_t kSector = 512;

struct Machine;

class SimDisk {
 public:
  explicit SimDisk(std::uint64_t seed);
  ~SimDisk();

  // Exclusive in no sense: every call gives the same files.
  std::unique_ptr<Directory> directory();

  // Power is lost: what was not synced is decided by chance, sector by sector and name by name.
  void crash();
  // The process died and the machine lives: everything written stays, handles are dead.
  void kill();

  // Operations that change something (write, sync, resize, create, rename, remove, sync of the
  // directory) so far.
  std::uint64_t changes() const;
  // After `count` more of them the next fails with `error`; `forever`: all from there on. A write
  // that fails has written a random prefix.
  void fail_after(std::uint64_t count, Error error, bool forever);
  void cut_power_after(std::uint64_t count);
  void heal();  // no faults any more
  void set_free_space(Length left);

  // Damage at rest: xors one byte, durably. not_found, out_of_range.
  Status flip(const std::string& name, Offset at, std::uint8_t mask);
  // What reading the whole file gives now.
  Result<std::vector<std::byte>> contents(const std::string& name) const;
  // Replaces or makes a file, durably.
  void put(const std::string& name, std::vector<std::byte> bytes);

 private:
  const std::shared_ptr<Machine> machine_;
};

}  // namespace farlift::disk::sim
