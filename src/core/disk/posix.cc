#include "core/disk/posix.h"

#include <climits>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

namespace farlift::disk {
namespace {

Error disk_error(const char* where) noexcept {
  const int os = errno;
  switch (os) {
    case ENOENT:
      return Error::make(Errc::not_found, where, os);
    case EEXIST:
      return Error::make(Errc::already_exists, where, os);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Error::make(Errc::exhausted, where, os);
    case EROFS:
    case EACCES:
    case EPERM:
      return Error::make(Errc::permission, where, os);
    default:
      return Error::make(Errc::io, where, os);
  }
}

// A name that stays inside the directory.
bool plain(const std::string& name) noexcept {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

constexpr std::size_t kVectorsMax = 64;  // of one pwritev; more pieces take more calls
constexpr mode_t kFileMode = 0640;
constexpr mode_t kDirectoryMode = 0750;

}  // namespace

Result<std::size_t> PosixFile::read_at(std::span<std::byte> into, Offset offset) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t got = ::pread(fd_.get(), into.data() + done, into.size() - done,
                                static_cast<off_t>(offset.raw() + done));
    if (got < 0) {
      if (errno == EINTR) continue;
      return disk_error("read file");
    }
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

Status PosixFile::write_at(std::span<const std::span<const std::byte>> pieces, Offset offset) {
  std::uint64_t at = offset.raw();
  std::size_t piece = 0;
  std::size_t skip = 0;  // bytes of `piece` already written
  while (piece < pieces.size()) {
    std::array<iovec, kVectorsMax> vectors;
    std::size_t count = 0;
    for (std::size_t i = piece; i < pieces.size() && count < kVectorsMax; ++i) {
      const auto rest = pieces[i].subspan(i == piece ? skip : 0);
      if (rest.empty()) continue;
      // writev(2) takes it for a source only.
      vectors[count++] = {const_cast<std::byte*>(rest.data()), rest.size()};
    }
    if (count == 0) break;
    const ssize_t wrote =
        ::pwritev(fd_.get(), vectors.data(), static_cast<int>(count), static_cast<off_t>(at));
    if (wrote < 0) {
      if (errno == EINTR) continue;
      return disk_error("write file");
    }
    if (wrote == 0) return Error::make(Errc::io, "write file", EIO);
    at += static_cast<std::uint64_t>(wrote);
    auto left = static_cast<std::size_t>(wrote);
    while (piece < pieces.size() && left >= pieces[piece].size() - skip) {
      left -= pieces[piece].size() - skip;
      skip = 0;
      ++piece;
    }
    skip += left;
  }
  return {};
}

Status PosixFile::sync() {
  // Not repeated on EINTR: whether the first call has consumed an error is not known.
  if (::fdatasync(fd_.get()) != 0) return disk_error("sync file");
  return {};
}

Status PosixFile::resize(Length length) {
  while (::ftruncate(fd_.get(), static_cast<off_t>(length.raw())) != 0) {
    if (errno != EINTR) return disk_error("resize file");
  }
  return {};
}

Result<Length> PosixFile::size() {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) return disk_error("size of file");
  return Length(static_cast<std::uint64_t>(status.st_size));
}

Result<UniqueFd> PosixDirectory::open_fd(const std::string& name, OpenMode mode) {
  if (!plain(name)) return Error::make(Errc::invalid_argument, "file name");
  int flags = O_CLOEXEC | O_NOFOLLOW;
  switch (mode) {
    case OpenMode::read_only:
      flags |= O_RDONLY;
      break;
    case OpenMode::read_write:
      flags |= O_RDWR;
      break;
    case OpenMode::create_new:
      flags |= O_RDWR | O_CREAT | O_EXCL;
      break;
    case OpenMode::create_empty:
      flags |= O_RDWR | O_CREAT | O_TRUNC;
      break;
  }
  UniqueFd fd(::openat(fd_.get(), name.c_str(), flags, kFileMode));
  if (!fd) return disk_error("open file");
  return fd;
}

Result<std::unique_ptr<File>> PosixDirectory::open(const std::string& name, OpenMode mode) {
  TRY_ASSIGN(UniqueFd fd, open_fd(name, mode));
  return std::unique_ptr<File>(std::make_unique<PosixFile>(std::move(fd)));
}

Status PosixDirectory::rename(const std::string& from, const std::string& to) {
  if (!plain(from) || !plain(to)) return Error::make(Errc::invalid_argument, "file name");
  if (::renameat(fd_.get(), from.c_str(), fd_.get(), to.c_str()) != 0)
    return disk_error("rename file");
  return {};
}

Status PosixDirectory::remove(const std::string& name) {
  if (!plain(name)) return Error::make(Errc::invalid_argument, "file name");
  if (::unlinkat(fd_.get(), name.c_str(), 0) != 0) return disk_error("remove file");
  return {};
}

Result<std::vector<std::string>> PosixDirectory::list() {
  UniqueFd again(::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!again) return disk_error("list directory");
  DIR* stream = ::fdopendir(again.get());
  if (stream == nullptr) return disk_error("list directory");
  (void)again.release();  // the stream's now
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  const int failed = errno;
  ::closedir(stream);
  if (failed != 0) return Error::make(Errc::io, "list directory", failed);
  std::sort(names.begin(), names.end());
  return names;
}

Status PosixDirectory::sync() {
  if (::fsync(fd_.get()) != 0) return disk_error("sync directory");
  return {};
}

Result<Length> PosixDirectory::free_space() {
  struct statvfs status {};
  if (::fstatvfs(fd_.get(), &status) != 0) return disk_error("free space");
  return Length(std::uint64_t{status.f_bavail} * status.f_frsize);
}

Result<UniqueFd> open_directory_fd(const std::string& path, const DirectoryOptions& options) {
  if (options.create && ::mkdir(path.c_str(), kDirectoryMode) != 0 && errno != EEXIST)
    return disk_error("make directory");
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return disk_error("open directory");
  if (options.exclusive && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Error::make(Errc::busy, "lock directory", errno);
    return disk_error("lock directory");
  }
  return fd;
}

}  // namespace farlift::disk
