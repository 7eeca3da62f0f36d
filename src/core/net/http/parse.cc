// Parsing of heads by Boost.Beast, without its I/O: the one file that includes it, since it is dear
// to compile.
#include "core/net/http/message.h"

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

#include <algorithm>
#include <limits>

namespace farlift::net::http {
namespace {

namespace beast = boost::beast;

template <bool kRequest>
using Parser = beast::http::parser<kRequest, beast::http::empty_body>;

Refusal refusal_of(const beast::error_code& why) {
  using beast::http::error;
  if (why == error::header_limit) return {431, "the header is too large"};
  if (why == error::bad_version) return {505, "only HTTP/1.0 and HTTP/1.1 are spoken here"};
  if (why == error::bad_content_length || why == error::multiple_content_length)
    return {400, "Content-Length is not one decimal number"};
  return {400, "the header is malformed: " + why.message()};
}

std::string text_of(beast::string_view text) { return std::string(text.data(), text.size()); }

// How long the body is, said in one way only: two sayings are how requests are smuggled.
template <class Head>
std::optional<Refusal> frame(std::optional<std::uint64_t> parsed_length, bool http10, Head& head) {
  const std::size_t encodings = head.headers.count("Transfer-Encoding");
  const std::size_t lengths = head.headers.count("Content-Length");
  if (encodings > 0) {
    if (lengths > 0) return Refusal{400, "Transfer-Encoding and Content-Length exclude each other"};
    if (encodings > 1 || !same_name(head.headers.get("Transfer-Encoding"), "chunked"))
      return Refusal{501, "the only Transfer-Encoding known here is chunked"};
    if (http10) return Refusal{400, "HTTP/1.0 has no Transfer-Encoding"};
    head.chunked = true;
    return std::nullopt;
  }
  if (lengths == 0) return std::nullopt;
  const std::string_view text = head.headers.get("Content-Length");
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(),
                                                   [](char c) { return c >= '0' && c <= '9'; });
  if (lengths > 1 || !digits || !parsed_length.has_value())
    return Refusal{400, "Content-Length is not one decimal number"};
  head.content_length = parsed_length;
  return std::nullopt;
}

template <bool kRequest, class Head>
std::optional<Refusal> fill(Parser<kRequest>& parser, std::string_view bytes, Head& head,
                            bool& http10) {
  parser.header_limit(std::numeric_limits<std::uint32_t>::max());  // ours was applied by the caller
  parser.body_limit(boost::none);
  beast::error_code error;
  const std::size_t used = parser.put(boost::asio::buffer(bytes.data(), bytes.size()), error);
  if (error) return refusal_of(error);
  if (!parser.is_header_done() || used != bytes.size())
    return Refusal{400, "the header is malformed"};
  const auto& message = parser.get();
  if (message.version() != 10 && message.version() != 11)
    return Refusal{505, "only HTTP/1.0 and HTTP/1.1 are spoken here"};
  http10 = message.version() == 10;
  for (const auto& field : message) {
    if (head.headers.all().size() >= kFieldsMax)
      return Refusal{431, "there are too many header fields"};
    head.headers.add(text_of(field.name_string()), text_of(field.value()));
  }
  std::optional<std::uint64_t> length;
  if (const auto parsed = parser.content_length()) length = *parsed;
  head.keep_alive = message.keep_alive();
  return frame(length, http10, head);
}

// "http://host/path" means "/path" (RFC 9112 3.2.2).
std::string origin_form(std::string target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() < scheme.size() || !same_name(target.substr(0, scheme.size()), scheme))
      continue;
    const std::size_t path = target.find_first_of("/?", scheme.size());
    if (path == std::string::npos) return "/";
    return target[path] == '/' ? target.substr(path) : "/" + target.substr(path);
  }
  return target;
}

}  // namespace

std::variant<RequestHead, Refusal> parse_request_head(std::string_view bytes) {
  Parser<true> parser;
  RequestHead head;
  if (auto refusal = fill<true>(parser, bytes, head, head.http10)) return *std::move(refusal);
  head.method = text_of(parser.get().method_string());
  head.target = origin_form(text_of(parser.get().target()));
  if (head.target.empty() || (head.target[0] != '/' && head.target != "*"))
    return Refusal{400, "the request target must start with /"};
  if (head.headers.count("Host") > 1 || (!head.http10 && !head.headers.has("Host")))
    return Refusal{400, "a request has exactly one Host field"};
  if (const std::string* const expect = head.headers.find("Expect")) {
    if (!same_name(*expect, "100-continue"))
      return Refusal{417, "the only expectation known here is 100-continue"};
    head.expects_continue = !head.http10;
  }
  return head;
}

std::variant<ResponseHead, Refusal> parse_response_head(std::string_view bytes) {
  Parser<false> parser;
  parser.skip(true);  // whether there is a body depends on the request, which it does not know
  ResponseHead head;
  bool http10 = false;
  if (auto refusal = fill<false>(parser, bytes, head, http10)) return *std::move(refusal);
  head.status = parser.get().result_int();
  return head;
}

}  // namespace farlift::net::http
