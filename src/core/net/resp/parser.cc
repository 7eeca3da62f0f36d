#include "core/net/resp/parser.h"

#include "core/base/assert.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

namespace farlift::resp {
namespace {

constexpr std::size_t kReadSpace = 32u << 10;  // offered to each read for headers and short replies
constexpr std::size_t kBulkFirstBytes =
    64u << 10;  // first allocation for a bulk string that is still to come
constexpr std::size_t kItemsReserveMax = 64;  // elements reserved on the word of a header alone

bool all_digits(std::string_view text) noexcept {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Decimal digits without sign and without leading zeros.
std::optional<std::uint64_t> parse_count(std::string_view text) noexcept {
  if (!all_digits(text) || (text.size() > 1 && text.front() == '0')) return std::nullopt;
  std::uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return count;
}

std::optional<std::int64_t> parse_integer(std::string_view text) noexcept {
  const bool negative = text.starts_with('-');
  std::string_view digits = text;
  if (negative || text.starts_with('+')) digits.remove_prefix(1);
  if (!all_digits(digits) || (digits.size() > 1 && digits.front() == '0') || text == "-0")
    return std::nullopt;
  std::int64_t value = 0;
  const char* from = negative ? text.data() : digits.data();
  const char* to = text.data() + text.size();
  const auto [end, error] = std::from_chars(from, to, value);
  if (error != std::errc() || end != to) return std::nullopt;
  return value;
}

// [+-] digits [. digits] [e [+-] digits], or inf, -inf, nan, -nan.
std::optional<double> parse_real(std::string_view text) noexcept {
  if (text == "inf" || text == "+inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  if (text == "nan" || text == "-nan") return std::numeric_limits<double>::quiet_NaN();
  if (text.starts_with('+')) text.remove_prefix(1);
  // from_chars knows more spellings of infinity than the protocol does.
  const std::size_t first = text.starts_with('-') ? 1 : 0;
  if (first >= text.size() || text[first] < '0' || text[first] > '9') return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_big_number(std::string_view text) noexcept {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return all_digits(text);
}

bool is_resp3_only(char type) noexcept {
  return std::string_view("_#,(!=%~|>").find(type) != std::string_view::npos;
}

}  // namespace

Parser::Parser(ParserLimits limits) : limits_(limits) {}

bool Parser::idle() const noexcept {
  return unread() == 0 && bulk_.type == 0 && frames_.empty() && attributes_.empty() && !failed_;
}

Error Parser::fail(Errc code, const char* where) {
  failed_ = Error::make(code, where);
  return *failed_;
}

void Parser::compact() noexcept {
  if (begin_ == 0) return;
  if (unread() > 0) std::memmove(in_.data(), in_.data() + begin_, unread());
  end_ = unread();
  begin_ = 0;
}

Parser::Areas Parser::areas() {
  Areas areas;
  ASSERT(bulk_.type == 0 || bulk_.received == bulk_.length || unread() == 0);
  if (bulk_.type != 0) {
    std::span<std::byte> rest;
    const std::uint64_t missing = bulk_.length - bulk_.received;
    if (bulk_.target.data() != nullptr) {
      rest = bulk_.target.subspan(static_cast<std::size_t>(bulk_.received));
    } else {
      rest = bulk_.bytes.tail();
      rest = rest.first(static_cast<std::size_t>(std::min<std::uint64_t>(rest.size(), missing)));
    }
    if (!rest.empty()) areas.iov[areas.count++] = {rest.data(), rest.size()};
    // More of the bulk string will follow elsewhere: nothing may be received behind this area yet.
    if (rest.size() < missing) {
      ASSERT(areas.count == 1);  // continue_bulk() has made room
      return areas;
    }
  }
  if (in_.size() - end_ < kReadSpace / 2) {
    compact();
    if (in_.size() - end_ < kReadSpace / 2) in_.resize(end_ + kReadSpace);
  }
  areas.iov[areas.count++] = {in_.data() + end_, in_.size() - end_};
  return areas;
}

void Parser::commit(std::size_t received) {
  if (bulk_.type != 0) {
    const std::uint64_t missing = bulk_.length - bulk_.received;
    const std::size_t room = bulk_.target.data() != nullptr ? static_cast<std::size_t>(missing)
                                                            : bulk_.bytes.tail().size();
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>({received, missing, room}));
    bulk_.received += part;
    if (bulk_.target.data() == nullptr) bulk_.bytes.grew(part);
    received -= part;
  }
  ASSERT(received <= in_.size() - end_);
  end_ += received;
  starved_ = false;
}

void Parser::feed(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (in_.size() - end_ < bytes.size()) {
    compact();
    if (in_.size() - end_ < bytes.size()) in_.resize(end_ + bytes.size());
  }
  std::memcpy(in_.data() + end_, bytes.data(), bytes.size());
  end_ += bytes.size();
  starved_ = false;
}

Result<std::optional<Value>> Parser::next() {
  if (failed_) return *failed_;
  for (;;) {
    Value out;
    TRY_ASSIGN(const Step did, step(out));
    if (did == Step::need_more) {
      starved_ = true;
      return std::optional<Value>();
    }
    if (did == Step::again) continue;
    reply_bytes_ = 0;
    reply_elements_ = 0;
    if (out.type() != Type::push) offered_ = {};
    return std::optional<Value>(std::move(out));
  }
}

// Whole lines only. A carriage return or line feed of its own is malformed in every line of the
// protocol. The limit is judged first, and by nothing but where the line's end is, so that the
// verdict on given bytes does not depend on the pieces in which they came.
Result<std::optional<std::string_view>> Parser::take_line() {
  const char* from = reinterpret_cast<const char*>(in_.data()) + begin_;
  const std::string_view text(from, unread());
  const std::size_t at = std::min(text.find_first_of("\r\n", scanned_), text.size());
  if (at > limits_.line_bytes_max) return fail(Errc::too_large, "RESP line");
  if (at == text.size() || (at + 1 == text.size() && text[at] == '\r')) {
    scanned_ = at;
    return std::optional<std::string_view>();
  }
  if (text[at] != '\r' || text[at + 1] != '\n') return fail(Errc::protocol, "RESP line end");
  begin_ += at + 2;
  scanned_ = 0;
  return std::optional<std::string_view>(text.substr(0, at));
}

Result<Parser::Step> Parser::step(Value& out) {
  if (bulk_.type != 0) return continue_bulk(out);
  if (unread() == 0) {
    begin_ = end_ = 0;
    return Step::need_more;
  }
  // The type is judged before the line is whole: rubbish is refused at its first byte.
  const char type = static_cast<char>(in_[begin_]);
  if (std::string_view("$*:+-_#,(!=%~|>").find(type) == std::string_view::npos) {
    return fail(Errc::protocol, "RESP type");
  }
  if (is_resp3_only(type) && !limits_.resp3) return fail(Errc::protocol, "RESP3 type in RESP2");
  TRY_ASSIGN(const std::optional<std::string_view> line, take_line());
  if (!line) return Step::need_more;
  const std::string_view body = line->substr(1);
  switch (type) {
    case '$':
    case '!':
    case '=':
      return begin_bulk(type, body, out);
    case '*':
    case '%':
    case '~':
    case '|':
    case '>':
      return begin_aggregate(type, body, out);
    default:
      break;
  }
  TRY_ASSIGN(Value value, scalar(type, body));
  return deliver(std::move(value), out);
}

Result<Value> Parser::scalar(char type, std::string_view line) {
  TRY(count_bytes(line.size()));
  switch (type) {
    case '+':
      return Value::text_of(Type::simple, line);
    case '-':
      return Value::text_of(Type::error, line);
    case '_':
      if (!line.empty()) return fail(Errc::protocol, "RESP null");
      return Value();
    case '#':
      if (line != "t" && line != "f") return fail(Errc::protocol, "RESP boolean");
      return Value::boolean_of(line == "t");
    case ':': {
      const auto integer = parse_integer(line);
      if (!integer) return fail(Errc::protocol, "RESP integer");
      return Value::integer_of(*integer);
    }
    case ',': {
      const auto real = parse_real(line);
      if (!real) return fail(Errc::protocol, "RESP double");
      return Value::real_of(*real);
    }
    default:
      ASSERT(type == '(');
      if (!is_big_number(line)) return fail(Errc::protocol, "RESP big number");
      return Value::text_of(Type::big_number, line);
  }
}

Status Parser::count_bytes(std::uint64_t bytes) {
  if (bytes > limits_.reply_bytes_max - reply_bytes_) return fail(Errc::too_large, "RESP reply");
  reply_bytes_ += bytes;
  return {};
}

Result<Parser::Step> Parser::begin_bulk(char type, std::string_view digits, Value& out) {
  if (type == '$' && digits == "-1") return deliver(Value(), out);
  const auto length = parse_count(digits);
  if (!length) return fail(Errc::protocol, "RESP bulk length");
  if (*length > limits_.bulk_bytes_max || *length > std::numeric_limits<std::ptrdiff_t>::max()) {
    return fail(Errc::too_large, "RESP bulk string");
  }
  if (type == '=' && *length < 4) return fail(Errc::protocol, "RESP verbatim string");
  TRY(count_bytes(*length));
  const bool in_push = !frames_.empty() && frames_.front().value.type_ == Type::push;
  const bool in_attribute =
      std::ranges::any_of(frames_, [](const Frame& f) { return f.attribute; });
  bulk_ = Bulk{};
  bulk_.type = type;
  bulk_.length = *length;
  if (type == '$' && !in_push && !in_attribute && offered_.data() != nullptr) {
    // Only the first bulk string may use the offer, whether it fits or not.
    if (*length <= offered_.size())
      bulk_.target = offered_.first(static_cast<std::size_t>(*length));
    offered_ = {};
  }
  return continue_bulk(out);
}

// Room for what was received already and as much again, so that memory stays in proportion to what
// has arrived.
Status Parser::grow_bulk() {
  const std::uint64_t doubled = std::max<std::uint64_t>(bulk_.received * 2, kBulkFirstBytes);
  const std::uint64_t wanted = std::min(bulk_.length, doubled);
  if (bulk_.bytes.reserve(static_cast<std::size_t>(wanted))) return {};
  return fail(Errc::no_memory, "RESP bulk string");
}

Result<Parser::Step> Parser::continue_bulk(Value& out) {
  const bool owned = bulk_.target.data() == nullptr;
  while (bulk_.received < bulk_.length) {
    if (owned && bulk_.bytes.tail().empty()) TRY(grow_bulk());
    const std::uint64_t room =
        owned ? bulk_.bytes.tail().size() : bulk_.target.size() - bulk_.received;
    const auto part = static_cast<std::size_t>(
        std::min<std::uint64_t>({unread(), room, bulk_.length - bulk_.received}));
    if (part == 0) return Step::need_more;
    std::byte* to = owned ? bulk_.bytes.tail().data() : bulk_.target.data() + bulk_.received;
    std::memcpy(to, in_.data() + begin_, part);
    if (owned) bulk_.bytes.grew(part);
    bulk_.received += part;
    begin_ += part;
  }
  if (unread() >= 1 && in_[begin_] != std::byte{'\r'}) return fail(Errc::protocol, "RESP bulk end");
  if (unread() < 2) return Step::need_more;
  if (in_[begin_ + 1] != std::byte{'\n'}) return fail(Errc::protocol, "RESP bulk end");
  begin_ += 2;

  const char type = std::exchange(bulk_.type, '\0');
  ByteBuffer bytes = owned ? std::move(bulk_.bytes) : ByteBuffer::borrow(bulk_.target);
  if (type == '!') return deliver(Value::text_of(Type::error, std::move(bytes)), out);
  if (type == '$') return deliver(Value::text_of(Type::bulk, std::move(bytes)), out);
  const std::string format(bytes.text().substr(0, 3));
  if (bytes.text()[3] != ':') return fail(Errc::protocol, "RESP verbatim string");
  bytes.drop_front(4);
  return deliver(Value::verbatim_of(format, std::move(bytes)), out);
}

Result<Parser::Step> Parser::begin_aggregate(char type, std::string_view digits, Value& out) {
  if (type == '*' && digits == "-1") return deliver(Value(), out);
  const auto count = parse_count(digits);
  if (!count) return fail(Errc::protocol, "RESP aggregate length");
  if (type == '>' && !frames_.empty()) return fail(Errc::protocol, "RESP push inside a reply");
  const bool pairs = type == '%' || type == '|';
  if (*count > limits_.elements_max / (pairs ? 2 : 1))
    return fail(Errc::too_large, "RESP elements");
  const std::uint64_t elements = pairs ? *count * 2 : *count;
  if (elements > limits_.elements_max - reply_elements_)
    return fail(Errc::too_large, "RESP elements");
  reply_elements_ += elements;
  if (frames_.size() >= limits_.depth_max) return fail(Errc::too_large, "RESP depth");

  Frame frame;
  frame.remaining = elements;
  frame.attribute = type == '|';
  frame.value.type_ = type == '*'   ? Type::array
                      : type == '~' ? Type::set
                      : type == '>' ? Type::push
                                    : Type::map;
  if (elements == 0) {
    if (frame.attribute) return Step::again;
    return deliver(std::move(frame.value), out);
  }
  if (!frame.attribute) {
    std::vector<Value>& pending = frames_.empty() ? attributes_ : frames_.back().attributes;
    frame.value.add_attributes(std::exchange(pending, {}));
  }
  frame.value.items_.reserve(
      static_cast<std::size_t>(std::min<std::uint64_t>(elements, kItemsReserveMax)));
  frames_.push_back(std::move(frame));
  return Step::again;
}

// Puts a whole value where it belongs, and with it every aggregate that it completes.
Result<Parser::Step> Parser::deliver(Value&& value, Value& out) {
  std::vector<Value>& pending = frames_.empty() ? attributes_ : frames_.back().attributes;
  value.add_attributes(std::exchange(pending, {}));
  Value current = std::move(value);
  while (!frames_.empty()) {
    Frame& frame = frames_.back();
    frame.value.items_.push_back(std::move(current));
    if (--frame.remaining > 0) return Step::again;
    Frame done = std::move(frames_.back());
    frames_.pop_back();
    if (done.attribute) {
      std::vector<Value>& outside = frames_.empty() ? attributes_ : frames_.back().attributes;
      std::ranges::move(done.value.items_, std::back_inserter(outside));
      return Step::again;
    }
    current = std::move(done.value);
  }
  out = std::move(current);
  return Step::value_done;
}

}  // namespace farlift::resp
