#include "core/base/error.h"

#include <cerrno>
#include <cstring>

namespace farlift {

std::string_view errc_name(Errc code) noexcept {
  switch (code) {
    case Errc::not_found:
      return "not found";
    case Errc::invalid_argument:
      return "invalid argument";
    case Errc::out_of_range:
      return "out of range";
    case Errc::access:
      return "access refused by the target";
    case Errc::unsupported:
      return "unsupported";
    case Errc::already_exists:
      return "already exists";
    case Errc::busy:
      return "busy";
    case Errc::too_large:
      return "too large";
    case Errc::protocol:
      return "protocol violated by the peer";
    case Errc::closed:
      return "closed";
    case Errc::permission:
      return "permission denied";
    case Errc::wrong_type:
      return "wrong type";
    case Errc::again:
      return "try again";
    case Errc::no_memory:
      return "no memory";
    case Errc::exhausted:
      return "limit reached";
    case Errc::timeout:
      return "timed out";
    case Errc::unreachable:
      return "peer unreachable";
    case Errc::connection_lost:
      return "connection lost";
    case Errc::flushed:
      return "flushed by a neighbour's fault";
    case Errc::aborted:
      return "aborted";
    case Errc::checksum:
      return "checksum mismatch";
    case Errc::corrupt:
      return "corrupt";
    case Errc::io:
      return "input/output error";
    case Errc::internal:
      return "internal error";
  }
  return "unknown error";
}

std::string Error::describe() const {
  std::string text;
  if (where != nullptr && *where != '\0') {
    text += where;
    text += ": ";
  }
  text += errc_name(code);
  if (os != 0) {
    // strerrordesc_np needs no buffer and is safe from any thread.
    const char* description = os > 0 ? ::strerrordesc_np(os) : nullptr;
    text += " (";
    text += description != nullptr ? std::string(description) : "code " + std::to_string(os);
    text += ")";
  }
  return text;
}

Error Error::from_errno(const char* where) noexcept { return from_errno(where, errno); }

Error Error::from_errno(const char* where, int saved_errno) noexcept {
  Errc code = Errc::io;
  switch (saved_errno) {
    case EAGAIN:
      code = Errc::again;
      break;
    case ENOMEM:
      code = Errc::no_memory;
      break;
    case EMFILE:
    case ENFILE:
      code = Errc::exhausted;
      break;
    case EACCES:
    case EPERM:
      code = Errc::permission;
      break;
    case ENOENT:
      code = Errc::not_found;
      break;
    case EEXIST:
      code = Errc::already_exists;
      break;
    case EINVAL:
      code = Errc::invalid_argument;
      break;
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
      code = Errc::unreachable;
      break;
    case ECONNRESET:
    case EPIPE:
      code = Errc::connection_lost;
      break;
    case ETIMEDOUT:
      code = Errc::timeout;
      break;
    default:
      break;
  }
  return Error::make(code, where, saved_errno);
}

}  // namespace farlift
