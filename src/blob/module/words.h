// Words of a command as views, the command's name dropped.
//
// Threads: main; the views live as long as the arguments. Errors: none.
#pragma once

#include "blob/module/api.h"

#include <string_view>
#include <vector>

namespace farlift::blob {

inline std::string_view view(const vk::String* string) {
  std::size_t size = 0;
  const char* data = vk::StringPtrLen(string, &size);
  return {data, size};
}

inline std::vector<std::string_view> operand_words(vk::String** argv, int argc) {
  std::vector<std::string_view> out;
  out.reserve(static_cast<std::size_t>(argc));
  for (int i = 1; i < argc; ++i) out.push_back(view(argv[i]));
  return out;
}

}  // namespace farlift::blob
