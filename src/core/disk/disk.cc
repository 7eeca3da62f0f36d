#include "core/disk/disk.h"

#include "core/disk/posix.h"
#include "core/disk/uring/uring.h"

#include <utility>

namespace farlift::disk {

Status File::write_at(std::span<const std::byte> bytes, Offset offset) {
  return write_at(std::span<const std::span<const std::byte>>(&bytes, 1), offset);
}

Status File::read_exactly_at(std::span<std::byte> into, Offset offset) {
  TRY_ASSIGN(const std::size_t got, read_at(into, offset));
  if (got != into.size()) return Error::make(Errc::corrupt, "file ends early");
  return {};
}

Result<std::unique_ptr<Directory>> open_directory(const std::string& path,
                                                  const DirectoryOptions& options) {
  TRY_ASSIGN(UniqueFd fd, open_directory_fd(path, options));
  DirectoryInfo info{"posix", {}};
  if (options.backend != Backend::posix) {
    const Status usable = uring::probe();
    if (usable.ok()) return uring::make_directory(std::move(fd));
    if (options.backend == Backend::uring) return usable.error();
    info.why = usable.error().describe();
  }
  return std::unique_ptr<Directory>(
      std::make_unique<PosixDirectory>(std::move(fd), std::move(info)));
}

}  // namespace farlift::disk
