// ServerInfoView: fields of one section of the server's own INFO, read once.
//
// Threads: main. Errors: an absent field reads as 0.
#pragma once

#include <cstdint>

#include "blob/module/api.h"

namespace farlift::blob {

class ServerInfoView {
 public:
  explicit ServerInfoView(const char* section) : info_(vk::GetServerInfo(nullptr, section)) {}
  ~ServerInfoView() { vk::FreeServerInfo(nullptr, info_); }
  ServerInfoView(const ServerInfoView&) = delete;
  ServerInfoView& operator=(const ServerInfoView&) = delete;

  std::uint64_t number(const char* field) const {
    int error = vk::kOk;
    const unsigned long long value = vk::ServerInfoGetFieldUnsigned(info_, field, &error);
    return error == vk::kOk ? value : 0;
  }

 private:
  vk::ServerInfo* info_;
};

}  // namespace farlift::blob
