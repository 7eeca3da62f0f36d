// Encodes commands as RESP arrays of bulk strings, which both protocol versions take.
//
// Invariants: long arguments are referred to, not copied: the iovecs are good as long as the
//             arguments and the encoder live and until the next add() or clear().
// Threads:    one at a time.
// Errors:     none.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <sys/uio.h>
#include <vector>

namespace farlift::resp {

using Arguments = std::span<const std::string_view>;

class Encoder {
 public:
  // Arguments from this length on are sent from where they are.
  static constexpr std::size_t kByReferenceMin = 4096;

  void add(Arguments arguments);  // at least one
  void clear();
  std::span<iovec> pieces();  // in order; the caller may advance them in place
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Piece {
    const char* external = nullptr;  // null: from text_
    std::size_t offset = 0;          // in text_
    std::size_t length = 0;
  };
  void flush_text();
  void append_header(char type, std::size_t count);

  std::string text_;
  std::size_t flushed_ = 0;  // text_ up to here is in pieces_
  std::vector<Piece> pieces_;
  std::vector<iovec> iov_;
  std::size_t bytes_ = 0;
};

// One command as one string, everything copied.
std::string encode(Arguments arguments);

}  // namespace farlift::resp
