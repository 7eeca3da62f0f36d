// Sources: memory of an initiator that is a memfd. Its process tells a target of the same host
// which file that is, and the target copies pulls out of a read-only mapping of its own instead of
// by process_vm_readv (docs/decisions/0014).
//
// Threads: SourceFile, SourceMapping: immutable. SourceAnnouncer: the Initiator's.
//          SourceCache: any. Errors: none; whatever cannot be mapped is read by process_vm_readv.
#pragma once

#include "core/base/mutex.h"
#include "core/fabric/fabric.h"
#include "core/fabric/soft/host_process.h"
#include "core/fabric/soft/soft_wire.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace farlift::fabric::soft {

// The file behind registered memory; fd is -1 where there is none that may be mapped.
struct SourceFile {
  int fd = -1;
  std::uint64_t inode = 0;
  std::uint64_t offset = 0;  // of the memory's first byte
  static SourceFile of(const MemoryRef& memory) noexcept;
};

// Our read-only view of a peer's memfd.
//
// Invariants: the file is a memfd of small pages, sealed against shrinking, and covers the view: no
//             access to it raises SIGBUS for want of a file behind it, whatever the peer does.
//             Never inherited by a fork, never in a core dump.
class SourceMapping {
 public:
  struct Name {
    std::uint64_t inode = 0;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    friend bool operator==(const Name&, const Name&) = default;
  };
  // `fd` was duplicated from the peer and is known to be the file that `name` names.
  static std::shared_ptr<const SourceMapping> map(int fd, const Name& name);
  SourceMapping(const Name& name, std::span<const std::byte> bytes) noexcept
      : name_(name), bytes_(bytes) {}
  SourceMapping(const SourceMapping&) = delete;
  SourceMapping& operator=(const SourceMapping&) = delete;
  ~SourceMapping();

  const Name& name() const noexcept { return name_; }
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  const Name name_;
  const std::span<const std::byte> bytes_;
};

// What a link's initiator announced: [va, va + mapping->bytes().size()) of its process.
struct AnnouncedSource {
  std::uint64_t va = 0;
  std::shared_ptr<const SourceMapping> mapping;
};

// One view of a file for all links of a target.
class SourceCache {
 public:
  // nullptr: not to be had. `process` is the proven peer of the link.
  std::shared_ptr<const SourceMapping> open(const HostProcess& process, const Request& announced);

 private:
  Mutex mutex_;
  std::vector<std::weak_ptr<const SourceMapping>> known_ GUARDED_BY(mutex_);
};

// What a link owns of announced sources, newest last.
class AnnouncedSources {
 public:
  static constexpr std::size_t kSourcesMax = 256;

  // Takes an announcement in; length 0 takes one back. What overlaps a newer one is forgotten.
  void take(const HostProcess& process, SourceCache& cache, const Request& announced);
  // The bytes [source, source + length) of the peer, or an empty span; `keep` holds them.
  std::span<const std::byte> find(std::uint64_t source, std::uint64_t length,
                                  std::shared_ptr<const SourceMapping>& keep) const;

 private:
  std::vector<AnnouncedSource> sources_;
};

}  // namespace farlift::fabric::soft
