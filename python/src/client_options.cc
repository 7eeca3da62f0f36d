#include "client_options.h"

#include <chrono>
#include <string>
#include <sys/syscall.h>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "fields.h"

namespace farlift::python {
namespace py = pybind11;
namespace {

thread_local bool interrupt_announced = false;

bool is_main_thread() noexcept { return ::syscall(SYS_gettid) == ::getpid(); }

// A region stays exposed until the server answered, so the handler of a signal must wait for that
// (spec blob 10.2 rule 9). The interrupt is put back, and Python raises it when the transfer
// returns.
void announce_interrupt() {
  if (!is_main_thread() || interrupt_announced || Py_IsInitialized() == 0) return;
  const py::gil_scoped_acquire gil;
  if (PyOS_InterruptOccurred() == 0) return;
  interrupt_announced = true;
  PyErr_SetInterrupt();
  PySys_WriteStderr(
      "farlift: interrupted; a transfer is under way and its memory is exposed, so this waits for "
      "the server's reply. "
      "client.close() from another thread cuts it off.\n");
}

ReadFrom to_read_from(const std::string& name) {
  if (name == "primary") return ReadFrom::primary;
  if (name == "prefer_replica") return ReadFrom::prefer_replica;
  if (name == "az_affinity") return ReadFrom::az_affinity;
  if (name == "az_affinity_replicas_and_primary") return ReadFrom::az_affinity_replicas_and_primary;
  throw py::value_error("unknown read_from");
}

void read_rdma(const py::dict& fields, ClientOptions& out) {
  if (!fields.contains("rdma")) return;
  using Fields = std::tuple<std::string, std::string, unsigned, bool, unsigned, bool>;
  const auto [provider, interface_name, connections, verify, spin_us, host_lane] =
      field<Fields>(fields, "rdma");
  RdmaConfiguration rdma;
  rdma.provider = to_provider(provider);
  rdma.interface_name = interface_name;
  rdma.connections = connections;
  rdma.verify = verify;
  rdma.spin_us = spin_us;
  rdma.host_lane = host_lane;
  out.rdma = std::move(rdma);
}

}  // namespace

void begin_transfer_wait() noexcept { interrupt_announced = false; }

ClientOptions to_options(const py::dict& fields) {
  ClientOptions out;
  out.addresses.clear();
  for (auto& [host, port] :
       field<std::vector<std::pair<std::string, std::uint16_t>>>(fields, "addresses")) {
    out.addresses.push_back(NodeAddress{host, port});
  }
  out.unix_path = field<std::string>(fields, "unix_path");
  out.cluster = field<bool>(fields, "cluster");
  out.tls = to_tls(fields, "tls");
  out.username = field<std::string>(fields, "username");
  out.password = field<std::string>(fields, "password");
  out.database = field<std::uint32_t>(fields, "database");
  out.resp_version = field<int>(fields, "resp_version");
  out.client_name = field<std::string>(fields, "client_name");
  out.connect_timeout =
      std::chrono::milliseconds(field<std::uint32_t>(fields, "connect_timeout_ms"));
  out.request_timeout =
      std::chrono::milliseconds(field<std::uint32_t>(fields, "request_timeout_ms"));
  read_rdma(fields, out);
  out.read_from = to_read_from(field<std::string>(fields, "read_from"));
  out.compression = field<bool>(fields, "compression");
  out.lazy_connect = field<bool>(fields, "lazy_connect");
  out.read_only = field<bool>(fields, "read_only");
  out.static_discovery = field<bool>(fields, "static_discovery");
  out.asynchronous = field<bool>(fields, "asynchronous");
  out.client_pool = field<bool>(fields, "client_pool");
  out.on_wait = announce_interrupt;
  return out;
}

}  // namespace farlift::python
