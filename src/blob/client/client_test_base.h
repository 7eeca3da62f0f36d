// What the tests of the client share: patterns, memory with sentinels around the window, waiting.
//
// Threads: as used by one test. Errors: gtest failures.
#pragma once

#include <farlift/client.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace farlift::testing {

inline std::vector<std::byte> pattern(std::size_t size, unsigned seed = 1) {
  std::vector<std::byte> bytes(size);
  std::uint32_t state = seed * 2654435761u + 1;
  for (std::byte& b : bytes) {
    state = state * 1664525u + 1013904223u;
    b = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

inline bool all_are(std::span<const std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::byte b) { return b == value; });
}

inline constexpr std::byte kSentinel{0xa5};

// Polls; a deadline that no healthy run comes near.
inline bool eventually(const std::function<bool()>& condition,
                       std::chrono::seconds limit = std::chrono::seconds(20)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    // tidy: allow sleep a test that polls
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// One thread tells another, once.
class Signal {
 public:
  void raise() { promise_.set_value(); }
  bool wait() { return future_.wait_for(std::chrono::seconds(20)) == std::future_status::ready; }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_ = promise_.get_future().share();
};

template <class T>
::testing::AssertionResult succeeded(const Expected<T>& result) {
  if (result.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << to_string(result.error().kind) << ": " << result.error().text;
}

template <class T>
::testing::AssertionResult failed_as(const Expected<T>& result, ErrorKind kind,
                                     const std::string& words = "") {
  if (result.ok()) return ::testing::AssertionFailure() << "succeeded";
  if (result.error().kind != kind || result.error().text.find(words) == std::string::npos) {
    return ::testing::AssertionFailure()
           << to_string(result.error().kind) << ": " << result.error().text;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace farlift::testing
