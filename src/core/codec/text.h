// Bytes and numbers as text: hexadecimal, strict decimal, base64, percent-encoding.
//
// Invariants: decoders accept exactly one spelling of a value where they say so, never guess, and
//             allocate at most the size of their input; encoders always produce what their decoder
//             accepts.
// Threads:    pure functions. Errors: invalid_argument for malformed text, out_of_range for a
//             number that does not fit.
#pragma once

#include "core/base/result.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::codec {

// Two digits a byte; lower case out, either case in (spec blob 2 rule 2). Empty text is an empty
// run of bytes.
std::string hex_encode(std::span<const std::byte> bytes);
Result<std::vector<std::byte>> hex_decode(std::string_view text);

// 1 to 20 digits and nothing else: no sign, blank or prefix. Leading zeros are allowed within the
// 20 (spec blob 2 rule 1).
inline constexpr std::size_t kDecimalDigitsMax = 20;
Result<std::uint64_t> parse_u64(std::string_view text) noexcept;
Result<std::uint32_t> parse_u32(std::string_view text) noexcept;
std::string format_u64(std::uint64_t value);

// RFC 4648. The standard form is padded, the url form is not. Decoding is canonical: wrong padding,
// blanks, or spare bits that are not zero are refused, so that two texts never decode to one value.
std::string base64_encode(std::span<const std::byte> bytes);
std::string base64url_encode(std::span<const std::byte> bytes);
Result<std::vector<std::byte>> base64_decode(std::string_view text);
Result<std::vector<std::byte>> base64url_decode(std::string_view text);

// RFC 3986: everything but letters, digits and "-._~" becomes %XX with upper-case digits; `keep`
// lists further characters left as they are ("/" in a path). Decoding takes either case and leaves
// '+' alone.
std::string percent_encode(std::string_view text, std::string_view keep = {});
Result<std::string> percent_decode(std::string_view text);

// ASCII letters only; for keywords.
bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept;

}  // namespace farlift::codec
