#include "kv_options.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "fields.h"

namespace farlift::python {
namespace py = pybind11;
namespace {

KvOptions::Control to_control(const std::string& name) {
  if (name == "standalone") return KvOptions::Control::standalone;
  if (name == "cluster") return KvOptions::Control::cluster;
  if (name == "sentinel") return KvOptions::Control::sentinel;
  throw py::value_error("unknown control");
}

std::chrono::milliseconds milliseconds(const py::dict& fields, const char* name) {
  return std::chrono::milliseconds(field<std::uint32_t>(fields, name));
}

}  // namespace

KvOptions to_kv_options(const py::dict& fields) {
  KvOptions out;
  out.control = to_control(field<std::string>(fields, "control"));
  out.valkey.clear();
  for (auto& [host, port] :
       field<std::vector<std::pair<std::string, std::uint16_t>>>(fields, "valkey")) {
    out.valkey.push_back(NodeAddress{host, port});
  }
  out.sentinel_primary = field<std::string>(fields, "sentinel_primary");
  out.username = field<std::string>(fields, "username");
  out.password = field<std::string>(fields, "password");
  out.database = field<std::uint32_t>(fields, "database");
  out.tls = to_tls(fields, "tls");
  out.node_tls = to_tls(fields, "node_tls");
  out.tenant = field<std::string>(fields, "tenant");
  out.key_file = field<std::string>(fields, "key_file");
  out.development = field<bool>(fields, "development");
  out.provider = to_provider(field<std::string>(fields, "provider"));
  out.interfaces = field<std::vector<std::string>>(fields, "interfaces");
  out.host_lane = field<bool>(fields, "host_lane");
  out.spin_us = field<unsigned>(fields, "spin_us");
  out.lease = milliseconds(fields, "lease_ms");
  out.operation_limit = milliseconds(fields, "operation_limit_ms");
  out.control_timeout = milliseconds(fields, "control_timeout_ms");
  out.reader_lease = milliseconds(fields, "reader_lease_ms");
  out.cache_entries_max = field<std::size_t>(fields, "cache_entries_max");
  out.in_flight_max = field<unsigned>(fields, "in_flight_max");
  out.hash_threads = field<unsigned>(fields, "hash_threads");
  out.register_on_demand = field<bool>(fields, "register_on_demand");
  return out;
}

}  // namespace farlift::python
