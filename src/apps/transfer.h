// `farlift get` and `farlift put`: files straight into and out of a large object.
//
// Errors: as exit statuses; a failed get leaves no file.
#pragma once

#include "apps/connect.h"

#include <string>

namespace farlift::apps {

struct TransferOptions {
  ConnectOptions connect;
  std::string key;
  std::string file;
  bool json = false;
  bool quiet = false;
};

int run_put(const TransferOptions& options);
int run_get(const TransferOptions& options);

}  // namespace farlift::apps
