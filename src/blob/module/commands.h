// The six commands of the blob door: registration with flags, key specifications and ACL categories
// (spec blob 3.7), and their bodies up to the point where bytes move.
//
// Threads: main. Errors: register_commands() answers with what the server refused; the commands
//          reply with the texts of
// spec blob 4, checked in the order of spec blob 2 rule 7.
#pragma once

#include "blob/module/api.h"

namespace farlift::blob {

// nullptr on success, else the name of the command (or category) that the server refused.
const char* register_commands(vk::Ctx* ctx);

int rdma_hello(vk::Ctx* ctx, vk::String** argv, int argc) noexcept;
int rdma_get(vk::Ctx* ctx, vk::String** argv, int argc) noexcept;
int rdma_set(vk::Ctx* ctx, vk::String** argv, int argc) noexcept;
int tcp_get(vk::Ctx* ctx, vk::String** argv, int argc) noexcept;
int tcp_set(vk::Ctx* ctx, vk::String** argv, int argc) noexcept;
int blob_info(vk::Ctx* ctx, vk::String** argv, int argc) noexcept;

}  // namespace farlift::blob
