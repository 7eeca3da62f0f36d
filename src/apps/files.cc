#include "apps/files.h"

#include "core/base/prng.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace farlift::apps {

namespace {

tl::unexpected<Failure> failed(const char* what, const std::string& path, int error) {
  return fail(kExitFailed,
              fmt::format("cannot {} {}: {}", what, path, std::generic_category().message(error)));
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string hidden_name(const std::string& path) {
  return fmt::format("{}/.farlift-{:016x}", folder_of(path), secure_random_u64());
}

// For filesystems without nameless files: a signal that ends us removes the unfinished one.
char unfinished[PATH_MAX];  // empty: none; set before the handler is installed

void remove_unfinished(int signal_number) {
  if (unfinished[0] != '\0') unlink(unfinished);
  signal_number += 128;
  _exit(signal_number);
}

void guard_unfinished(const std::string& path) {
  path.copy(unfinished, sizeof unfinished - 1);
  struct sigaction action {};
  action.sa_handler = remove_unfinished;
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) sigaction(s, &action, nullptr);
}

int remove_entry(const char* path, const struct stat*, int, FTW*) {
  return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

}  // namespace

Outcome<std::string> read_file(const std::string& path, std::size_t limit) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return failed("read", path, errno);
  std::string text;
  while (text.size() < limit) {
    char piece[65536];
    const ssize_t got = read(file.get(), piece, std::min(sizeof piece, limit - text.size()));
    if (got < 0) return failed("read", path, errno);
    if (got == 0) break;
    text.append(piece, static_cast<std::size_t>(got));
  }
  return text;
}

Outcome<void> write_file(const std::string& path, const std::string& text) {
  const std::string hidden = hidden_name(path);
  UniqueFd file(open(hidden.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return failed("write", path, errno);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t put = write(file.get(), text.data() + done, text.size() - done);
    if (put < 0) {
      const int error = errno;
      unlink(hidden.c_str());
      return failed("write", path, error);
    }
    done += static_cast<std::size_t>(put);
  }
  if (rename(hidden.c_str(), path.c_str()) == 0) return {};
  const int error = errno;
  unlink(hidden.c_str());
  return failed("write", path, error);
}

Outcome<void> make_folder(const std::string& path) {
  struct stat found {};
  if (mkdir(path.c_str(), 0700) == 0) return {};
  if (errno == EEXIST && stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) return {};
  return failed("make the folder", path, errno);
}

Outcome<std::string> absolute_path(const std::string& path) {
  char real[PATH_MAX];
  if (realpath(path.c_str(), real) == nullptr) return failed("find", path, errno);
  return std::string(real);
}

Outcome<TempFolder> TempFolder::make() {
  const char* base = getenv("TMPDIR");
  std::string path =
      fmt::format("{}/farlift-XXXXXX", base != nullptr && base[0] != '\0' ? base : "/tmp");
  if (mkdtemp(path.data()) == nullptr) return failed("make a folder below", path, errno);
  return TempFolder(path);
}

TempFolder::~TempFolder() {
  if (!path_.empty()) nftw(path_.c_str(), remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

Outcome<MappedFile> MappedFile::source(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (!file || fstat(file.get(), &facts) != 0) return failed("read", path, errno);
  if (!S_ISREG(facts.st_mode)) return fail(kExitUsage, fmt::format("{} is no regular file", path));
  if (facts.st_size == 0) {
    return fail(kExitUsage, fmt::format("{} is empty; a large object has at least one byte", path));
  }
  const auto size = static_cast<std::size_t>(facts.st_size);
  void* at =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
  if (at == MAP_FAILED) return failed("map", path, errno);
  madvise(at, size, MADV_SEQUENTIAL);
  return MappedFile(std::span(static_cast<std::byte*>(at), size));
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

std::uint64_t MappedFile::resident_bytes() const {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes_.size() + page - 1) / page);
  if (mincore(bytes_.data(), bytes_.size(), pages.data()) != 0) return 0;
  const auto in = static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1u) != 0; }));
  return std::min(in * page, bytes_.size());
}

Outcome<NewFile> NewFile::create(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode)) {
    return fail(kExitUsage, fmt::format("{} exists and is no regular file; name a file", path));
  }
  UniqueFd nameless(open(folder_of(path).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
  if (nameless) return NewFile(std::move(nameless), path, "");
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)
    return failed("write in", folder_of(path), errno);
  std::string hidden = hidden_name(path);
  UniqueFd named(open(hidden.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!named) return failed("write in", folder_of(path), errno);
  guard_unfinished(hidden);
  return NewFile(std::move(named), path, std::move(hidden));
}

NewFile::NewFile(NewFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      path_(std::move(other.path_)),
      hidden_(std::exchange(other.hidden_, "")) {}

NewFile::~NewFile() {
  if (!hidden_.empty()) unlink(hidden_.c_str());
}

Outcome<MappedFile> NewFile::map(std::uint64_t length) {
  // Space is reserved now: a full disk met while bytes land would end the transfer, or us.
  const auto size = static_cast<off_t>(length);
  if (ftruncate(fd_.get(), 0) != 0) return failed("write", path_, errno);
  if (fallocate(fd_.get(), 0, 0, size) != 0) {
    if (errno != EOPNOTSUPP) return failed("reserve space for", path_, errno);
    if (ftruncate(fd_.get(), size) != 0) return failed("reserve space for", path_, errno);
  }
  void* at = mmap(nullptr, static_cast<std::size_t>(length), PROT_READ | PROT_WRITE, MAP_SHARED,
                  fd_.get(), 0);
  if (at == MAP_FAILED) return failed("map", path_, errno);
  return MappedFile(std::span(static_cast<std::byte*>(at), static_cast<std::size_t>(length)));
}

Outcome<void> NewFile::publish(std::uint64_t length) {
  if (ftruncate(fd_.get(), static_cast<off_t>(length)) != 0) return failed("write", path_, errno);
  if (hidden_.empty()) {
    const std::string self = fmt::format("/proc/self/fd/{}", fd_.get());
    std::string name = hidden_name(path_);
    if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return failed("name", path_, errno);
    }
    hidden_ = std::move(name);
  }
  if (rename(hidden_.c_str(), path_.c_str()) != 0) return failed("name", path_, errno);
  unfinished[0] = '\0';
  hidden_.clear();
  return {};
}

}  // namespace farlift::apps
