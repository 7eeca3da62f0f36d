// Expected<T>: a value or a ClientError. The client library reports every failure this way and
// throws nothing.
//
//   auto client = farlift::Client::create(options);
//   if (!client) return fail(client.error().text);
//   client->command({"PING"});
//
// Invariants: never empty.
// Threads:    as T.
// Errors:     value() of a failed Expected, or error() of a successful one, ends the program with a
//             message.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "farlift/export.h"

namespace farlift {

// What went wrong, by what the caller can do about it (spec blob 10.1).
enum class ErrorKind {
  rdma,           // the transfer was refused or failed; the text has the server's words
  connection,     // no connection, or it was lost
  timeout,        // no reply within the request timeout; never raised for a transfer
  closing,        // the client was closed, or belongs to the parent process of a fork
  configuration,  // options that exclude each other or cannot be met here
  type,           // an argument of the wrong sort
  request,        // an ordinary command was refused, by the server or before it was sent
};

struct [[nodiscard]] ClientError {
  ErrorKind kind = ErrorKind::request;
  std::string text;
};

// "rdma", "connection", ...
FARLIFT_API const char* to_string(ErrorKind kind) noexcept;

namespace detail {
[[noreturn]] FARLIFT_API void bad_expected(const ClientError* error) noexcept;
}

template <class T>
class [[nodiscard]] Expected {
 public:
  using value_type = T;

  Expected(ClientError error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT
  template <class U = T, class = std::enable_if_t<std::is_constructible_v<T, U&&> &&
                                                  !std::is_same_v<std::decay_t<U>, Expected> &&
                                                  !std::is_same_v<std::decay_t<U>, ClientError>>>
  Expected(U&& value) : state_(std::in_place_index<0>, std::forward<U>(value)) {}  // NOLINT

  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  T& value() & { return check(), *std::get_if<0>(&state_); }
  const T& value() const& { return check(), *std::get_if<0>(&state_); }
  T&& value() && { return check(), std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const ClientError& error() const {
    if (ok()) detail::bad_expected(nullptr);
    return *std::get_if<1>(&state_);
  }

 private:
  void check() const {
    if (!ok()) detail::bad_expected(std::get_if<1>(&state_));
  }
  std::variant<T, ClientError> state_;
};

template <>
class [[nodiscard]] Expected<void> {
 public:
  using value_type = void;

  Expected() = default;
  Expected(ClientError error) : failed_(true), error_(std::move(error)) {}  // NOLINT

  bool ok() const noexcept { return !failed_; }
  explicit operator bool() const noexcept { return ok(); }
  void value() const {
    if (failed_) detail::bad_expected(&error_);
  }
  const ClientError& error() const {
    if (!failed_) detail::bad_expected(nullptr);
    return error_;
  }

 private:
  bool failed_ = false;
  ClientError error_;
};

}  // namespace farlift
