#include "blob/module/api.h"

#include <cstring>

namespace farlift::blob::vk {
namespace {

using GetApi = int (*)(const char* name, void* target);

}  // namespace

const char* load_api(Ctx* ctx) noexcept {
  // The first member of the server's context is its lookup function; that much of the layout is
  // promised.
  GetApi get_api = nullptr;
  std::memcpy(&get_api, ctx, sizeof get_api);
#define FARLIFT_RESOLVE_API(name, result, arguments)                                       \
  if (get_api("ValkeyModule_" #name, static_cast<void*>(&name)) != kOk || name == nullptr) \
    return #name;
  FARLIFT_MODULE_API(FARLIFT_RESOLVE_API)
#undef FARLIFT_RESOLVE_API
  return nullptr;
}

}  // namespace farlift::blob::vk
