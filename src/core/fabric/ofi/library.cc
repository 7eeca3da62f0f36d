#include "core/fabric/ofi/library.h"

#include "core/base/log.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <dlfcn.h>

namespace farlift::fabric::ofi {
namespace {

std::atomic<std::uint64_t> closes_failed{0};

void say(std::string* why, std::string text) {
  if (why != nullptr) *why = std::move(text);
}

// The registration cache must be off: with it, closing a registration revokes nothing and
// registering again gives the old key back (spec kv 3). Nobody may switch it on again. The rest
// only fills in what the user left open.
void prepare_environment() noexcept {
  ::setenv("FI_MR_CACHE_MONITOR", "disabled", 1);
  ::setenv("FI_MR_CACHE_MAX_COUNT", "0", 1);
  ::setenv("FI_EFA_MR_CACHE_ENABLE", "0", 1);
  // A library that libfabric brings along takes over SIGTERM, SIGSEGV, SIGABRT and others when it
  // is loaded, and leaves files where the process crashed. The host process has handlers of its
  // own.
  ::setenv("IPATH_NO_BACKTRACE", "1", 0);
  ::setenv("HFI_NO_BACKTRACE", "1", 0);
  // Bounds the depth of rxm's queues; Soft-RoCE refuses the default's.
  ::setenv("FI_UNIVERSE_SIZE", "64", 0);
  // rxm with receive buffers of each connection posts one to a closed queue pair when an endpoint
  // closes under traffic, and crashes (1.17, seen within three tries; never with shared ones).
  ::setenv("FI_OFI_RXM_USE_SRX", "1", 0);
}

// The versioned symbol that the headers we compile against describe; a library without versions
// serves the plain one.
template <class F>
bool resolve(void* handle, const char* name, const char* version, F*& out) noexcept {
  void* symbol = ::dlvsym(handle, name, version);
  if (symbol == nullptr) symbol = ::dlsym(handle, name);
  out = reinterpret_cast<F*>(symbol);
  return out != nullptr;
}

bool accepts(const VersionRule& rule, std::uint32_t version) noexcept {
  const std::uint32_t major = FI_MAJOR(version);
  const std::uint32_t minor = FI_MINOR(version);
  if (major < rule.major || (major == rule.major && minor < rule.minor)) return false;
  return rule.below_major == 0 || major < rule.below_major;
}

std::string describe(const VersionRule& rule) {
  std::string text = std::to_string(rule.major) + "." + std::to_string(rule.minor) + " or newer";
  if (rule.below_major != 0) text += ", below " + std::to_string(rule.below_major);
  return text;
}

}  // namespace

Result<std::shared_ptr<const Library>> Library::open(const std::string& name,
                                                     const VersionRule& rule, std::string* why) {
  prepare_environment();
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    say(why, "libfabric cannot be loaded (" + std::string(reason != nullptr ? reason : name) +
                 "); install libfabric1 for RDMA and the libfabric providers");
    return Error::make(Errc::unsupported, "load libfabric");
  }
  auto library = std::make_shared<Library>();
  decltype(&fi_version) version_of = nullptr;
  const bool complete = resolve(handle, "fi_getinfo", "FABRIC_1.3", library->getinfo) &&
                        resolve(handle, "fi_freeinfo", "FABRIC_1.3", library->freeinfo) &&
                        resolve(handle, "fi_dupinfo", "FABRIC_1.3", library->dupinfo) &&
                        resolve(handle, "fi_fabric", "FABRIC_1.1", library->fabric) &&
                        resolve(handle, "fi_strerror", "FABRIC_1.0", library->strerror) &&
                        resolve(handle, "fi_version", "FABRIC_1.0", version_of);
  if (!complete) {
    say(why, name + " is not a usable libfabric: a function is missing");
    return Error::make(Errc::unsupported, "load libfabric");
  }
  library->version = version_of();
  if (!accepts(rule, library->version)) {
    say(why, "libfabric " + library->version_text() + " is installed, but " + describe(rule) +
                 " is needed");
    return Error::make(Errc::unsupported, "libfabric version");
  }
  return std::shared_ptr<const Library>(std::move(library));
}

std::string Library::version_text() const {
  return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

LibraryStatus library_status(const VersionRule& rule, const std::string& name) {
  LibraryStatus status;
  if (auto any = Library::open(name, VersionRule{0, 0, 0}, &status.reason); any.ok()) {
    status.version = any.value()->version_text();
    status.usable = Library::open(name, rule, &status.reason).ok();
  }
  return status;
}

int close_fid(fid* object) noexcept {
  const int rc = object->ops->close(object);
  if (rc != 0) {
    closes_failed.fetch_add(1, std::memory_order_relaxed);
    logf(LogLevel::error, "fabric: closing a libfabric object of class %zu failed with %d",
         object->fclass, rc);
    DCHECK(rc == 0);
  }
  return rc;
}

std::uint64_t failed_closes() noexcept { return closes_failed.load(std::memory_order_relaxed); }

Error fabric_error(long rc, const char* where) noexcept {
  const auto code = static_cast<std::int32_t>(rc < 0 ? -rc : rc);
  switch (code) {
    case FI_EADDRINUSE:
      return Error::make(Errc::busy, where, code);
    case FI_EADDRNOTAVAIL:
      return Error::make(Errc::invalid_argument, where, code);
    case FI_ENODATA:
    case FI_ENODEV:
      return Error::make(Errc::not_found, where, code);
    case FI_ENOKEY:
      return Error::make(Errc::already_exists, where, code);
    case FI_ENOSYS:
    case FI_EOPNOTSUPP:
      return Error::make(Errc::unsupported, where, code);
    case FI_ENOTCONN:
    case FI_ECONNABORTED:
      return Error::make(Errc::connection_lost, where, code);
    default:
      return Error::from_errno(where, code);
  }
}

}  // namespace farlift::fabric::ofi
