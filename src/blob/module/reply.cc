#include "blob/module/reply.h"

#include "blob/wire/texts.h"

#include <algorithm>

namespace farlift::blob {

int reply_error(vk::Ctx* ctx, const char* text) { return vk::ReplyWithError(ctx, text); }

int reply_error(vk::Ctx* ctx, const char* text, std::string_view detail) {
  return vk::ReplyWithError(ctx, error_line(text, detail).c_str());
}

int reply_refusal(vk::Ctx* ctx, const wire::Refusal& refusal) {
  return refusal.arity() ? vk::WrongArity(ctx) : vk::ReplyWithError(ctx, refusal.text);
}

int reply_ok(vk::Ctx* ctx) { return vk::ReplyWithSimpleString(ctx, "OK"); }

int reply_nil(vk::Ctx* ctx) { return vk::ReplyWithNull(ctx); }

int reply_receipt(vk::Ctx* ctx, Length length, Crc32c crc) {
  vk::ReplyWithArray(ctx, 2);
  vk::ReplyWithLongLong(ctx, static_cast<long long>(length.raw()));
  return vk::ReplyWithLongLong(ctx, static_cast<long long>(crc.raw()));
}

const char* reserve_text(const Error& error) noexcept {
  return error.code == Errc::too_large ? wire::text::kTooLarge : wire::text::kOutOfMemory;
}

std::string error_line(std::string_view text, std::string_view detail) {
  std::string line(text);
  if (!detail.empty()) {
    line += ": ";
    line += detail;
  }
  if (line.size() > wire::text::kReplyBytesMax) line.resize(wire::text::kReplyBytesMax);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\r' || c == '\n' || c == '\0'; }, ' ');
  return line;
}

}  // namespace farlift::blob
