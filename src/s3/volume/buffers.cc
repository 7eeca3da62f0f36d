#include "s3/volume/buffers.h"

#include <utility>

namespace farlift::s3::volume {

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(home_, other.home_);
  std::swap(mapping_, other.mapping_);
  std::swap(length_, other.length_);
  return *this;
}

Buffer::~Buffer() {
  if (mapping_ != nullptr) home_->give_back(std::move(mapping_));
}

Result<Buffer> Buffers::take(Length length) {
  constexpr std::size_t kTooLarge = 4;  // an idle one that is so many times too long is left alone
  constexpr std::size_t kGrain = 64u << 10;
  Buffer out;
  out.home_ = shared_from_this();
  out.length_ = length.raw();
  {
    MutexLock lock(mutex_);
    const auto found = idle_.lower_bound(length.raw());
    if (found != idle_.end() && found->first / kTooLarge <= length.raw() + kGrain) {
      idle_bytes_ -= found->first;
      out.mapping_ = std::move(found->second);
      idle_.erase(found);
      return out;
    }
  }
  // Small pages: a peer on this host maps those only (core/fabric/soft).
  memory::MappingOptions options;
  options.huge_pages = false;
  options.name = "farlift-volume";
  const std::uint64_t rounded = (length.raw() + kGrain - 1) / kGrain * kGrain;
  TRY_ASSIGN(memory::Mapping mapping, memory::Mapping::create(Length(rounded), options));
  out.mapping_ = std::make_unique<memory::Mapping>(std::move(mapping));
  return out;
}

void Buffers::give_back(std::unique_ptr<memory::Mapping> mapping) {
  const std::size_t size = mapping->bytes().size();
  MutexLock lock(mutex_);
  if (idle_bytes_ + size > kIdleMax) return;
  idle_bytes_ += size;
  idle_.emplace(size, std::move(mapping));
}

std::size_t Buffers::idle_bytes() const {
  MutexLock lock(mutex_);
  return idle_bytes_;
}

}  // namespace farlift::s3::volume
