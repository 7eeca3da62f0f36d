// INFO largeobj: sections and fields of spec blob 9.
//
// Threads: main. Errors: none; in a crash report only what needs no lock is shown.
#pragma once

#include "blob/module/api.h"

namespace farlift::blob {

void write_info(vk::InfoCtx* info, int for_crash_report) noexcept;

}  // namespace farlift::blob
