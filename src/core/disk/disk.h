// Disk: one directory of files, read and written at offsets. Three implementations: posix (plain
// system calls), uring (io_uring for long reads and for write-and-sync in one go), sim (in memory,
// with crashes and failures for tests).
//
// What a crash leaves behind is the whole point of this interface:
//   - What write_at() and resize() did may be lost, or be there in part, or out of order, until a
//     sync() of the file that began after them returned success.
//   - What create, rename and remove did to names may be lost, each on its own, until
//     Directory::sync() returned success.
//   - A sync() that failed is final: what it was to make durable may be lost although it can still
//     be read, and no later sync() makes up for it. The holder must stop acknowledging.
//
// Threads: any; writes to the same range by two threads at once are the caller's mistake.
// Errors:  not_found, already_exists; exhausted (no space or quota left), permission (read-only),
//          io with errno otherwise. A write that failed may have written any part of its range.
#pragma once

#include "core/base/result.h"
#include "core/base/types.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::disk {

class File {
 public:
  virtual ~File() = default;
  // Fills `into` with the bytes from `offset`; fewer only where the file ends.
  virtual Result<std::size_t> read_at(std::span<std::byte> into, Offset offset) = 0;
  // All pieces one after the other from `offset`, or an error.
  virtual Status write_at(std::span<const std::span<const std::byte>> pieces, Offset offset) = 0;
  virtual Status sync() = 0;
  virtual Status resize(Length length) = 0;
  virtual Result<Length> size() = 0;
  // For sendfile(2); -1 where there is none.
  virtual int fd() const noexcept { return -1; }

  // The same for one piece; and a read that wants every byte (corrupt: the file ends before).
  Status write_at(std::span<const std::byte> bytes, Offset offset);
  Status read_exactly_at(std::span<std::byte> into, Offset offset);
};

enum class OpenMode : std::uint8_t {
  read_only,    // not_found if there is none
  read_write,   // not_found if there is none
  create_new,   // already_exists if there is one
  create_empty  // there may be one: it is emptied
};

struct DirectoryInfo {
  std::string backend;  // "posix", "uring", "sim"
  std::string why;      // when another backend was wanted: why it is not used
};

class Directory {
 public:
  virtual ~Directory() = default;
  virtual const DirectoryInfo& info() const noexcept = 0;
  // Names are plain: no slash.
  virtual Result<std::unique_ptr<File>> open(const std::string& name, OpenMode mode) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;  // replaces `to`
  virtual Status remove(const std::string& name) = 0;
  virtual Result<std::vector<std::string>> list() = 0;  // sorted
  virtual Status sync() = 0;
  // What a user without privileges may still write here.
  virtual Result<Length> free_space() = 0;
};

enum class Backend : std::uint8_t { automatic, posix, uring };

struct DirectoryOptions {
  Backend backend = Backend::automatic;
  bool create = true;      // make the directory if it does not exist (not its parents)
  bool exclusive = false;  // busy: another process has it open so
};

// automatic takes io_uring where a ring can be made and a read through it gives the right bytes.
Result<std::unique_ptr<Directory>> open_directory(const std::string& path,
                                                  const DirectoryOptions& options);

}  // namespace farlift::disk
