#include "core/codec/bytes.h"

#include <cstring>

namespace farlift::codec {
namespace {

enum class Order { little, big };

// Byte i of the encoding carries bits [8 * i, 8 * i + 8) (little) or the mirror of that (big).
// Compilers turn both loops into one load or store.
template <class T, Order order>
constexpr unsigned shift_of(std::size_t i) noexcept {
  return static_cast<unsigned>(8 * (order == Order::little ? i : sizeof(T) - 1 - i));
}

template <class T, Order order>
Result<T> read_int(std::span<const std::byte>& rest) noexcept {
  if (rest.size() < sizeof(T)) return Error::make(Errc::out_of_range, "read integer");
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= std::to_integer<std::uint64_t>(rest[i]) << shift_of<T, order>(i);
  }
  rest = rest.subspan(sizeof(T));
  return static_cast<T>(value);
}

template <class T, Order order>
Status write_int(std::span<std::byte> all, std::size_t& used, T value) noexcept {
  if (all.size() - used < sizeof(T)) return Error::make(Errc::out_of_range, "write integer");
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    all[used + i] = static_cast<std::byte>(std::uint64_t{value} >> shift_of<T, order>(i));
  }
  used += sizeof(T);
  return {};
}

}  // namespace

Result<std::uint8_t> Reader::u8() noexcept { return read_int<std::uint8_t, Order::big>(rest_); }
Result<std::uint16_t> Reader::u16_le() noexcept {
  return read_int<std::uint16_t, Order::little>(rest_);
}
Result<std::uint32_t> Reader::u32_le() noexcept {
  return read_int<std::uint32_t, Order::little>(rest_);
}
Result<std::uint64_t> Reader::u64_le() noexcept {
  return read_int<std::uint64_t, Order::little>(rest_);
}
Result<std::uint16_t> Reader::u16_be() noexcept {
  return read_int<std::uint16_t, Order::big>(rest_);
}
Result<std::uint32_t> Reader::u32_be() noexcept {
  return read_int<std::uint32_t, Order::big>(rest_);
}
Result<std::uint64_t> Reader::u64_be() noexcept {
  return read_int<std::uint64_t, Order::big>(rest_);
}

Result<std::span<const std::byte>> Reader::take(std::size_t count) noexcept {
  if (rest_.size() < count) return Error::make(Errc::out_of_range, "read bytes");
  const std::span<const std::byte> taken = rest_.first(count);
  rest_ = rest_.subspan(count);
  return taken;
}

Status Reader::skip(std::size_t count) noexcept {
  TRY(take(count));
  return {};
}

Status Writer::u8(std::uint8_t value) noexcept {
  return write_int<std::uint8_t, Order::big>(all_, used_, value);
}
Status Writer::u16_le(std::uint16_t value) noexcept {
  return write_int<std::uint16_t, Order::little>(all_, used_, value);
}
Status Writer::u32_le(std::uint32_t value) noexcept {
  return write_int<std::uint32_t, Order::little>(all_, used_, value);
}
Status Writer::u64_le(std::uint64_t value) noexcept {
  return write_int<std::uint64_t, Order::little>(all_, used_, value);
}
Status Writer::u16_be(std::uint16_t value) noexcept {
  return write_int<std::uint16_t, Order::big>(all_, used_, value);
}
Status Writer::u32_be(std::uint32_t value) noexcept {
  return write_int<std::uint32_t, Order::big>(all_, used_, value);
}
Status Writer::u64_be(std::uint64_t value) noexcept {
  return write_int<std::uint64_t, Order::big>(all_, used_, value);
}

Status Writer::put(std::span<const std::byte> bytes) noexcept {
  if (left() < bytes.size()) return Error::make(Errc::out_of_range, "write bytes");
  if (!bytes.empty()) std::memcpy(all_.data() + used_, bytes.data(), bytes.size());
  used_ += bytes.size();
  return {};
}

Status Writer::zeros(std::size_t count) noexcept {
  if (left() < count) return Error::make(Errc::out_of_range, "write zeros");
  if (count != 0) std::memset(all_.data() + used_, 0, count);
  used_ += count;
  return {};
}

}  // namespace farlift::codec
