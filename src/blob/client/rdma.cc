#include "blob/client/fabric_handle.h"
#include "blob/client/rdma_buffer.h"
#include "blob/client/region.h"
#include "core/digest/crc32c.h"
#include <farlift/rdma.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace farlift {

const char* to_string(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::rdma:
      return "rdma";
    case ErrorKind::connection:
      return "connection";
    case ErrorKind::timeout:
      return "timeout";
    case ErrorKind::closing:
      return "closing";
    case ErrorKind::configuration:
      return "configuration";
    case ErrorKind::type:
      return "type";
    case ErrorKind::request:
      return "request";
  }
  return "unknown";
}

void detail::bad_expected(const ClientError* error) noexcept {
  if (error == nullptr) {
    std::fputs("farlift: error() of an Expected that holds a value\n", stderr);
  } else {
    std::fprintf(stderr, "farlift: value() of an Expected that failed: %s\n", error->text.c_str());
  }
  std::abort();
}

std::size_t RdmaRegion::capacity() const noexcept { return state_->memory().size(); }

bool RdmaRegion::closed() const noexcept { return state_->closed(); }

Expected<RdmaWindow> RdmaRegion::window(std::size_t offset,
                                        std::optional<std::size_t> length) const {
  if (state_->closing_or_closed()) return client::rdma_error("the region is closed");
  const std::size_t capacity = state_->memory().size();
  if (offset > capacity || (length && *length > capacity - offset)) {
    return client::rdma_error("the window lies outside the region of " + std::to_string(capacity) +
                              " bytes");
  }
  return RdmaWindow(state_, offset, length.value_or(capacity - offset));
}

Expected<std::span<std::byte>> RdmaRegion::memory() const {
  if (state_->closing_or_closed()) return client::rdma_error("the region is closed");
  return state_->memory();
}

Expected<void> RdmaRegion::close() {
  if (state_->forked()) {
    return ClientError{ErrorKind::closing, "this region belongs to the parent process"};
  }
  return state_->close();
}

Expected<std::span<std::byte>> RdmaWindow::memory() const {
  if (state_->closing_or_closed()) return client::rdma_error("the region is closed");
  return state_->memory().subspan(offset_, length_);
}

Expected<RdmaBuffer> RdmaBuffer::allocate(std::size_t length, const RdmaBufferOptions& options) {
  if (length == 0) return client::rdma_error("cannot allocate an empty buffer");
  auto mapping = memory::Mapping::create(
      Length(length), {.huge_pages = options.huge_pages, .numa_node = options.numa_node});
  if (!mapping.ok()) {
    return client::rdma_error("cannot allocate " + std::to_string(length) +
                              " bytes: " + mapping.error().describe());
  }
  return RdmaBuffer(std::make_shared<client::BufferState>(std::move(mapping).value(), length));
}

std::span<std::byte> RdmaBuffer::bytes() const noexcept {
  return state_->mapping.bytes().first(state_->length);
}

bool RdmaBuffer::huge_pages() const noexcept { return state_->mapping.huge_pages(); }

bool rdma_available() noexcept { return true; }

RdmaUsability rdma_usable() { return client::provider_usability(RdmaProvider::efa_direct); }

RdmaUsability rdma_usable(RdmaProvider provider) { return client::provider_usability(provider); }

std::uint32_t rdma_checksum(std::span<const std::byte> data) noexcept {
  return digest::crc32c(data).raw();
}

}  // namespace farlift
