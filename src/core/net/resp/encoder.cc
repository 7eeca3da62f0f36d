#include "core/net/resp/encoder.h"

#include "core/base/assert.h"

#include <charconv>

namespace farlift::resp {

void Encoder::append_header(char type, std::size_t count) {
  char digits[24];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, count);
  ASSERT(error == std::errc());
  text_ += type;
  text_.append(digits, end);
  text_ += "\r\n";
}

void Encoder::flush_text() {
  if (text_.size() == flushed_) return;
  pieces_.push_back({nullptr, flushed_, text_.size() - flushed_});
  flushed_ = text_.size();
}

void Encoder::add(Arguments arguments) {
  ASSERT(!arguments.empty());
  const std::size_t text_before = text_.size();
  append_header('*', arguments.size());
  for (const std::string_view argument : arguments) {
    append_header('$', argument.size());
    if (argument.size() >= kByReferenceMin) {
      flush_text();
      pieces_.push_back({argument.data(), 0, argument.size()});
      bytes_ += argument.size();
    } else {
      text_ += argument;
    }
    text_ += "\r\n";
  }
  bytes_ += text_.size() - text_before;
}

void Encoder::clear() {
  text_.clear();
  flushed_ = 0;
  pieces_.clear();
  iov_.clear();
  bytes_ = 0;
}

std::span<iovec> Encoder::pieces() {
  flush_text();
  iov_.clear();
  for (const Piece& piece : pieces_) {
    const char* at = piece.external != nullptr ? piece.external : text_.data() + piece.offset;
    iov_.push_back({const_cast<char*>(at), piece.length});
  }
  return iov_;
}

std::string encode(Arguments arguments) {
  Encoder encoder;
  encoder.add(arguments);
  std::string all;
  for (const iovec& piece : encoder.pieces())
    all.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
  return all;
}

}  // namespace farlift::resp
