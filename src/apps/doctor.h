// `farlift doctor`: what this machine can do, line by line, and what to do where it cannot.
//
// Errors: exit status 1 when something that Farlift needs is missing; warnings do not count.
#pragma once

#include <string>
#include <vector>

namespace farlift::apps {

enum class Verdict { good, limited, missing };

struct Finding {
  std::string name;
  Verdict verdict = Verdict::good;
  std::string value;   // what was found
  std::string advice;  // empty when there is nothing to do
};

std::vector<Finding> examine_fabric();   // soft, host lane, libfabric and its providers, cards
std::vector<Finding> examine_machine();  // memory limits, huge pages, processor, Valkey, module

struct DoctorOptions {
  bool json = false;
};
int run_doctor(const DoctorOptions& options);

}  // namespace farlift::apps
