// The value type largeob-k as the server sees it: saving, loading, rewriting, copying, freeing,
// measuring and digesting a Value.
//
// Invariants: loading keeps nothing unless every byte arrived and the CRC-32C is the stored one;
//             saving hands the server at most wire::kRdbPieceBytes at once and takes no lock, so
//             that it works in a forked child.
// Threads:    main, except free, which the server may call from its lazy-free threads, and save and
//             rewrite, which also run in a forked child.
// Errors:     load: null, which fails the load or the RESTORE; copy: null, which fails the COPY.
#pragma once

#include "blob/module/api.h"

namespace farlift::blob {

vk::Type* register_value_type(vk::Ctx* ctx);

}  // namespace farlift::blob
