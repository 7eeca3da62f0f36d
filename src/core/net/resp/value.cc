#include "core/net/resp/value.h"

#include "core/base/assert.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

namespace farlift::resp {

std::string_view type_name(Type type) noexcept {
  switch (type) {
    case Type::null:
      return "null";
    case Type::boolean:
      return "boolean";
    case Type::integer:
      return "integer";
    case Type::real:
      return "double";
    case Type::big_number:
      return "big number";
    case Type::simple:
      return "simple string";
    case Type::bulk:
      return "bulk string";
    case Type::verbatim:
      return "verbatim string";
    case Type::error:
      return "error";
    case Type::array:
      return "array";
    case Type::map:
      return "map";
    case Type::set:
      return "set";
    case Type::push:
      return "push";
  }
  return "unknown";
}

ByteBuffer::ByteBuffer(std::string_view copy_of) {
  if (copy_of.empty()) return;
  ASSERT(reserve(copy_of.size()));
  std::memcpy(data_, copy_of.data(), copy_of.size());
  size_ = copy_of.size();
}

ByteBuffer ByteBuffer::borrow(std::span<std::byte> memory) noexcept {
  ByteBuffer buffer;
  buffer.data_ = memory.data();
  buffer.size_ = buffer.capacity_ = memory.size();
  buffer.borrowed_ = true;
  return buffer;
}

ByteBuffer::ByteBuffer(ByteBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      capacity_(std::exchange(other.capacity_, 0)),
      borrowed_(std::exchange(other.borrowed_, false)) {}

ByteBuffer& ByteBuffer::operator=(ByteBuffer&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    borrowed_ = std::exchange(other.borrowed_, false);
  }
  return *this;
}

void ByteBuffer::release() noexcept {
  if (!borrowed_) std::free(data_);
}

bool ByteBuffer::reserve(std::size_t capacity) noexcept {
  ASSERT(!borrowed_);
  if (capacity <= capacity_) return true;
  // realloc moves the pages of a long block instead of its bytes, and leaves the new part
  // untouched.
  void* grown = std::realloc(data_, capacity);
  if (grown == nullptr) return false;
  data_ = static_cast<std::byte*>(grown);
  capacity_ = capacity;
  return true;
}

void ByteBuffer::drop_front(std::size_t count) noexcept {
  ASSERT(count <= size_);
  size_ -= count;
  std::memmove(data_, data_ + count, size_);
}

Value Value::boolean_of(bool v) {
  Value value;
  value.type_ = Type::boolean;
  value.boolean_ = v;
  return value;
}

Value Value::integer_of(std::int64_t v) {
  Value value;
  value.type_ = Type::integer;
  value.integer_ = v;
  return value;
}

Value Value::real_of(double v) {
  Value value;
  value.type_ = Type::real;
  value.real_ = v;
  return value;
}

Value Value::text_of(Type type, ByteBuffer text) {
  Value value;
  value.type_ = type;
  ASSERT(value.is_text() && type != Type::verbatim);
  value.text_ = std::move(text);
  return value;
}

Value Value::verbatim_of(std::string_view format, ByteBuffer text) {
  Value value;
  value.type_ = Type::verbatim;
  ASSERT(format.size() == sizeof value.format_);
  std::copy(format.begin(), format.end(), value.format_);
  value.text_ = std::move(text);
  return value;
}

Value Value::aggregate_of(Type type, std::vector<Value> items) {
  Value value;
  value.type_ = type;
  ASSERT(value.is_aggregate() && (type != Type::map || items.size() % 2 == 0));
  value.items_ = std::move(items);
  return value;
}

bool Value::boolean() const {
  ASSERT(type_ == Type::boolean);
  return boolean_;
}

std::int64_t Value::integer() const {
  ASSERT(type_ == Type::integer);
  return integer_;
}

double Value::real() const {
  ASSERT(type_ == Type::real);
  return real_;
}

std::string_view Value::text() const {
  ASSERT(is_text());
  return text_.text();
}

std::span<const std::byte> Value::bytes() const {
  ASSERT(is_text());
  return text_.bytes();
}

std::string_view Value::verbatim_format() const {
  ASSERT(type_ == Type::verbatim);
  return {format_, sizeof format_};
}

std::span<const Value> Value::items() const {
  ASSERT(is_aggregate());
  return items_;
}

std::vector<Value> Value::take_items() && {
  ASSERT(is_aggregate());
  return std::move(items_);
}

const Value* Value::find(std::string_view key) const {
  ASSERT(type_ == Type::map);
  for (std::size_t i = 0; i + 1 < items_.size(); i += 2) {
    if (items_[i].is_text() && items_[i].text() == key) return &items_[i + 1];
  }
  return nullptr;
}

Value* Value::first_bulk() noexcept {
  if (type_ == Type::bulk) return this;
  for (Value& item : items_) {
    if (Value* found = item.first_bulk()) return found;
  }
  return nullptr;
}

void Value::move_first_bulk(std::span<std::byte> memory) {
  Value* bulk = first_bulk();
  if (bulk == nullptr || bulk->borrowed() || bulk->text_.size() > memory.size()) return;
  const std::span<std::byte> to = memory.first(bulk->text_.size());
  std::ranges::copy(bulk->text_.bytes(), to.begin());
  bulk->text_ = ByteBuffer::borrow(to);
}

std::span<const Value> Value::attributes() const noexcept {
  return attributes_ != nullptr ? std::span<const Value>(*attributes_) : std::span<const Value>();
}

void Value::add_attributes(std::vector<Value> pairs) {
  if (pairs.empty()) return;
  if (attributes_ == nullptr) {
    attributes_ = std::make_unique<std::vector<Value>>(std::move(pairs));
  } else {
    attributes_->insert(attributes_->end(), std::make_move_iterator(pairs.begin()),
                        std::make_move_iterator(pairs.end()));
  }
}

bool operator==(const Value& a, const Value& b) {
  if (a.type_ != b.type_ || !std::ranges::equal(a.attributes(), b.attributes())) return false;
  switch (a.type_) {
    case Type::null:
      return true;
    case Type::boolean:
      return a.boolean_ == b.boolean_;
    case Type::integer:
      return a.integer_ == b.integer_;
    case Type::real:
      return a.real_ == b.real_ || (std::isnan(a.real_) && std::isnan(b.real_));
    case Type::verbatim:
      return std::ranges::equal(a.format_, b.format_) && a.text_.text() == b.text_.text();
    case Type::big_number:
    case Type::simple:
    case Type::bulk:
    case Type::error:
      return a.text_.text() == b.text_.text();
    case Type::array:
    case Type::map:
    case Type::set:
    case Type::push:
      return a.items_ == b.items_;
  }
  return false;
}

}  // namespace farlift::resp
