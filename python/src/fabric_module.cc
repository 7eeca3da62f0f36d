// farlift._fabric: the fabric interface for tests and experiments, one Python class per interface
// of core/fabric/fabric.h. It adds no policy: who uses it plays a raw peer, hostile ones included.
//
// Threads: as fabric.h; the GIL is released around every call that may block.
// Ownership: a registration holds its buffer, and everything made from a domain holds the domain.
#include "core/base/clock.h"
#include "core/digest/crc32c.h"
#include "core/fabric/fabric.h"
#include "core/fabric/ofi/ofi.h"
#include "core/fabric/soft/soft.h"

#include <pybind11/pybind11.h>

#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "buffer.h"

namespace farlift::python {
namespace py = pybind11;
namespace {

// Carries a fabric Error to the translator below.
struct FabricException {
  Error error;
};

void check(const Status& status) {
  if (!status.ok()) throw FabricException{status.error()};
}

template <class T>
T take(Result<T> result) {
  if (!result.ok()) throw FabricException{result.error()};
  return std::move(result).value();
}

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

fabric::Address to_address(const py::bytes& raw) {
  const std::string_view text = raw;
  return take(fabric::Address::from_bytes(std::as_bytes(std::span(text.data(), text.size()))));
}

py::bytes to_bytes(const fabric::Address& address) {
  return py::bytes(reinterpret_cast<const char*>(address.bytes().data()), address.size());
}

fabric::Access to_access(const std::string& text) {
  if (text == "") return fabric::Access::local;
  if (text == "r") return fabric::Access::remote_read;
  if (text == "w") return fabric::Access::remote_write;
  if (text == "rw") return fabric::Access::remote_read_write;
  throw py::value_error("access must be '', 'r', 'w' or 'rw'");
}

struct DomainHandle {
  std::unique_ptr<fabric::Domain> domain;
};
using DomainPtr = std::shared_ptr<DomainHandle>;

class PyRegistration {
 public:
  PyRegistration(DomainPtr domain, const py::object& memory, const std::string& access)
      : domain_(std::move(domain)), buffer_(std::make_unique<BorrowedBuffer>(memory, false)) {
    const fabric::Access right = to_access(access);
    const py::gil_scoped_release nogil;
    fabric::MemoryRef ref;
    ref.bytes = buffer_->bytes();
    registration_ = take(domain_->domain->register_memory(ref, right));
  }
  ~PyRegistration() {
    const py::gil_scoped_release nogil;
    registration_.reset();
  }
  PyRegistration(const PyRegistration&) = delete;
  PyRegistration& operator=(const PyRegistration&) = delete;

  std::uint64_t key() const { return registration_->key().raw(); }
  std::uint64_t addr() const { return registration_->addr().raw(); }
  std::uint64_t length() const { return registration_->length().raw(); }
  void close() { check(registration_->close()); }
  void watch(bool on) { registration_->watch(on); }
  py::object landed() {
    const auto runs = registration_->landed();
    if (!runs) return py::none();
    py::list out;
    for (const fabric::LandedRun& run : *runs) {
      out.append(py::make_tuple(run.offset.raw(), run.length.raw(), run.crc.raw()));
    }
    return out;
  }

 private:
  DomainPtr domain_;
  std::unique_ptr<BorrowedBuffer> buffer_;
  std::unique_ptr<fabric::Registration> registration_;
};

class PyTarget {
 public:
  PyTarget(DomainPtr domain, const fabric::TargetOptions& options) : domain_(std::move(domain)) {
    const py::gil_scoped_release nogil;
    target_ = take(domain_->domain->open_target(options));
  }
  ~PyTarget() {
    const py::gil_scoped_release nogil;
    target_.reset();
  }
  PyTarget(const PyTarget&) = delete;
  PyTarget& operator=(const PyTarget&) = delete;

  py::bytes address() const { return to_bytes(target_->address()); }
  bool progress(int timeout_ms, int fd) { return take(target_->progress(timeout_ms, fd)); }
  void add_peer(const py::bytes& peer) { check(target_->add_peer(to_address(peer))); }
  void close() { check(target_->close()); }

 private:
  DomainPtr domain_;
  std::unique_ptr<fabric::TargetEndpoint> target_;
};

// Operations in flight hold their buffers here until their completion was polled.
class PyInitiator {
 public:
  PyInitiator(DomainPtr domain, const fabric::InitiatorOptions& options)
      : domain_(std::move(domain)) {
    const py::gil_scoped_release nogil;
    initiator_ = take(domain_->domain->open_initiator(options));
  }
  ~PyInitiator() {
    const py::gil_scoped_release nogil;
    initiator_.reset();
  }
  PyInitiator(const PyInitiator&) = delete;
  PyInitiator& operator=(const PyInitiator&) = delete;

  py::bytes address() const { return to_bytes(initiator_->address()); }
  std::uint32_t add_peer(const py::bytes& peer) {
    return take(initiator_->add_peer(to_address(peer))).raw();
  }
  void remove_peer(std::uint32_t peer) { initiator_->remove_peer(fabric::PeerId(peer)); }
  void abort(std::uint32_t peer) { initiator_->abort(fabric::PeerId(peer)); }
  void wait(int timeout_ms) { initiator_->wait(timeout_ms); }
  void wake() { initiator_->wake(); }
  std::size_t in_flight() const { return initiator_->in_flight(); }
  void close() { initiator_->close(); }

  std::uint64_t post(const std::string& kind, std::uint32_t peer, std::uint64_t key,
                     std::uint64_t addr, const py::object& memory) {
    if (kind != "read" && kind != "write") throw py::value_error("kind must be 'read' or 'write'");
    auto lent = std::make_unique<BorrowedBuffer>(memory, kind == "read");
    fabric::Operation operation;
    operation.kind = kind == "read" ? fabric::OpKind::read : fabric::OpKind::write;
    operation.peer = fabric::PeerId(peer);
    operation.key = RKey(key);
    operation.addr = RemoteAddr(addr);
    operation.local = lent->bytes();
    operation.context = next_;
    check(initiator_->post(operation));
    lent_.emplace_back(next_, std::move(lent));
    return next_++;
  }

  // [(context, None)] for success, [(context, (code, quiet, text))] for a failure.
  py::list poll() {
    std::array<fabric::Completion, 64> done;
    const std::size_t count = initiator_->poll(done);
    py::list out;
    for (std::size_t i = 0; i < count; ++i) {
      const fabric::Completion& completion = done[i];
      if (completion.status.ok()) {
        out.append(py::make_tuple(completion.context, py::none()));
      } else {
        const Error& error = completion.status.error();
        out.append(py::make_tuple(
            completion.context,
            py::make_tuple(std::string(errc_name(error.code)), error.quiet, error.describe())));
      }
      std::erase_if(lent_, [&](const auto& entry) { return entry.first == completion.context; });
    }
    return out;
  }

 private:
  DomainPtr domain_;
  std::vector<std::pair<std::uint64_t, std::unique_ptr<BorrowedBuffer>>> lent_;
  std::uint64_t next_ = 1;
  std::unique_ptr<fabric::Initiator> initiator_;  // last: closes before the buffers go
};

py::dict describe(const fabric::DomainInfo& info) {
  py::dict out;
  out["provider"] = info.provider;
  out["version"] = info.version;
  out["interface"] = info.interface_name;
  out["fence_mode"] = std::string(fabric::to_string(info.fence_mode));
  out["virtual_addressing"] = info.virtual_addressing;
  out["reports_landed_crc"] = info.reports_landed_crc;
  out["in_flight_max"] = info.in_flight_max;
  return out;
}

DomainPtr open_soft(const std::string& listen_ip, bool virtual_addressing, bool host_lane) {
  fabric::soft::SoftOptions options;
  options.listen_ip = listen_ip;
  options.virtual_addressing = virtual_addressing;
  options.host_lane = host_lane;
  auto handle = std::make_shared<DomainHandle>();
  handle->domain = take(fabric::soft::open_domain(options, system_clock()));
  return handle;
}

// libfabric's tcp wire, whatever version is installed.
DomainPtr open_ofi(const std::string& interface_name) {
  fabric::ofi::OfiOptions options;
  options.provider = fabric::ofi::Provider::tcp;
  options.interface_name = interface_name;
  options.version = fabric::ofi::kVersionAny;
  auto handle = std::make_shared<DomainHandle>();
  std::string why;
  auto domain = fabric::ofi::open_domain(options, system_clock(), &why);
  if (!domain.ok() && !why.empty()) throw std::runtime_error(why);
  handle->domain = take(std::move(domain));
  return handle;
}

std::uint32_t crc32c(const py::object& memory) {
  const BorrowedBuffer buffer(memory, false);
  const py::gil_scoped_release nogil;
  return digest::crc32c(buffer.bytes()).raw();
}

std::unique_ptr<PyTarget> open_target(const DomainPtr& domain, const std::string& listen_ip,
                                      std::uint16_t port, bool own_thread) {
  fabric::TargetOptions options;
  options.listen_ip = listen_ip;
  options.port = port;
  options.own_thread = own_thread;
  return std::make_unique<PyTarget>(domain, options);
}

std::unique_ptr<PyInitiator> open_initiator(const DomainPtr& domain,
                                            std::uint32_t connect_deadline_ms,
                                            std::uint32_t in_flight_max) {
  fabric::InitiatorOptions options;
  options.connect_deadline = std::chrono::milliseconds(connect_deadline_ms);
  options.in_flight_max = in_flight_max;
  return std::make_unique<PyInitiator>(domain, options);
}

void bind_errors(py::module_& m) {
  static PyObject* type = PyErr_NewException("farlift._fabric.FabricError", PyExc_OSError, nullptr);
  m.add_object("FabricError", py::reinterpret_borrow<py::object>(type));
  py::register_exception_translator([](std::exception_ptr raised) {
    try {
      if (raised) std::rethrow_exception(raised);
    } catch (const FabricException& fault) {
      py::object error = py::reinterpret_borrow<py::object>(type)(fault.error.describe());
      error.attr("code") = std::string(errc_name(fault.error.code));
      error.attr("quiet") = fault.error.quiet;
      PyErr_SetObject(type, error.ptr());
    }
  });
}

}  // namespace

PYBIND11_MODULE(_fabric, m) {
  m.doc() =
      "The fabric of Farlift for tests: domains, registrations, endpoints and one-sided "
      "operations.";
  bind_errors(m);
  using nogil = py::call_guard<py::gil_scoped_release>;

  py::class_<DomainHandle, DomainPtr>(m, "Domain")
      .def_property_readonly("info",
                             [](const DomainPtr& self) { return describe(self->domain->info()); })
      .def(
          "register",
          [](const DomainPtr& self, const py::object& memory, const std::string& access) {
            return std::make_unique<PyRegistration>(self, memory, access);
          },
          py::arg("memory"), py::arg("access") = "rw")
      .def("open_target", &open_target, py::arg("listen_ip") = "", py::arg("port") = 0,
           py::arg("own_thread") = true)
      .def("open_initiator", &open_initiator, py::arg("connect_deadline_ms") = 2000,
           py::arg("in_flight_max") = 0);

  py::class_<PyRegistration>(m, "Registration")
      .def_property_readonly("key", &PyRegistration::key)
      .def_property_readonly("addr", &PyRegistration::addr)
      .def_property_readonly("length", &PyRegistration::length)
      .def("watch", &PyRegistration::watch, py::arg("on"))
      .def("landed", &PyRegistration::landed)
      .def("close", &PyRegistration::close, nogil());

  py::class_<PyTarget>(m, "Target")
      .def_property_readonly("address", &PyTarget::address)
      .def("progress", &PyTarget::progress, py::arg("timeout_ms"), py::arg("fd") = -1, nogil())
      .def("add_peer", &PyTarget::add_peer, py::arg("peer"))
      .def("close", &PyTarget::close, nogil());

  py::class_<PyInitiator>(m, "Initiator")
      .def_property_readonly("address", &PyInitiator::address)
      .def("add_peer", &PyInitiator::add_peer, py::arg("peer"))
      .def("remove_peer", &PyInitiator::remove_peer, py::arg("peer"))
      .def("post", &PyInitiator::post, py::arg("kind"), py::arg("peer"), py::arg("key"),
           py::arg("addr"), py::arg("memory"))
      .def("abort", &PyInitiator::abort, py::arg("peer"))
      .def("poll", &PyInitiator::poll)
      .def("wait", &PyInitiator::wait, py::arg("timeout_ms") = -1, nogil())
      .def("wake", &PyInitiator::wake)
      .def_property_readonly("in_flight", &PyInitiator::in_flight)
      .def("close", &PyInitiator::close, nogil());

  m.def("open_soft", &open_soft, py::arg("listen_ip") = "127.0.0.1",
        py::arg("virtual_addressing") = false, py::arg("host_lane") = true);
  m.def("open_ofi", &open_ofi, py::arg("interface") = "lo");
  m.def("crc32c", &crc32c, py::arg("memory"));
}

}  // namespace farlift::python
