#include "kvcache/wire/types.h"

namespace farlift::kv {

std::string_view outcome_name(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::ok:
      return "OK";
    case Outcome::miss:
      return "MISS";
    case Outcome::stale:
      return "STALE";
    case Outcome::reject_nosig:
      return "REJECT_NOSIG";
    case Outcome::reject_sig:
      return "REJECT_SIG";
    case Outcome::reject_format:
      return "REJECT_FORMAT";
    case Outcome::bad_magic:
      return "BAD_MAGIC";
    case Outcome::bad_key:
      return "BAD_KEY";
    case Outcome::bad_version:
      return "BAD_VERSION";
    case Outcome::bad_length:
      return "BAD_LENGTH";
    case Outcome::bad_crc:
      return "BAD_CRC";
    case Outcome::access:
      return "ACCESS";
    case Outcome::unreachable:
      return "UNREACHABLE";
    case Outcome::timeout:
      return "TIMEOUT";
    case Outcome::too_small:
      return "TOO_SMALL";
    case Outcome::too_large:
      return "TOO_LARGE";
    case Outcome::full:
      return "FULL";
    case Outcome::exists:
      return "EXISTS";
    case Outcome::conflict:
      return "CONFLICT";
    case Outcome::bad_arg:
      return "BAD_ARG";
    case Outcome::control_down:
      return "CONTROL_DOWN";
  }
  return "?";
}

}  // namespace farlift::kv
