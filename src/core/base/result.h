// Result<T>: a value or an Error. Status: success or an Error.
//
//   Result<Length> size_of(...);
//   TRY_ASSIGN(const Length size, size_of(path));  // returns the error from the function
//   TRY(close(file));
//
// Invariants: never empty. Threads: as T. Errors: reading value() of a failed Result, or error() of
//             a successful one, is an ASSERT.
#pragma once

#include "core/base/assert.h"
#include "core/base/error.h"

#include <tl/expected.hpp>

#include <type_traits>
#include <utility>

namespace farlift {

template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(Error error) : value_(tl::unexpect, error) {}  // NOLINT(google-explicit-constructor)
  template <class U = T, class = std::enable_if_t<std::is_constructible_v<T, U&&> &&
                                                  !std::is_same_v<std::decay_t<U>, Result> &&
                                                  !std::is_same_v<std::decay_t<U>, Error>>>
  Result(U&& value)
      : value_(tl::in_place, std::forward<U>(value)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }

  T& value() & {
    ASSERT(ok());
    return *value_;
  }
  const T& value() const& {
    ASSERT(ok());
    return *value_;
  }
  T&& value() && {
    ASSERT(ok());
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    ASSERT(!ok());
    return value_.error();
  }
  Errc code() const { return error().code; }
  T value_or(T other) const& { return ok() ? *value_ : std::move(other); }

 private:
  tl::expected<T, Error> value_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() = default;
  Result(Error error) : value_(tl::unexpect, error) {}  // NOLINT(google-explicit-constructor)

  bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  const Error& error() const {
    ASSERT(!ok());
    return value_.error();
  }
  Errc code() const { return error().code; }
  void ignore() const noexcept {
  }  // says at the call that the failure is of no interest; write why beside it

 private:
  tl::expected<void, Error> value_;
};

using Status = Result<void>;
inline Status ok_status() { return {}; }

}  // namespace farlift

#define FARLIFT_CONCAT_INNER(a, b) a##b
#define FARLIFT_CONCAT(a, b) FARLIFT_CONCAT_INNER(a, b)

// Returns the error of `expr` from the enclosing function when it failed.
#define TRY(expr)                                       \
  do {                                                  \
    if (auto try_status_ = (expr); !try_status_.ok()) { \
      return try_status_.error();                       \
    }                                                   \
  } while (false)

// Declares or assigns `lhs` from the value of `expr`, or returns its error.
#define TRY_ASSIGN(lhs, expr) TRY_ASSIGN_IMPL(FARLIFT_CONCAT(try_result_, __LINE__), lhs, expr)
#define TRY_ASSIGN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                    \
  if (!tmp.ok()) {                      \
    return tmp.error();                 \
  }                                     \
  lhs = std::move(tmp).value()
