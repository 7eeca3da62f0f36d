// Replies: the one place where errors of the core become the words of the blob door.
//
// Invariants: an error reply stays within text::kReplyBytesMax bytes and has no line break.
// Threads:    as the context given. Errors: none.
#pragma once

#include "blob/module/api.h"
#include "blob/wire/operands.h"
#include "core/base/error.h"
#include "core/base/types.h"

#include <string>
#include <string_view>

namespace farlift::blob {

int reply_error(vk::Ctx* ctx, const char* text);
// "<text>: <detail>", cut to the limit.
int reply_error(vk::Ctx* ctx, const char* text, std::string_view detail);
int reply_refusal(vk::Ctx* ctx, const wire::Refusal& refusal);
int reply_ok(vk::Ctx* ctx);
int reply_nil(vk::Ctx* ctx);
// [length, crc]
int reply_receipt(vk::Ctx* ctx, Length length, Crc32c crc);

// What a failed reservation of storage is called.
const char* reserve_text(const Error& error) noexcept;

std::string error_line(std::string_view text, std::string_view detail);

}  // namespace farlift::blob
