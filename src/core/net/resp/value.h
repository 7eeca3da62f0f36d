// Value: one RESP reply, of either protocol version.
//
// Invariants: only the accessors that belong to type() may be called (ASSERT). A map's items
//             alternate key, value. A borrowed value points into memory that the receiver supplied
//             and must not outlive it.
// Threads:    plain value, move-only.
// Errors:     none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace farlift::resp {

enum class Type : std::uint8_t {
  null,        // _   and RESP2's $-1 and *-1
  boolean,     // #
  integer,     // :
  real,        // ,
  big_number,  // (   decimal digits as text
  simple,      // +
  bulk,        // $
  verbatim,    // =   text() without the format, see verbatim_format()
  error,       // -   and !
  array,       // *
  map,         // %
  set,         // ~
  push,        // >
};

std::string_view type_name(Type type) noexcept;

// Bytes that grow without being zeroed first; or a view of somebody else's.
class ByteBuffer {
 public:
  ByteBuffer() = default;
  explicit ByteBuffer(std::string_view copy_of);
  static ByteBuffer borrow(std::span<std::byte> memory) noexcept;
  ByteBuffer(ByteBuffer&& other) noexcept;
  ByteBuffer& operator=(ByteBuffer&& other) noexcept;
  ~ByteBuffer() { release(); }

  const std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  std::size_t capacity() const noexcept { return capacity_; }
  bool borrowed() const noexcept { return borrowed_; }
  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  std::string_view text() const noexcept { return {reinterpret_cast<const char*>(data_), size_}; }

  // Owned buffers only. False when there is no memory; the buffer is then unchanged.
  [[nodiscard]] bool reserve(std::size_t capacity) noexcept;
  std::span<std::byte> tail() noexcept { return {data_ + size_, capacity_ - size_}; }
  void grew(std::size_t by) noexcept { size_ += by; }  // by <= tail().size()
  void drop_front(std::size_t count) noexcept;

 private:
  void release() noexcept;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  bool borrowed_ = false;
};

class Value {
 public:
  Value() = default;  // null
  static Value boolean_of(bool v);
  static Value integer_of(std::int64_t v);
  static Value real_of(double v);
  static Value text_of(Type type, ByteBuffer text);  // simple, bulk, error, big_number
  static Value text_of(Type type, std::string_view text) { return text_of(type, ByteBuffer(text)); }
  static Value verbatim_of(std::string_view format, ByteBuffer text);
  static Value aggregate_of(Type type, std::vector<Value> items);  // array, map, set, push

  Type type() const noexcept { return type_; }
  bool is_null() const noexcept { return type_ == Type::null; }
  bool is_error() const noexcept { return type_ == Type::error; }
  bool is_aggregate() const noexcept { return type_ >= Type::array; }
  bool is_text() const noexcept { return type_ >= Type::big_number && type_ <= Type::error; }

  bool boolean() const;
  std::int64_t integer() const;
  double real() const;
  std::string_view text() const;             // any is_text() type
  std::span<const std::byte> bytes() const;  // the same
  std::string_view verbatim_format() const;  // three characters
  bool borrowed() const noexcept {
    return text_.borrowed();
  }                                      // its bytes are in the memory that the receiver supplied
  std::span<const Value> items() const;  // any is_aggregate() type
  std::vector<Value> take_items() &&;
  // Of a map: the value beside the first key whose text is `key`; nullptr when there is none.
  const Value* find(std::string_view key) const;

  // Copies the first bulk string (this value, or the first among its items at any depth) into
  // `memory` and borrows it from there, if it fits and does not lie there already.
  void move_first_bulk(std::span<std::byte> memory);

  // RESP3 attributes sent ahead of this value: alternating key, value; mostly empty.
  std::span<const Value> attributes() const noexcept;
  void add_attributes(std::vector<Value> pairs);

  friend bool operator==(const Value& a, const Value& b);

 private:
  friend class Parser;
  Value* first_bulk() noexcept;
  Type type_ = Type::null;
  char format_[3] = {};
  union {
    std::int64_t integer_ = 0;
    double real_;
    bool boolean_;
  };
  ByteBuffer text_;
  std::vector<Value> items_;
  std::unique_ptr<std::vector<Value>> attributes_;
};

}  // namespace farlift::resp
