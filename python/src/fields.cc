#include "fields.h"

namespace farlift::python {
namespace py = pybind11;

RdmaProvider to_provider(const std::string& name) {
  if (name == "soft") return RdmaProvider::soft;
  if (name == "tcp") return RdmaProvider::tcp;
  if (name == "efa_direct") return RdmaProvider::efa_direct;
  if (name == "verbs") return RdmaProvider::verbs;
  throw py::value_error("unknown provider");
}

TlsOptions to_tls(const py::dict& fields, const std::string& prefix) {
  const auto text = [&](const char* name) {
    return field<std::string>(fields, (prefix + name).c_str());
  };
  TlsOptions out;
  out.enabled = field<bool>(fields, prefix.c_str());
  out.ca_file = text("_ca_file");
  out.certificate_file = text("_certificate_file");
  out.key_file = text("_key_file");
  out.server_name = text("_server_name");
  out.verify_peer = field<bool>(fields, (prefix + "_verify_peer").c_str());
  return out;
}

}  // namespace farlift::python
