#include "apps/console.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unistd.h>

namespace farlift::apps {

namespace {

constexpr Duration kRedraw = std::chrono::milliseconds(100);
constexpr std::size_t kBarWidth = 30;

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

std::size_t columns_of(std::string_view text) {  // UTF-8 continuation bytes take no column
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u;
  }));
}

}  // namespace

std::string human_bytes(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < std::size(kUnits)) {
    value /= 1024.0;
    ++unit;
  }
  if (value == std::floor(value)) return fmt::format("{:.0f} {}", value, kUnits[unit]);
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : 1, kUnits[unit]);
}

std::string human_rate(double bytes_per_s) {
  if (bytes_per_s >= 1e9) return fmt::format("{:.2f} GB/s", bytes_per_s / 1e9);
  return fmt::format("{:.1f} MB/s", bytes_per_s / 1e6);
}

Outcome<std::uint64_t> parse_bytes(std::string_view text) {
  std::size_t digits = 0;
  std::uint64_t value = 0;
  bool overflow = false;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
    const auto digit = static_cast<std::uint64_t>(text[digits] - '0');
    overflow = overflow || value > (UINT64_MAX - digit) / 10;
    value = value * 10 + digit;
  }
  std::string unit;
  for (std::size_t i = digits; i < text.size(); ++i) {
    unit += static_cast<char>(text[i] >= 'A' && text[i] <= 'Z' ? text[i] - 'A' + 'a' : text[i]);
  }
  unsigned shift = 64;
  if (unit.empty() || unit == "b") shift = 0;
  if (unit == "k" || unit == "kb" || unit == "kib") shift = 10;
  if (unit == "m" || unit == "mb" || unit == "mib") shift = 20;
  if (unit == "g" || unit == "gb" || unit == "gib") shift = 30;
  if (digits == 0 || overflow || shift == 64 || (value << shift) >> shift != value) {
    return fail(kExitUsage, fmt::format("'{}' is no size; write for example 64k, 4m or 1g", text));
  }
  return value << shift;
}

int report(const Failure& failure, bool json) {
  if (json) {
    print(JsonObject().text("error", failure.text).integer("exit_code", failure.exit_code).str() +
          "\n");
  } else {
    std::fflush(stdout);
    fmt::print(stderr, "farlift: {}\n", failure.text);
  }
  return failure.exit_code;
}

Progress::Progress(std::string what, std::uint64_t total, bool quiet)
    : what_(std::move(what)),
      total_(total),
      quiet_(quiet),
      terminal_(::isatty(STDERR_FILENO) == 1),
      started_(clock_.now()),
      drawn_(started_) {
  if (!quiet_ && !terminal_) fmt::print(stderr, "{} ...\n", what_);
}

Progress::~Progress() {
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void Progress::restart(std::string what, std::uint64_t total) {
  what_ = std::move(what);
  total_ = total;
  done_ = 0;
  started_ = clock_.now();
  if (!quiet_ && !terminal_) fmt::print(stderr, "{} ...\n", what_);
}

void Progress::at(std::uint64_t done) {
  done_ = total_ == 0 ? done : std::min(done, total_);
  const Instant now = clock_.now();
  if (quiet_ || !terminal_ || now - drawn_ < kRedraw) return;
  drawn_ = now;
  shown_ = true;
  const double elapsed = seconds(now - started_);
  if (total_ == 0) {
    fmt::print(stderr, "\r\033[K{}  {:.1f} s", what_, elapsed);
  } else {
    const double part = static_cast<double>(done_) / static_cast<double>(total_);
    const auto filled = static_cast<std::size_t>(part * kBarWidth);
    fmt::print(stderr, "\r\033[K{} [{:#<{}}{:.<{}}] {:3.0f} %  {}", what_, "", filled, "",
               kBarWidth - filled, part * 100.0,
               elapsed > 0 ? human_rate(static_cast<double>(done_) / elapsed) : "");
  }
  std::fflush(stderr);
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], columns_of(row[i]));
  }
  std::string out;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (std::size_t i = 0; i < rows_[r].size(); ++i) {
      const std::string& cell = rows_[r][i];
      const std::string pad(widths[i] - columns_of(cell), ' ');
      const bool right = r > 0 && !cell.empty() && cell[0] >= '0' && cell[0] <= '9';
      line += (i == 0 ? "  " : "   ") + (right ? pad + cell : cell + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
    if (r == 0) {
      std::size_t total = 2;
      for (const std::size_t w : widths) total += w + 3;
      out += "  " + std::string(total - 5, '-') + "\n";
    }
  }
  return out;
}

std::string json_text(std::string_view value) {
  std::string out = "\"";
  for (const char c : value) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (u < 0x20 || u == 0x7f) {
      out += fmt::format("\\u{:04x}", u);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string json_list(const std::vector<std::string>& items, bool one_a_line) {
  std::string out = "[";
  for (std::size_t i = 0; i < items.size(); ++i) {
    out += (i == 0 ? "" : ",");
    out += one_a_line ? "\n " : (i == 0 ? "" : " ");
    out += items[i];
  }
  return out + (one_a_line && !items.empty() ? "\n]" : "]");
}

JsonObject& JsonObject::member(std::string_view name, std::string_view json) {
  body_ += fmt::format("{}{}: {}", body_.empty() ? "" : ", ", json_text(name), json);
  return *this;
}
JsonObject& JsonObject::text(std::string_view name, std::string_view value) {
  return member(name, json_text(value));
}
JsonObject& JsonObject::integer(std::string_view name, std::int64_t value) {
  return member(name, fmt::format("{}", value));
}
JsonObject& JsonObject::number(std::string_view name, double value) {
  return member(name, std::isfinite(value) ? fmt::format("{:.6g}", value) : "null");
}
JsonObject& JsonObject::boolean(std::string_view name, bool value) {
  return member(name, value ? "true" : "false");
}
JsonObject& JsonObject::raw(std::string_view name, std::string_view json) {
  return member(name, json);
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void say(bool quiet, std::string_view line) {
  if (quiet) return;
  print(line);
  print("\n");
}

}  // namespace farlift::apps
