#include "core/base/unique_fd.h"

#include "core/base/assert.h"

#include <cerrno>
#include <unistd.h>

namespace farlift {

void UniqueFd::reset() noexcept {
  if (fd_ < 0) return;
  const int fd = std::exchange(fd_, -1);
  // EINTR on Linux closes the descriptor all the same; repeating it could close a stranger's.
  if (::close(fd) != 0) ASSERT(errno != EBADF);
}

}  // namespace farlift
