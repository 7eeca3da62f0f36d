// Lane: the two ends of a real fabric on one machine, for tests of the kvcache door: libfabric's
// tcp on loopback, verbs between the two cards of a Soft-RoCE VM (tools/roce_tests.sh), soft.
//
// Threads: any. Errors: of opening a domain; absent() says in words why a lane is not here.
#pragma once

#include "core/base/clock.h"
#include "core/fabric/fabric.h"
#include "kvcache/control/environment.h"

#include <functional>
#include <memory>
#include <string>

namespace farlift::kv::lane {

struct Lane {
  std::string provider;  // as HELLO calls it
  std::function<Result<std::unique_ptr<fabric::Domain>>()> node;
  std::function<Result<std::unique_ptr<fabric::Domain>>()> client;
  std::string missing{};  // why it cannot be used on this machine; empty: it can
};

const Clock& clock();  // the lanes' and their users'
Lane soft();
Lane tcp();
Lane verbs();
bool in_soft_roce_vm();  // there verbs must work

}  // namespace farlift::kv::lane
