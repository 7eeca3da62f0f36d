// The plain implementation: one system call for each read, write and sync. Long waits are the
// calling thread's.
//
// Threads and errors: as core/disk/disk.h.
#pragma once

#include "core/base/unique_fd.h"
#include "core/disk/disk.h"

#include <memory>
#include <string>
#include <utility>

namespace farlift::disk {

class PosixFile : public File {
 public:
  explicit PosixFile(UniqueFd fd) noexcept : fd_(std::move(fd)) {}
  Result<std::size_t> read_at(std::span<std::byte> into, Offset offset) override;
  Status write_at(std::span<const std::span<const std::byte>> pieces, Offset offset) override;
  Status sync() override;
  Status resize(Length length) override;
  Result<Length> size() override;
  int fd() const noexcept override { return fd_.get(); }

 private:
  const UniqueFd fd_;
};

class PosixDirectory : public Directory {
 public:
  // `fd` is the open directory; it holds the lock where there is one.
  PosixDirectory(UniqueFd fd, DirectoryInfo info) : fd_(std::move(fd)), info_(std::move(info)) {}
  const DirectoryInfo& info() const noexcept override { return info_; }
  Result<std::unique_ptr<File>> open(const std::string& name, OpenMode mode) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& name) override;
  Result<std::vector<std::string>> list() override;
  Status sync() override;
  Result<Length> free_space() override;

 protected:
  Result<UniqueFd> open_fd(const std::string& name, OpenMode mode);

 private:
  const UniqueFd fd_;
  const DirectoryInfo info_;
};

Result<UniqueFd> open_directory_fd(const std::string& path, const DirectoryOptions& options);

}  // namespace farlift::disk
