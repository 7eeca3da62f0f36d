#include "kv_memory.h"

#include <unistd.h>
#include <utility>

#include "errors.h"

namespace farlift::python {
namespace py = pybind11;

KvRegistered::KvRegistered(KvMemory memory, std::unique_ptr<BorrowedBuffer> buffer,
                           py::object owner)
    : process_(::getpid()),
      bytes_(memory.bytes()),
      memory_(std::move(memory)),
      buffer_(std::move(buffer)),
      owner_(std::move(owner)) {}

KvRegistered::~KvRegistered() {
  if (Py_IsInitialized() == 0 || process_ != ::getpid()) {
    // The interpreter is gone, or this is a forked child, where the client's threads and locks are
    // those of the parent: nothing can be given back.
    new std::optional<KvMemory>(std::move(memory_));
    (void)buffer_.release();
    (void)owner_.release();
    return;
  }
  const py::gil_scoped_acquire gil;
  unlocked([this] { memory_.reset(); });  // the registration first, then what it stands on
  buffer_.reset();
  owner_ = py::object();
}

PyKvMemory::PyKvMemory(std::shared_ptr<KvRegistered> state)
    : size_(state->bytes().size()),
      address_(reinterpret_cast<std::uintptr_t>(state->bytes().data())),
      state_(std::move(state)) {}

PyKvMemory::~PyKvMemory() { close(); }

void PyKvMemory::close() {
  const std::shared_ptr<KvRegistered> last = std::move(state_);
  state_ = nullptr;
}

std::shared_ptr<KvRegistered> PyKvMemory::state() const {
  if (state_ == nullptr) raise(ClientError{ErrorKind::rdma, "this memory is closed"});
  return state_;
}

Lent::Lent(const py::handle& target, std::size_t offset, std::optional<std::size_t> length,
           bool writable) {
  std::span<std::byte> all;
  if (py::isinstance<PyKvMemory>(target)) {
    registered_ = target.cast<const PyKvMemory&>().state();
    all = registered_->bytes();
  } else {
    buffer_ = std::make_unique<BorrowedBuffer>(target, writable);
    all = buffer_->bytes();
  }
  if (offset > all.size() || (length && *length > all.size() - offset)) {
    throw py::value_error("the range runs past the end of the memory");
  }
  bytes_ = all.subspan(offset, length.value_or(all.size() - offset));
}

}  // namespace farlift::python
