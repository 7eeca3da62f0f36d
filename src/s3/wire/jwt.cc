#include "s3/wire/jwt.h"

#include "core/codec/json.h"
#include "core/codec/text.h"
#include "s3/wire/fid.h"

#include <optional>
#include <span>

namespace farlift::s3 {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string encode_part(std::string_view json) { return codec::base64url_encode(bytes_of(json)); }

std::optional<codec::Json> decode_part(std::string_view part) {
  const auto bytes = codec::base64url_decode(part);
  if (!bytes.ok()) return std::nullopt;
  auto json = codec::Json::parse(
      std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size()));
  if (!json.ok() || json->object() == nullptr) return std::nullopt;
  return std::move(json).value();
}

const std::string* text_of(const codec::Json& object, std::string_view name) noexcept {
  const codec::Json* member = object.find(name);
  return member == nullptr ? nullptr : member->text();
}

}  // namespace

std::string sign_jwt(const digest::HmacKey& key, std::string_view fid, std::uint64_t expires_s) {
  codec::JsonWriter claims;
  claims.begin_object().key("fid").text(fid).key("exp").number(expires_s).end_object();
  std::string jwt = encode_part(R"({"alg":"HS256","typ":"JWT"})") + "." + encode_part(claims.str());
  jwt += "." + codec::base64url_encode(key.tag(bytes_of(jwt)));
  return jwt;
}

JwtVerdict check_jwt(const digest::HmacKey& key, std::string_view jwt, std::string_view fid,
                     std::uint64_t now_s) {
  if (jwt.empty()) return JwtVerdict::missing;
  if (jwt.size() > kJwtLengthMax) return JwtVerdict::invalid;
  const std::size_t first = jwt.find('.');
  const std::size_t second = first == std::string_view::npos ? first : jwt.find('.', first + 1);
  if (second == std::string_view::npos || jwt.find('.', second + 1) != std::string_view::npos)
    return JwtVerdict::invalid;
  const auto signature = codec::base64url_decode(jwt.substr(second + 1));
  if (!signature.ok() || !digest::equal(*signature, key.tag(bytes_of(jwt.substr(0, second))))) {
    return JwtVerdict::invalid;
  }
  const auto header = decode_part(jwt.substr(0, first));
  const std::string* algorithm = header ? text_of(*header, "alg") : nullptr;
  if (algorithm == nullptr || *algorithm != "HS256") return JwtVerdict::invalid;
  const auto claims = decode_part(jwt.substr(first + 1, second - first - 1));
  if (!claims) return JwtVerdict::invalid;
  const codec::Json* expires = claims->find("exp");
  const std::string* named = text_of(*claims, "fid");
  if (expires == nullptr || !expires->u64() || named == nullptr) return JwtVerdict::invalid;
  if (now_s >= *expires->u64()) return JwtVerdict::expired;
  return *named == fid_without_suffix(fid) ? JwtVerdict::valid : JwtVerdict::wrong_fid;
}

}  // namespace farlift::s3
