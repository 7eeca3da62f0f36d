#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/support/valkey_server.h"

namespace farlift::testing {
namespace {

bool shell(const std::string& directory, const std::string& command, std::string* reason) {
  const std::string log = directory + "/openssl.log";
  if (std::system(("cd '" + directory + "' && (" + command + ") > '" + log + "' 2>&1").c_str()) ==
      0)
    return true;
  if (reason != nullptr) {
    std::ostringstream text;
    text << std::ifstream(log).rdbuf();
    *reason = "openssl failed: " + text.str();
  }
  return false;
}

std::string make_ca(const std::string& name) {
  return "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 7 -subj "
         "'/CN=" +
         name + "' -keyout " + name + ".key -out " + name + ".crt";
}

std::string make_leaf(const std::string& name, const std::string& extensions) {
  return "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj '/CN=" + name +
         "' -keyout " + name + ".key -out " + name + ".csr && printf '" + extensions + "' > " +
         name + ".ext && openssl x509 -req -in " + name +
         ".csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 7 -extfile " + name + ".ext -out " +
         name + ".crt";
}

}  // namespace

bool TlsFiles::make(const std::string& directory, TlsFiles& files, std::string* reason) {
  if (!shell(directory, make_ca("ca"), reason) || !shell(directory, make_ca("other"), reason) ||
      !shell(directory, make_leaf("server", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1\\n"),
             reason) ||
      !shell(directory, make_leaf("client", "extendedKeyUsage=clientAuth\\n"), reason)) {
    return false;
  }
  files = {directory + "/ca.crt",     directory + "/server.crt", directory + "/server.key",
           directory + "/client.crt", directory + "/client.key", directory + "/other.crt"};
  return true;
}

}  // namespace farlift::testing
