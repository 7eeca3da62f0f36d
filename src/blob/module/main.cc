// Entry points of libfarlift_blob.so: the only symbols it exports.
#include "blob/module/api.h"
#include "blob/module/module.h"

#include <string_view>
#include <vector>

namespace vk = farlift::blob::vk;

// The server looks for these names.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

__attribute__((visibility("default"))) int ValkeyModule_OnLoad(vk::Ctx* ctx, vk::String** argv,
                                                               int argc) {
  // Arguments are read with a function of the server, so the table must be there first; load()
  // resolves it again.
  if (vk::load_api(ctx) == nullptr) {
    std::vector<std::string_view> words;
    for (int i = 0; i < argc; ++i) {
      std::size_t size = 0;
      const char* data = vk::StringPtrLen(argv[i], &size);
      words.emplace_back(data, size);
    }
    return farlift::blob::Module::load(ctx, words);
  }
  return farlift::blob::Module::load(ctx, {});
}

__attribute__((visibility("default"))) int RedisModule_OnLoad(vk::Ctx* ctx, vk::String** argv,
                                                              int argc) {
  return ValkeyModule_OnLoad(ctx, argv, argc);
}

// The server refuses to unload a module with a value type before it asks; this is for the day it
// does not.
__attribute__((visibility("default"))) int ValkeyModule_OnUnload(vk::Ctx*) { return vk::kErr; }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
