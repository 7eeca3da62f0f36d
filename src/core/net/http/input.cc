#include "core/net/http/input.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace farlift::net::http {
namespace {

constexpr std::size_t kReadBytes = 8 * 1024;

int hex_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// 1 to 16 hexadecimal digits, then nothing or an extension, which is ignored.
Result<std::uint64_t> chunk_size(std::string_view line) {
  std::uint64_t size = 0;
  std::size_t digits = 0;
  while (digits < line.size() && hex_value(line[digits]) >= 0) {
    if (digits == 16) return Error::make(Errc::protocol, "size of a chunk");
    size = size << 4 | static_cast<unsigned>(hex_value(line[digits++]));
  }
  const std::size_t after = line.find_first_not_of(" \t", digits);
  if (digits == 0 || (after != std::string_view::npos && line[after] != ';'))
    return Error::make(Errc::protocol, "size of a chunk");
  return size;
}

std::string_view trim(std::string_view text) noexcept {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

void Input::drop(std::size_t count) noexcept {
  start_ += count;
  looked_ = 0;
  if (start_ == buffer_.size()) {
    start_ = 0;
    buffer_.clear();
    // An idle connection keeps no memory for the largest head it ever sent.
    if (buffer_.capacity() > 2 * kReadBytes) std::string().swap(buffer_);
  }
}

Status Input::fill_now(std::size_t bytes_max) {
  if (buffered() >= bytes_max) return Error::make(Errc::too_large, "header");
  buffer_.erase(0, std::exchange(start_, 0));
  const std::size_t had = buffer_.size();
  buffer_.resize(had + std::min(kReadBytes, bytes_max - had));
  const iovec area{buffer_.data() + had, buffer_.size() - had};
  const Result<std::size_t> got = stream_.try_read({&area, 1});
  buffer_.resize(had + got.value_or(0));
  if (!got.ok()) return got.error();
  return {};
}

Status Input::fill(std::size_t bytes_max, Deadline deadline) {
  for (;;) {
    const Status filled = fill_now(bytes_max);
    if (filled.ok() || filled.code() != Errc::again) return filled;
    TRY(stream_.wait(Interest::read, deadline));
  }
}

std::optional<std::string> Input::take_head() {
  const std::size_t end = rest().find("\r\n\r\n", looked_ > 3 ? looked_ - 3 : 0);
  if (end == std::string_view::npos) {
    looked_ = buffered();
    return std::nullopt;
  }
  std::string head(rest().substr(0, end + 4));
  drop(head.size());
  return head;
}

Result<std::string> Input::read_head(std::size_t bytes_max, Deadline deadline) {
  for (;;) {
    if (auto head = take_head()) {
      if (head->size() > bytes_max) return Error::make(Errc::protocol, "header too large");
      return *std::move(head);
    }
    if (buffered() >= bytes_max) return Error::make(Errc::protocol, "header too large");
    TRY(fill(bytes_max, deadline));
  }
}

Result<std::string> Input::read_line(std::size_t bytes_max, Deadline deadline) {
  for (;;) {
    const std::size_t end = rest().find('\n');
    if (end != std::string_view::npos && end <= bytes_max + 1) {
      if (end == 0 || rest()[end - 1] != '\r') return Error::make(Errc::protocol, "end of a line");
      std::string line(rest().substr(0, end - 1));
      drop(end + 1);
      return line;
    }
    if (buffered() > bytes_max + 1) return Error::make(Errc::protocol, "line too long");
    TRY(fill(buffered() + bytes_max + 2, deadline));
  }
}

Result<std::size_t> Input::read_some(std::span<std::byte> into, Deadline deadline) {
  if (buffered() == 0) return stream_.read_some(into, deadline);
  const std::size_t count = std::min(into.size(), buffered());
  std::memcpy(into.data(), rest().data(), count);
  drop(count);
  return count;
}

void Input::skip_empty_lines() noexcept {
  std::size_t count = 0;
  while (count < buffered() && (rest()[count] == '\r' || rest()[count] == '\n')) ++count;
  if (count > 0) drop(count);
}

Result<std::size_t> Body::read(std::span<std::byte> into) {
  ASSERT(!into.empty());
  if (failed_) return Error::make(Errc::connection_lost, "a body that failed before");
  if (ended_) return std::size_t{0};
  Status first;
  if (!std::exchange(touched_, true) && on_first_read_) first = on_first_read_();
  const Result<std::size_t> got =
      first.ok() ? read_framed(into) : Result<std::size_t>(first.error());
  failed_ = !got.ok();
  return got;
}

Result<std::size_t> Body::read_framed(std::span<std::byte> into) {
  if (framing_ == Framing::until_close) {
    const Result<std::size_t> got = input_.read_some(into, deadline());
    // An orderly end is the framing; a reset is not.
    ended_ = !got.ok() && got.code() == Errc::connection_lost && got.error().os == 0;
    return ended_ ? Result<std::size_t>(std::size_t{0}) : got;
  }
  if (framing_ == Framing::chunked && left_ == 0) {
    TRY(next_chunk());
    if (ended_) return std::size_t{0};
  }
  const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), left_));
  TRY_ASSIGN(const std::size_t got, input_.read_some(into.first(wanted), deadline()));
  left_ -= got;
  ended_ = framing_ == Framing::length && left_ == 0;
  return got;
}

Status Body::next_chunk() {
  if (std::exchange(after_first_chunk_, true)) {
    TRY_ASSIGN(const std::string after, input_.read_line(0, deadline()));
    if (!after.empty()) return Error::make(Errc::protocol, "end of a chunk");
  }
  TRY_ASSIGN(const std::string line, input_.read_line(kChunkLineMax, deadline()));
  TRY_ASSIGN(left_, chunk_size(line));
  if (left_ > 0) return {};
  TRY(read_trailers());
  ended_ = true;
  return {};
}

Status Body::read_trailers() {
  std::size_t total = 0;
  for (;;) {
    TRY_ASSIGN(const std::string line, input_.read_line(kTrailerBytesMax, deadline()));
    if (line.empty()) return {};
    total += line.size() + 2;
    const std::size_t colon = line.find(':');
    if (total > kTrailerBytesMax || colon == std::string::npos)
      return Error::make(Errc::protocol, "trailer");
    const std::string name = line.substr(0, colon);
    const std::string_view value = trim(std::string_view(line).substr(colon + 1));
    if (!valid_field(name, value)) return Error::make(Errc::protocol, "trailer");
    trailers_.add(name, std::string(value));
  }
}

Result<std::string> Body::read_all(std::size_t bytes_max) {
  if (framing_ == Framing::length && left_ > bytes_max) return Error::make(Errc::too_large, "body");
  std::string body;
  std::byte part[4096];
  for (;;) {
    TRY_ASSIGN(const std::size_t got, read(part));
    if (got == 0) return body;
    if (got > bytes_max - body.size()) return Error::make(Errc::too_large, "body");
    body.append(reinterpret_cast<const char*>(part), got);
  }
}

}  // namespace farlift::net::http
