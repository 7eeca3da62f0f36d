// Jwt: the proof that somebody may read or write one fid: a compact HS256 token with the claims
// "fid" and "exp" (spec s3 8.2).
//
// Invariants: HS256 alone is accepted, whatever the header asks for; the signature is compared in
//             constant time and before a claim is looked at; no leeway: a token is good while
//             now < exp.
// Threads:    pure functions. Errors: a verdict.
#pragma once

#include "core/digest/hash.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace farlift::s3 {

inline constexpr std::size_t kJwtLengthMax = 4096;

std::string sign_jwt(const digest::HmacKey& key, std::string_view fid, std::uint64_t expires_s);

enum class JwtVerdict : std::uint8_t { valid, missing, invalid, expired, wrong_fid };

// `fid` as the request names it; a "_n" suffix is taken off. An empty `jwt` is missing.
JwtVerdict check_jwt(const digest::HmacKey& key, std::string_view jwt, std::string_view fid,
                     std::uint64_t now_s);

}  // namespace farlift::s3
