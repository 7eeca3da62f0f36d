// Fuzz target: the soft link's headers. Whatever is accepted has exactly the bytes that it was made
// of, and is in bounds.
#include "core/base/assert.h"
#include "core/fabric/soft/soft_wire.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

using namespace farlift::fabric::soft;  // NOLINT(google-build-using-namespace): one screen of code

template <std::size_t N, class Decode>
static void check(std::span<const std::byte> in, Decode decode) {
  const auto value = decode(in);
  if (!value.ok()) return;
  std::array<std::byte, N> again;
  encode(*value, again);
  ASSERT(std::equal(again.begin(), again.end(), in.begin(), in.end()));
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto in = std::as_bytes(std::span(data, size));
  static_cast<void>(magic_matches(in));
  check<kHelloBytes>(in, decode_hello);
  check<kRequestBytes>(in, decode_request);
  check<kReplyBytes>(in, decode_reply);
  if (const auto request = decode_request(in); request.ok()) {
    ASSERT(request->length.raw() <=
           (request->kind == RequestKind::source ? kSourceBytesMax : kOperationBytesMax));
    ASSERT(request->source <= UINT64_MAX - request->length.raw());
  }
  if (const auto reply = decode_reply(in); reply.ok())
    ASSERT(reply->length.raw() <= kReadFrameBytesMax);
  return 0;
}
