#include "core/base/log.h"

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <unistd.h>

namespace farlift {

namespace {

void to_stderr(LogLevel level, std::string_view line) noexcept {
  static constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
  char buffer[1100];
  const int n =
      std::snprintf(buffer, sizeof buffer, "farlift[%d] %s: %.*s\n", static_cast<int>(::getpid()),
                    kNames[static_cast<int>(level)], static_cast<int>(line.size()), line.data());
  if (n > 0) {
    // One write a line, so that lines of several threads do not mix. Nothing useful can be done
    // when it fails.
    const ssize_t written =
        ::write(STDERR_FILENO, buffer, std::min(static_cast<std::size_t>(n), sizeof buffer - 1));
    static_cast<void>(written);
  }
}

std::atomic<LogSink> g_sink{&to_stderr};
std::atomic<LogLevel> g_lowest{LogLevel::info};

}  // namespace

void set_log_sink(LogSink sink) noexcept { g_sink.store(sink != nullptr ? sink : &to_stderr); }
void set_log_level(LogLevel lowest) noexcept { g_lowest.store(lowest); }

void log(LogLevel level, std::string_view line) noexcept {
  if (level < g_lowest.load(std::memory_order_relaxed)) return;
  g_sink.load()(level, line.substr(0, 1024));
}

void logf(LogLevel level, const char* format, ...) noexcept {
  if (level < g_lowest.load(std::memory_order_relaxed)) return;
  char buffer[1025];
  va_list args;
  va_start(args, format);
  const int n = std::vsnprintf(buffer, sizeof buffer, format, args);
  va_end(args);
  if (n >= 0)
    log(level, std::string_view(buffer, std::min(static_cast<std::size_t>(n), sizeof buffer - 1)));
}

}  // namespace farlift
