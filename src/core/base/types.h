// Strong integers: every number with a meaning has a type. Construction is explicit, there is no
// implicit way back, and only the operators that make sense exist.
//
// Invariants: none of their own; range checks never add before they compare (see fits()).
// Threads:    plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace farlift {

template <class Tag, class Rep>
class StrongInt {
 public:
  using rep = Rep;
  constexpr StrongInt() noexcept = default;
  explicit constexpr StrongInt(Rep raw) noexcept : raw_(raw) {}
  constexpr Rep raw() const noexcept { return raw_; }
  friend constexpr auto operator<=>(StrongInt, StrongInt) noexcept = default;

 private:
  Rep raw_ = 0;
};

using RKey = StrongInt<struct RKeyTag, std::uint64_t>;  // remote key, 64-bit everywhere
using RemoteAddr = StrongInt<struct RemoteAddrTag,
                             std::uint64_t>;  // virtual address or offset, as the provider says
using Offset = StrongInt<struct OffsetTag, std::uint64_t>;  // bytes from the start of something
using Length = StrongInt<struct LengthTag, std::uint64_t>;  // bytes
using Crc32c = StrongInt<struct Crc32cTag, std::uint32_t>;  // finished CRC-32C value

constexpr RemoteAddr operator+(RemoteAddr a, Offset o) noexcept {
  return RemoteAddr(a.raw() + o.raw());
}
constexpr Offset operator+(Offset o, Length n) noexcept { return Offset(o.raw() + n.raw()); }
constexpr Length operator+(Length a, Length b) noexcept { return Length(a.raw() + b.raw()); }
constexpr Length operator-(Length a, Length b) noexcept { return Length(a.raw() - b.raw()); }
constexpr Length& operator+=(Length& a, Length b) noexcept { return a = a + b; }
constexpr Length& operator-=(Length& a, Length b) noexcept { return a = a - b; }

// True when [from, from + length) lies inside [0, size). Never wraps.
constexpr bool fits(Offset from, Length length, Length size) noexcept {
  return from.raw() <= size.raw() && length.raw() <= size.raw() - from.raw();
}

}  // namespace farlift

template <class Tag, class Rep>
struct std::hash<farlift::StrongInt<Tag, Rep>> {
  std::size_t operator()(farlift::StrongInt<Tag, Rep> v) const noexcept {
    return std::hash<Rep>()(v.raw());
  }
};
