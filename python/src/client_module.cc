// farlift._client: the C++ client for Python. Thin: the classes that users see, their documentation
// and the checks of Python types are in farlift/client.py.
//
// Threads: as farlift/client.h; the GIL is released around every call that may block.
// Ownership: a region's buffer is held by the client until the region is closed, then given back on
// whichever thread
//            closed it (the GIL is taken for that).
// Errors: ClientError becomes the exception of its kind in farlift.errors; a wrong type becomes
// TypeError.
#include "core/digest/crc32c.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "buffer.h"
#include "client_options.h"
#include "errors.h"
#include "farlift/client.h"
#include "fields.h"

namespace farlift::python {
namespace py = pybind11;
namespace {

// --- memory ---

// What memoryview() of a region exports: the caller's buffer as bytes, kept alive by the view.
class Memory {
 public:
  explicit Memory(std::shared_ptr<BorrowedBuffer> buffer) : buffer_(std::move(buffer)) {}
  py::buffer_info info() const {
    const auto bytes = buffer_->bytes();
    return py::buffer_info(reinterpret_cast<std::uint8_t*>(bytes.data()),
                           static_cast<py::ssize_t>(bytes.size()));
  }

 private:
  std::shared_ptr<BorrowedBuffer> buffer_;
};

struct PyWindow {
  RdmaWindow window;
};

class PyRegion {
 public:
  PyRegion(RdmaRegion region, const std::shared_ptr<BorrowedBuffer>& buffer)
      : region_(std::move(region)), buffer_(buffer) {}
  ~PyRegion() {
    if (Py_IsInitialized() == 0) return;
    const Unlocked nogil;
    region_.reset();
  }
  PyRegion(const PyRegion&) = delete;
  PyRegion& operator=(const PyRegion&) = delete;

  std::size_t capacity() const { return region_->capacity(); }
  bool closed() const { return region_->closed(); }
  PyWindow window(std::size_t offset, std::optional<std::size_t> length) const {
    return PyWindow{take(region_->window(offset, length))};
  }
  Memory memory() const {
    take(region_->memory());
    auto buffer = buffer_.lock();
    if (!buffer) raise(ClientError{ErrorKind::rdma, "the region is closed"});
    return Memory(std::move(buffer));
  }
  void close() {
    check(unlocked([&] { return region_->close(); }));
  }

 private:
  std::optional<RdmaRegion> region_;
  std::weak_ptr<BorrowedBuffer> buffer_;  // owned by the client until the region is closed
};

// --- replies ---

py::object to_python(const Reply& reply);

py::list to_list(const std::vector<Reply>& replies) {
  py::list out;
  for (const Reply& reply : replies) out.append(to_python(reply));
  return out;
}

py::object to_map(const std::vector<Reply>& items) {
  py::dict out;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    py::object key = to_python(items[i]);
    if (PyObject_Hash(key.ptr()) == -1) {  // a list or a map as key: keep the pairs, in order
      PyErr_Clear();
      return to_list(items);
    }
    out[key] = to_python(items[i + 1]);
  }
  return out;
}

py::object to_python(const Reply& reply) {
  switch (reply.kind) {
    case ReplyKind::nil:
      return py::none();
    case ReplyKind::status:
      return py::str(reply.text);
    case ReplyKind::string:
      return py::bytes(reply.text);
    case ReplyKind::integer:
      return py::int_(reply.integer);
    case ReplyKind::real:
      return py::float_(reply.real);
    case ReplyKind::boolean:
      return py::bool_(reply.integer != 0);
    case ReplyKind::big_number:
      return py::int_(py::str(reply.text));
    case ReplyKind::error:
      return make_exception(ErrorKind::request, reply.text);
    case ReplyKind::array:
    case ReplyKind::set:
      return to_list(reply.items);
    case ReplyKind::map:
      return to_map(reply.items);
  }
  return py::none();
}

std::string_view view(const py::bytes& word) {
  char* data = nullptr;
  py::ssize_t size = 0;
  PyBytes_AsStringAndSize(word.ptr(), &data, &size);
  return {data, static_cast<std::size_t>(size)};
}

// --- the client ---

class PyClient {
 public:
  explicit PyClient(const py::dict& fields)
      : client_(take(unlocked([options = to_options(fields)]() mutable {
          return Client::create(std::move(options));
        }))) {}
  ~PyClient() {
    if (Py_IsInitialized() == 0) return;
    const Unlocked nogil;
    client_.reset();
  }
  PyClient(const PyClient&) = delete;
  PyClient& operator=(const PyClient&) = delete;

  std::unique_ptr<PyRegion> register_memory(const py::object& memory) {
    auto buffer = std::make_shared<BorrowedBuffer>(memory, true);
    auto region = unlocked([&] { return client_->register_rdma_region(buffer->bytes(), buffer); });
    return std::make_unique<PyRegion>(take(std::move(region)), buffer);
  }

  py::object rdma_get(const py::bytes& key, const std::vector<const PyWindow*>& windows) {
    const auto list = windows_of(windows);
    begin_transfer_wait();
    const auto receipt = take(unlocked([&] { return client_->rdma_get(view(key), list); }));
    if (!receipt) return py::none();
    return py::make_tuple(receipt->bytes_written, receipt->checksum);
  }

  void rdma_set(const py::bytes& key, const std::vector<const PyWindow*>& windows,
                std::optional<std::uint32_t> checksum) {
    const auto list = windows_of(windows);
    begin_transfer_wait();
    check(unlocked([&] { return client_->rdma_set(view(key), list, checksum); }));
  }

  py::object tcp_get(const py::bytes& key) {
    const auto value = take(unlocked([&] { return client_->tcp_get(view(key)); }));
    return value ? py::object(py::bytes(*value)) : py::none();
  }

  void tcp_set(const py::bytes& key, const py::bytes& value) {
    check(unlocked([&] { return client_->tcp_set(view(key), view(value)); }));
  }

  py::object blob_info(const py::bytes& key) {
    const auto info = take(unlocked([&] { return client_->blob_info(view(key)); }));
    if (!info) return py::none();
    return py::make_tuple(info->length, info->checksum, info->tier);
  }

  py::object command(const std::vector<py::bytes>& words) {
    std::vector<std::string_view> views;
    views.reserve(words.size());
    for (const py::bytes& word : words) views.push_back(view(word));
    return to_python(
        take(unlocked([&] { return client_->command(std::span<const std::string_view>(views)); })));
  }

  py::object pipeline(const std::vector<std::vector<py::bytes>>& commands) {
    const auto copied = copy(commands);
    return to_list(take(unlocked([&] { return client_->pipeline(copied); })));
  }

  py::object transaction(const std::vector<std::vector<py::bytes>>& commands) {
    const auto copied = copy(commands);
    const auto replies = take(unlocked([&] { return client_->transaction(copied); }));
    return replies ? py::object(to_list(*replies)) : py::none();
  }

  void close() { client_->close(); }
  bool closed() const { return client_->closed(); }

  py::dict statistics() const {
    const Client::Statistics counted = client_->statistics();
    py::dict out;
    out["handshakes"] = counted.handshakes;
    out["transfers"] = counted.transfers;
    out["verified_on_landing"] = counted.verified_on_landing;
    out["verified_afterwards"] = counted.verified_afterwards;
    out["connections_opened"] = counted.connections_opened;
    return out;
  }

 private:
  static std::vector<RdmaWindow> windows_of(const std::vector<const PyWindow*>& windows) {
    std::vector<RdmaWindow> out;
    out.reserve(windows.size());
    for (const PyWindow* window : windows) out.push_back(window->window);
    return out;
  }

  static std::vector<std::vector<std::string>> copy(
      const std::vector<std::vector<py::bytes>>& commands) {
    std::vector<std::vector<std::string>> out;
    out.reserve(commands.size());
    for (const auto& words : commands) {
      auto& line = out.emplace_back();
      for (const py::bytes& word : words) line.emplace_back(view(word));
    }
    return out;
  }

  std::optional<Client> client_;
};

// Of the buffers one after the other.
std::uint32_t checksum(const py::args& data) {
  Crc32c crc{};
  for (const auto& part : data) {
    const BorrowedBuffer buffer(part, false);
    const Unlocked nogil;
    crc = digest::crc32c_extend(crc, buffer.bytes());
  }
  return crc.raw();
}

py::tuple usability(const std::optional<std::string>& provider) {
  RdmaUsability result;
  if (!provider) {
    result = unlocked([] { return farlift::rdma_usable(); });
  } else {
    const RdmaProvider wanted = to_provider(*provider);
    result = unlocked([&] { return farlift::rdma_usable(wanted); });
  }
  return py::make_tuple(result.usable, result.version, result.reason);
}

}  // namespace

PYBIND11_MODULE(_client, m) {
  m.doc() = "The C++ client; use the classes of farlift instead.";
  using nogil = py::call_guard<Unlocked>;

  py::class_<Memory>(m, "Memory", py::buffer_protocol()).def_buffer(&Memory::info);
  py::class_<PyWindow>(m, "Window")
      .def_property_readonly("offset", [](const PyWindow& self) { return self.window.offset(); })
      .def_property_readonly("length", [](const PyWindow& self) { return self.window.length(); });
  py::class_<PyRegion>(m, "Region")
      .def_property_readonly("capacity", &PyRegion::capacity)
      .def_property_readonly("closed", &PyRegion::closed)
      .def("window", &PyRegion::window, py::arg("offset"), py::arg("length"))
      .def("memory", &PyRegion::memory)
      .def("close", &PyRegion::close);
  py::class_<PyClient>(m, "Client")
      .def(py::init<const py::dict&>(), py::arg("options"))
      .def("register", &PyClient::register_memory, py::arg("memory"))
      .def("rdma_get", &PyClient::rdma_get, py::arg("key"), py::arg("windows"))
      .def("rdma_set", &PyClient::rdma_set, py::arg("key"), py::arg("windows"), py::arg("checksum"))
      .def("tcp_get", &PyClient::tcp_get, py::arg("key"))
      .def("tcp_set", &PyClient::tcp_set, py::arg("key"), py::arg("value"))
      .def("blob_info", &PyClient::blob_info, py::arg("key"))
      .def("command", &PyClient::command, py::arg("words"))
      .def("pipeline", &PyClient::pipeline, py::arg("commands"))
      .def("transaction", &PyClient::transaction, py::arg("commands"))
      .def("close", &PyClient::close, nogil())
      .def_property_readonly("closed", &PyClient::closed)
      .def("statistics", &PyClient::statistics);

  m.def("rdma_available", [] { return farlift::rdma_available(); });
  m.def("rdma_usable", &usability, py::arg("provider"));
  m.def("rdma_checksum", &checksum);
}

}  // namespace farlift::python
