#include "apps/doctor.h"

#include "apps/console.h"

#include <fmt/format.h>

namespace farlift::apps {

namespace {

const char* word(Verdict verdict) {
  switch (verdict) {
    case Verdict::good:
      return "ok";
    case Verdict::limited:
      return "limited";
    case Verdict::missing:
      break;
  }
  return "missing";
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
  std::vector<Finding> findings = examine_machine();
  for (Finding& finding : examine_fabric()) findings.push_back(std::move(finding));
  bool healthy = true;
  std::vector<std::string> items;
  std::string text;
  for (const Finding& finding : findings) {
    healthy = healthy && finding.verdict != Verdict::missing;
    text += fmt::format("  {:<15} {:<8} {}\n", finding.name, word(finding.verdict), finding.value);
    if (!finding.advice.empty()) text += fmt::format("{:<27}-> {}\n", "", finding.advice);
    items.push_back(JsonObject()
                        .text("name", finding.name)
                        .text("state", word(finding.verdict))
                        .text("value", finding.value)
                        .text("advice", finding.advice)
                        .str());
  }
  if (options.json) {
    print(json_list(items, true) + "\n");
  } else {
    print(text);
    print(healthy ? "\n  Everything that Farlift needs is here.\n"
                  : "\n  Something that Farlift needs is missing; see the line marked so.\n");
  }
  return healthy ? kExitOk : kExitFailed;
}

}  // namespace farlift::apps
