// ServerInfoView: fields of one section of the server's own INFO, read once.
//
// Threads: main. Errors: an absent field reads as 0.
#pragma once

#include "blob/module/api.h"

#include <cstdint>
#include <string_view>

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
  // The view lives as long as this object; empty when absent.
  std::string_view text(const char* field) const {
    const char* value = vk::ServerInfoGetFieldC(info_, field);
    return value == nullptr ? std::string_view() : std::string_view(value);
  }

 private:
  vk::ServerInfo* info_;
};

}  // namespace farlift::blob
