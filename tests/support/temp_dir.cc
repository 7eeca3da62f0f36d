#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "tests/support/valkey_server.h"

namespace farlift::testing {

TempDir::TempDir() {
  const char* base = std::getenv("TMPDIR");
  // Unix socket paths are short by nature; a long TMPDIR would not leave room for them.
  std::string name =
      base != nullptr && *base != '\0' && std::string(base).size() < 60 ? base : "/tmp";
  name += "/farlift-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    std::perror("mkdtemp");
    std::abort();
  }
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;  // a leftover directory is no reason to fail a test
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace farlift::testing
