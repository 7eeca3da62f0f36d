// farlift._kv: the one-sided client for Python. Thin: the classes that users see, their
// documentation and the checks of Python types are in farlift/kv.py.
//
// Threads: as farlift/kv.h; the GIL is given up before the client is entered, always, since a
//          progress callback takes it inside. A progress callback that calls a client gets a
//          RuntimeError: it would wait for itself.
// Ownership: memory of a request is held until its call has returned.
// Errors:  statuses are returned as numbers; ClientError becomes the exception of its kind in
//          farlift.errors; a wrong type becomes TypeError. What a progress callback raises is
//          raised when the call has returned.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "errors.h"
#include "farlift/kv.h"
#include "kv_memory.h"
#include "kv_options.h"

namespace farlift::python {
namespace py = pybind11;
namespace {

thread_local bool inside_progress = false;

// Every call of a client goes through here.
template <class F>
auto enter(F call) {
  if (inside_progress) throw std::runtime_error("a progress callback must not call a client");
  return unlocked(std::move(call));
}

// A progress callback in Python, called without the GIL from inside a batch. After it has raised
// once it is not called again.
class Progress {
 public:
  explicit Progress(py::object callback) : callback_(std::move(callback)) {}
  KvProgress function() {
    if (callback_.is_none()) return {};
    return [this](std::size_t done, std::size_t total) { locked([&] { call(done, total); }); };
  }
  void raise_what_it_raised() {
    if (error_) throw py::error_already_set(std::move(*error_));
  }

 private:
  void call(std::size_t done, std::size_t total) {
    if (error_) return;
    inside_progress = true;
    try {
      callback_(done, total);
    } catch (py::error_already_set& error) {
      error_.emplace(std::move(error));
    }
    inside_progress = false;
  }

  const py::object callback_;
  std::optional<py::error_already_set> error_;
};

py::tuple to_python(const KvResult& result) {
  return py::make_tuple(static_cast<std::uint32_t>(result.status), result.length, result.version,
                        result.text);
}

py::list to_python(const std::vector<KvResult>& results) {
  py::list out(results.size());
  for (std::size_t i = 0; i < results.size(); ++i) out[i] = to_python(results[i]);
  return out;
}

py::tuple to_python(const KvGroup& group) {
  py::list entries;
  for (const KvGroupEntry& entry : group.entries) {
    entries.append(py::make_tuple(py::bytes(entry.key), static_cast<std::uint32_t>(entry.status),
                                  entry.length));
  }
  return py::make_tuple(static_cast<std::uint32_t>(group.status), group.version, entries);
}

// Of a peer or the directory, who may send any bytes.
py::str text_of(const std::string& text) {
  PyObject* const made =
      PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), "replace");
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(made);
}

py::dict to_python(const std::vector<std::pair<std::string, std::uint64_t>>& counters) {
  py::dict out;
  for (const auto& [name, value] : counters) out[text_of(name)] = value;
  return out;
}

std::string_view view(const py::handle& word) {
  char* data = nullptr;
  py::ssize_t size = 0;
  if (PyBytes_AsStringAndSize(word.ptr(), &data, &size) != 0) throw py::error_already_set();
  return {data, static_cast<std::size_t>(size)};
}

std::vector<std::string_view> views(const std::vector<py::bytes>& words) {
  std::vector<std::string_view> out;
  out.reserve(words.size());
  for (const py::bytes& word : words) out.push_back(view(word));
  return out;
}

// A window may have been made by hand.
std::size_t size_of(const py::handle& word) {
  const py::ssize_t size = PyNumber_AsSsize_t(word.ptr(), PyExc_ValueError);
  if (size == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  if (size < 0) throw py::value_error("an offset or length is negative");
  return static_cast<std::size_t>(size);
}

// (key, target, offset, length or None, mode, extra[, push]); kv.py makes them.
struct Request {
  explicit Request(const py::handle& item, bool writable)
      : words(py::reinterpret_borrow<py::tuple>(item)),
        lent(words[1], size_of(words[2]),
             words[3].is_none() ? std::nullopt : std::optional(size_of(words[3])), writable) {}
  std::string_view key() const { return view(words[0]); }
  template <class T>
  T word(std::size_t i) const {
    return words[i].cast<T>();
  }

  py::tuple words;
  Lent lent;
};

std::vector<Request> parse(const py::list& items, bool writable) {
  std::vector<Request> out;
  out.reserve(items.size());
  for (const py::handle item : items) out.emplace_back(item, writable);
  return out;
}

class PyKvClient {
 public:
  explicit PyKvClient(const py::dict& fields)
      : process_(::getpid()), client_(take(unlocked([options = to_kv_options(fields)]() mutable {
          return KvClient::create(std::move(options));
        }))) {}
  ~PyKvClient() {
    if (Py_IsInitialized() == 0 || process_ != ::getpid()) {
      new std::optional<KvClient>(std::move(client_));  // as of KvRegistered
      return;
    }
    const Unlocked nogil;
    client_.reset();
  }
  PyKvClient(const PyKvClient&) = delete;
  PyKvClient& operator=(const PyKvClient&) = delete;

  std::unique_ptr<PyKvMemory> register_memory(const py::object& memory) {
    auto buffer = std::make_unique<BorrowedBuffer>(memory, true);
    const auto bytes = buffer->bytes();
    return registered(bytes, std::move(buffer), py::none());
  }

  std::unique_ptr<PyKvMemory> register_address(std::uintptr_t address, std::size_t size,
                                               const py::object& owner) {
    return registered({reinterpret_cast<std::byte*>(address), size}, nullptr, owner);
  }

  py::list mget(const py::list& items, const py::object& callback) {
    const auto requests = parse(items, true);
    std::vector<KvGet> gets;
    gets.reserve(requests.size());
    for (const Request& one : requests) {
      gets.push_back({one.key(), one.lent.bytes(), static_cast<KvReadMode>(one.word<int>(4)),
                      one.word<std::uint32_t>(5)});
    }
    return batch(callback,
                 [&](const KvProgress& progress) { return client_->mget(gets, progress); });
  }

  py::list mput(const py::list& items, const py::object& callback) {
    const auto requests = parse(items, false);
    std::vector<KvPut> puts;
    puts.reserve(requests.size());
    for (const Request& one : requests) {
      puts.push_back({one.key(), one.lent.bytes(), static_cast<KvPutMode>(one.word<int>(4)),
                      one.word<std::uint64_t>(5), one.word<bool>(6)});
    }
    return batch(callback,
                 [&](const KvProgress& progress) { return client_->mput(puts, progress); });
  }

  std::vector<bool> exists(const std::vector<py::bytes>& keys, const py::object& callback) {
    const auto list = views(keys);
    Progress progress(callback);
    auto found = enter([&] { return client_->exists(list, progress.function()); });
    progress.raise_what_it_raised();
    return found;
  }

  py::tuple stat(const py::bytes& key) {
    return to_python(enter([&] { return client_->stat(view(key)); }));
  }
  py::tuple remove(const py::bytes& key, std::optional<std::uint64_t> version) {
    return to_python(enter([&] { return client_->remove(view(key), version); }));
  }

  py::tuple write_group(const std::string& group, const std::vector<py::bytes>& keys,
                        std::uint64_t version) {
    const auto list = views(keys);
    return to_python(enter([&] { return client_->write_group(group, list, version); }));
  }
  py::tuple read_group(const std::string& group) {
    return to_python(enter([&] { return client_->read_group(group); }));
  }

  py::list nodes() {
    py::list out;
    for (const KvNode& node : take(enter([&] { return client_->nodes(); }))) {
      py::list providers;
      for (const std::string& one : node.providers) providers.append(text_of(one));
      out.append(py::make_tuple(node.id, node.incarnation, text_of(node.host), node.port,
                                node.draining, node.free_bytes, node.up_seconds, providers));
    }
    return out;
  }
  py::tuple node_statistics(std::uint64_t node) {
    const auto told = enter([&] { return client_->node_statistics(node); });
    return py::make_tuple(static_cast<std::uint32_t>(told.status), to_python(told.counters));
  }
  std::uint32_t rotate(std::uint64_t node, std::optional<std::uint32_t> arena) {
    return static_cast<std::uint32_t>(enter([&] { return client_->rotate(node, arena); }));
  }
  std::uint32_t drain(std::uint64_t node) {
    return static_cast<std::uint32_t>(enter([&] { return client_->drain(node); }));
  }

  void reload_keys() {
    check(enter([&] { return client_->reload_keys(); }));
  }
  py::dict statistics() {
    return to_python(enter([&] { return client_->statistics(); }));
  }
  void close() {
    enter([&] { client_->close(); });
  }
  bool closed() const { return client_->closed(); }

 private:
  template <class F>
  py::list batch(const py::object& callback, F call) {
    Progress progress(callback);
    const auto results = enter([&] { return call(progress.function()); });
    progress.raise_what_it_raised();
    return to_python(results);
  }

  std::unique_ptr<PyKvMemory> registered(std::span<std::byte> bytes,
                                         std::unique_ptr<BorrowedBuffer> buffer,
                                         const py::object& owner) {
    auto memory = take(enter([&] { return client_->register_memory(bytes); }));
    return std::make_unique<PyKvMemory>(
        std::make_shared<KvRegistered>(std::move(memory), std::move(buffer), owner));
  }

  const pid_t process_;
  std::optional<KvClient> client_;
};

py::list statuses() {
  py::list out;
  for (std::uint32_t i = 0; i <= static_cast<std::uint32_t>(KvStatus::control_down); ++i) {
    out.append(to_string(static_cast<KvStatus>(i)));
  }
  return out;
}

}  // namespace

PYBIND11_MODULE(_kv, m) {
  m.doc() = "The one-sided client; use the classes of farlift.kv instead.";

  py::class_<PyKvMemory>(m, "Memory")
      .def_property_readonly("size", &PyKvMemory::size)
      .def_property_readonly("address", &PyKvMemory::address)
      .def_property_readonly("closed", &PyKvMemory::closed)
      .def("close", &PyKvMemory::close);
  py::class_<PyKvClient>(m, "Client")
      .def(py::init<const py::dict&>(), py::arg("options"))
      .def("register", &PyKvClient::register_memory, py::arg("memory"))
      .def("register_address", &PyKvClient::register_address, py::arg("address"), py::arg("size"),
           py::arg("owner"))
      .def("mget", &PyKvClient::mget, py::arg("requests"), py::arg("progress"))
      .def("mput", &PyKvClient::mput, py::arg("requests"), py::arg("progress"))
      .def("exists", &PyKvClient::exists, py::arg("keys"), py::arg("progress"))
      .def("stat", &PyKvClient::stat, py::arg("key"))
      .def("remove", &PyKvClient::remove, py::arg("key"), py::arg("version"))
      .def("write_group", &PyKvClient::write_group, py::arg("group"), py::arg("keys"),
           py::arg("version"))
      .def("read_group", &PyKvClient::read_group, py::arg("group"))
      .def("nodes", &PyKvClient::nodes)
      .def("node_statistics", &PyKvClient::node_statistics, py::arg("node"))
      .def("rotate", &PyKvClient::rotate, py::arg("node"), py::arg("arena"))
      .def("drain", &PyKvClient::drain, py::arg("node"))
      .def("reload_keys", &PyKvClient::reload_keys)
      .def("statistics", &PyKvClient::statistics)
      .def("close", &PyKvClient::close)
      .def_property_readonly("closed", &PyKvClient::closed);

  m.def("statuses", &statuses);
}

}  // namespace farlift::python
