#include "core/memory/mapping.h"

#include "core/base/assert.h"
#include "core/base/log.h"

#include <climits>

#include <array>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace farlift::memory {
namespace {

constexpr std::uint64_t kHugePage = 2u << 20;
constexpr std::uint64_t kMappingMax = std::uint64_t{1}
                                      << 46;  // beyond what x86-64 and arm64 can map

std::uint64_t page_size() noexcept { return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)); }

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

struct Mapped {
  UniqueFd fd;
  std::span<std::byte> bytes;
};

Result<Mapped> map_memfd(const char* name, std::uint64_t length, unsigned flags) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  if (!fd) return Error::make(Errc::no_memory, "memfd_create", errno);
  if (ftruncate(fd.get(), static_cast<off_t>(length)) != 0)
    return Error::make(Errc::no_memory, "memfd size", errno);
  // Nobody who comes to hold the descriptor can pull pages from under us (a later access would be
  // SIGBUS).
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Error::make(Errc::no_memory, "memfd seal", errno);
  }
  void* at = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return Error::make(Errc::no_memory, "mmap", errno);
  return Mapped{std::move(fd), {static_cast<std::byte*>(at), length}};
}

// The system call itself: libnuma would be a dependency for one line. A node that does not exist
// costs placement, not the mapping.
void prefer_node(std::span<std::byte> bytes, int node) noexcept {
  constexpr int kNodesMax = 1024;
  constexpr int kBits = CHAR_BIT * sizeof(unsigned long);
  constexpr int kMpolPreferred = 1;
  if (node < 0) return;
  std::array<unsigned long, kNodesMax / kBits> mask{};
  long rc = -1;
  if (node < kNodesMax) {
    mask[static_cast<std::size_t>(node / kBits)] = 1ul << (node % kBits);
    rc = syscall(SYS_mbind, bytes.data(), bytes.size(), kMpolPreferred, mask.data(),
                 kNodesMax + 1ul, 0u);
  }
  if (rc != 0)
    logf(LogLevel::warning, "memory: NUMA node %d not used, error %d", node,
         node < kNodesMax ? errno : EINVAL);
}

}  // namespace

Result<Mapping> Mapping::create(Length length, const MappingOptions& options) {
  if (length.raw() == 0) return Error::make(Errc::invalid_argument, "map memory");
  if (length.raw() > kMappingMax) return Error::make(Errc::no_memory, "map memory", ENOMEM);
  Mapping mapping;
  // Mapping from the huge page pool reserves there and then, so a mapping that succeeded cannot run
  // dry later.
  if (options.huge_pages && length.raw() >= kHugePage) {
    constexpr unsigned kHuge2M = 21u << 26;  // MFD_HUGE_2MB
    auto huge = map_memfd(options.name, round_up(length.raw(), kHugePage), MFD_HUGETLB | kHuge2M);
    if (huge.ok()) {
      mapping.memfd_ = std::move(huge->fd);
      mapping.bytes_ = huge->bytes;
      mapping.huge_pages_ = true;
    }
  }
  if (!mapping.huge_pages_) {
    TRY_ASSIGN(Mapped plain, map_memfd(options.name, round_up(length.raw(), page_size()), 0));
    mapping.memfd_ = std::move(plain.fd);
    mapping.bytes_ = plain.bytes;
    // Both are wishes: transparent huge pages where the host allows them for shared memory, no
    // values in core dumps.
    if (options.huge_pages)
      (void)madvise(mapping.bytes_.data(), mapping.bytes_.size(), MADV_HUGEPAGE);
  }
  (void)madvise(mapping.bytes_.data(), mapping.bytes_.size(), MADV_DONTDUMP);
  prefer_node(mapping.bytes_, options.numa_node);
  return mapping;
}

void populate(std::span<std::byte> bytes) noexcept {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, Linux 5.14
  (void)madvise(bytes.data(), bytes.size(), kPopulateWrite);
}

Mapping::Mapping(Mapping&& other) noexcept
    : memfd_(std::move(other.memfd_)),
      bytes_(std::exchange(other.bytes_, {})),
      huge_pages_(std::exchange(other.huge_pages_, false)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(memfd_, other.memfd_);
  std::swap(bytes_, other.bytes_);
  std::swap(huge_pages_, other.huge_pages_);
  return *this;
}

Mapping::~Mapping() {
  if (!bytes_.empty()) ASSERT(munmap(bytes_.data(), bytes_.size()) == 0);
}

}  // namespace farlift::memory
