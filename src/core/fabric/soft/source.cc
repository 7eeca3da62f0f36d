#include "core/fabric/soft/source.h"

#include <algorithm>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace farlift::fabric::soft {
namespace {

// What the file must be for a view of it to be safe whatever its other holders do: sealed, so that
// it is never cut short under us, and of small pages, since a hole punched into huge ones may not
// be filled again.
bool mappable(int fd) noexcept {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  struct statfs fs {};
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && ::fstatfs(fd, &fs) == 0 &&
         fs.f_type == TMPFS_MAGIC;
}

std::uint64_t page_size() noexcept { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

SourceFile SourceFile::of(const MemoryRef& memory) noexcept {
  struct stat file {};
  if (memory.memfd < 0 || !mappable(memory.memfd) || ::fstat(memory.memfd, &file) != 0) return {};
  if (memory.memfd_offset % page_size() != 0) return {};
  return {memory.memfd, static_cast<std::uint64_t>(file.st_ino), memory.memfd_offset};
}

std::shared_ptr<const SourceMapping> SourceMapping::map(int fd, const Name& name) {
  struct stat file {};
  if (!mappable(fd) || ::fstat(fd, &file) != 0 || file.st_ino != name.inode) return nullptr;
  const auto size = static_cast<std::uint64_t>(file.st_size);
  if (name.length == 0 || name.offset % page_size() != 0 || name.offset > size ||
      name.length > size - name.offset) {
    return nullptr;
  }
  void* at =
      ::mmap(nullptr, name.length, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(name.offset));
  if (at == MAP_FAILED) return nullptr;
  (void)::madvise(at, name.length, MADV_DONTFORK);
  (void)::madvise(at, name.length, MADV_DONTDUMP);
  (void)::madvise(at, name.length, MADV_HUGEPAGE);
  return std::make_shared<const SourceMapping>(
      name, std::span(static_cast<const std::byte*>(at), name.length));
}

SourceMapping::~SourceMapping() {
  ASSERT(::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()) == 0);
}

std::shared_ptr<const SourceMapping> SourceCache::open(const HostProcess& process,
                                                       const Request& announced) {
  const SourceMapping::Name name{announced.id, announced.addr.raw(), announced.length.raw()};
  // Looked at for each link anew: that its peer holds the file is what entitles it to it.
  const UniqueFd fd = process.memfd(static_cast<int>(announced.key.raw()), name.inode);
  if (!fd) return nullptr;
  MutexLock lock(mutex_);
  std::erase_if(known_, [](const auto& known) { return known.expired(); });
  for (const auto& known : known_) {
    if (auto mapping = known.lock(); mapping && mapping->name() == name) return mapping;
  }
  auto mapping = SourceMapping::map(fd.get(), name);
  if (mapping) known_.push_back(mapping);
  return mapping;
}

void AnnouncedSources::take(const HostProcess& process, SourceCache& cache,
                            const Request& announced) {
  const std::uint64_t begin = announced.source;
  const std::uint64_t length = announced.length.raw();
  std::erase_if(sources_, [&](const AnnouncedSource& known) {
    if (length == 0) return known.va == begin;
    return known.va < begin + length && begin < known.va + known.mapping->bytes().size();
  });
  if (length == 0) return;
  auto mapping = cache.open(process, announced);
  if (!mapping) return;
  if (sources_.size() >= kSourcesMax) sources_.erase(sources_.begin());
  sources_.push_back({begin, std::move(mapping)});
}

std::span<const std::byte> AnnouncedSources::find(
    std::uint64_t source, std::uint64_t length, std::shared_ptr<const SourceMapping>& keep) const {
  for (const AnnouncedSource& known : sources_) {
    const std::span<const std::byte> bytes = known.mapping->bytes();
    if (source < known.va || source - known.va > bytes.size() ||
        length > bytes.size() - (source - known.va)) {
      continue;
    }
    keep = known.mapping;
    return bytes.subspan(source - known.va, length);
  }
  return {};
}

}  // namespace farlift::fabric::soft
