// Log: one line of text to whoever runs the process. The sink is set by the process (stderr by
// default, the server's own log inside the module).
//
// Threads: log() from any thread; set_log_sink() before threads start. Errors: none; a line is cut
// at 1024 bytes.
#pragma once

#include <cstdint>
#include <string_view>

namespace farlift {

enum class LogLevel : std::uint8_t { debug, info, warning, error };

using LogSink = void (*)(LogLevel level, std::string_view line) noexcept;

void set_log_sink(LogSink sink) noexcept;      // nullptr: back to stderr
void set_log_level(LogLevel lowest) noexcept;  // lines below it are dropped; default info
void log(LogLevel level, std::string_view line) noexcept;
[[gnu::format(printf, 2, 3)]] void logf(LogLevel level, const char* format, ...) noexcept;

}  // namespace farlift
