// Fuzz target: frames of the kvcache's control protocol as a link takes them, and the body of each
// type. A frame that is accepted is the one that its bytes are the encoding of; a body too.
#include "core/base/assert.h"
#include "kvcache/wire/frames.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

using namespace farlift::kv;  // NOLINT(google-build-using-namespace): one screen of code

template <class Decode>
static void check_body(ByteView body, Decode decode) {
  const auto value = decode(body);
  if (!value.ok()) return;
  const Bytes again = encode(*value);
  ASSERT(std::ranges::equal(again, body));
}

static void check_bodies(ByteView body) {
  check_body(body, decode_hello);
  check_body(body, decode_hello_reply);
  check_body(body, decode_hello2);
  check_body(body, decode_outcome);
  check_body(body, decode_put_pull);
  check_body(body, decode_put_reply);
  check_body(body, decode_alloc);
  check_body(body, decode_alloc_reply);
  check_body(body, decode_seal);
  check_body(body, decode_abort);
  check_body(body, decode_remove);
  check_body(body, decode_superseded);
  check_body(body, decode_stale_seen);
  check_body(body, decode_touch);
  check_body(body, decode_stat_reply);
  check_body(body, decode_rotate);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ByteView rest = std::as_bytes(std::span(data, size));
  // Without a frame around it as well: the checksum would keep the fuzzer out.
  check_bodies(rest);
  for (;;) {
    std::size_t consumed = 0;
    const auto frame = decode_frame(rest, consumed);
    if (!frame.ok() || !frame->has_value()) break;
    ASSERT(consumed >= kFrameHeaderBytes && consumed <= rest.size());
    ASSERT(std::ranges::equal(encode_frame(**frame), rest.first(consumed)));
    check_bodies((*frame)->body);
    rest = rest.subspan(consumed);
  }
  return 0;
}
