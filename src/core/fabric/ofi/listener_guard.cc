#include "core/fabric/ofi/listener_guard.h"

#include "core/base/unique_fd.h"

#include <charconv>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <memory>
#include <poll.h>
#include <sys/socket.h>

namespace farlift::fabric::ofi {
namespace {

struct DirectoryCloser {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

bool is_local(int socket, const Address& address) noexcept {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &length) != 0) return false;
  return length == address.size() && std::memcmp(&name, address.bytes().data(), length) == 0;
}

// Calls `visit(socket, listens)` for each TCP socket of this process bound to `address`. The socket
// is a duplicate, so that it stays the same one whatever other threads close meanwhile.
template <class Visit>
void for_each_socket(const Address& address, Visit visit) noexcept {
  const std::unique_ptr<DIR, DirectoryCloser> table(::opendir("/proc/self/fd"));
  if (table == nullptr) return;
  while (const dirent* const entry = ::readdir(table.get())) {
    const char* const end = entry->d_name + std::strlen(entry->d_name);
    int fd = -1;
    if (std::from_chars(entry->d_name, end, fd).ptr != end || fd < 0) continue;
    int type = 0;
    socklen_t length = sizeof type;
    if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) continue;
    if (!is_local(fd, address)) continue;
    const UniqueFd socket(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!socket || !is_local(socket.get(), address)) continue;
    int listens = 0;
    length = sizeof listens;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0) continue;
    visit(socket.get(), listens != 0);
  }
}

}  // namespace

void refuse_connections(const Address& address) noexcept {
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);  // keep no byte of any packet
  const sock_fprog program{1, &drop};
  for_each_socket(address, [&](int socket, bool listens) {
    if (!listens) return;
    (void)::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
  });
}

Accepted hang_up(const Address& address) noexcept {
  Accepted found;
  for_each_socket(address, [&](int socket, bool listens) {
    if (listens) {
      pollfd fd{socket, POLLIN, 0};
      found.backlog = ::poll(&fd, 1, 0) > 0;
    } else {
      ++found.connections;
      (void)::shutdown(socket, SHUT_RDWR);
    }
  });
  return found;
}

}  // namespace farlift::fabric::ofi
