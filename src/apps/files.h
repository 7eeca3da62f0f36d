// Files: whole small files, temporary folders, and files mapped so that the fabric can read and
// write them in place.
//
// Threads: one owner each. Errors: Failure with the path and the system's words.
#pragma once

#include "apps/outcome.h"
#include "core/base/unique_fd.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace farlift::apps {

Outcome<std::string> read_file(const std::string& path, std::size_t limit);
Outcome<void> write_file(const std::string& path,
                         const std::string& text);            // mode 0600, replaced at once
Outcome<void> make_folder(const std::string& path);           // 0700; there already: fine
Outcome<std::string> absolute_path(const std::string& path);  // must exist

// A folder below $TMPDIR that goes away, with what is in it, unless kept.
class TempFolder {
 public:
  static Outcome<TempFolder> make();
  TempFolder(TempFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  TempFolder& operator=(TempFolder&&) = delete;
  ~TempFolder();
  const std::string& path() const noexcept { return path_; }
  void keep() noexcept { path_.clear(); }

 private:
  explicit TempFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// A file mapped into memory. A source is mapped privately, so that registering it as writable can
// never change the file; a destination is mapped shared, so that what lands is the file's content.
class MappedFile {
 public:
  static Outcome<MappedFile> source(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  std::span<std::byte> bytes() const noexcept { return bytes_; }
  std::uint64_t resident_bytes() const;  // what is in memory by now

 private:
  friend class NewFile;
  explicit MappedFile(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

// A file that appears under its name only when it is complete: it has no name before publish(), or
// a hidden one that is removed when this goes away or a signal ends the process.
class NewFile {
 public:
  static Outcome<NewFile> create(const std::string& path);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();
  // Reserves the space and maps it. May be called again with another length.
  Outcome<MappedFile> map(std::uint64_t length);
  Outcome<void> publish(std::uint64_t length);  // cut to length, then visible in one step

 private:
  NewFile(UniqueFd fd, std::string path, std::string hidden)
      : fd_(std::move(fd)), path_(std::move(path)), hidden_(std::move(hidden)) {}
  UniqueFd fd_;
  std::string path_;
  std::string hidden_;  // its name until then, empty: none
};

}  // namespace farlift::apps
