// Console: how the tool speaks. A progress bar on a terminal, plain lines elsewhere, tables,
// quantities for people, and JSON for programs.
//
// Threads: one thread uses a Progress or a Table. Errors: none; a closed stdout is not noticed.
#pragma once

#include "apps/outcome.h"
#include "core/base/clock.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::apps {

std::string human_bytes(std::uint64_t bytes);  // "64 KiB", "1.5 GiB", "17 B"
std::string human_rate(double bytes_per_s);    // "4.31 GB/s"
// "64k", "512KiB", "4m", "1g", "100"; powers of 1024.
Outcome<std::uint64_t> parse_bytes(std::string_view text);

// Prints the failure on stderr ("farlift: ..."), or as {"error": ...} on stdout; returns its
// status.
int report(const Failure& failure, bool json);

// Moves on stderr, so that stdout stays for results. Silent when `quiet`.
class Progress {
 public:
  // total 0: unknown; then the time that passed is shown.
  Progress(std::string what, std::uint64_t total, bool quiet);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // wipes the bar; a failure's text then stands alone
  void at(std::uint64_t done);
  void restart(std::string what, std::uint64_t total);

 private:
  std::string what_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  bool quiet_;
  bool terminal_;
  SystemClock clock_;
  Instant started_;
  Instant drawn_;
  bool shown_ = false;
};

// Columns as wide as they need to be; numbers (first character a digit) are set to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// One JSON object, members in the order given.
class JsonObject {
 public:
  JsonObject& text(std::string_view name, std::string_view value);
  JsonObject& integer(std::string_view name, std::int64_t value);
  JsonObject& number(std::string_view name, double value);  // not finite: null
  JsonObject& boolean(std::string_view name, bool value);
  JsonObject& raw(std::string_view name, std::string_view json);
  std::string str() const { return "{" + body_ + "}"; }

 private:
  JsonObject& member(std::string_view name, std::string_view json);
  std::string body_;
};
std::string json_text(std::string_view value);  // quoted and escaped
std::string json_list(const std::vector<std::string>& items, bool one_a_line);

void print(std::string_view text);            // stdout, as it is
void say(bool quiet, std::string_view line);  // stdout with a line end, unless quiet

}  // namespace farlift::apps
