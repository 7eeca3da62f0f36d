#include "s3/gateway/s3_error.h"

#include "s3/gateway/xml.h"

#include <algorithm>
#include <array>

namespace farlift::s3::gateway {
namespace {

struct Row {
  S3Code code;
  std::uint32_t status;
  std::string_view name;
  std::string_view text;
};

constexpr std::array kRows = {
    Row{S3Code::access_denied, 403, "AccessDenied", "Access denied."},
    Row{S3Code::authorization_header_malformed, 400, "AuthorizationHeaderMalformed",
        "The Authorization header is malformed."},
    Row{S3Code::authorization_query_malformed, 400, "AuthorizationQueryParametersError",
        "The query parameters that carry the signature are malformed."},
    Row{S3Code::bad_digest, 400, "BadDigest",
        "The digest that was sent does not match the content that was received."},
    Row{S3Code::bucket_already_exists, 409, "BucketAlreadyExists",
        "A bucket of this name exists and belongs to somebody else."},
    Row{S3Code::bucket_already_owned_by_you, 409, "BucketAlreadyOwnedByYou",
        "You have a bucket of this name already."},
    Row{S3Code::bucket_not_empty, 409, "BucketNotEmpty", "The bucket is not empty."},
    Row{S3Code::entity_too_large, 400, "EntityTooLarge",
        "The upload is larger than the largest allowed."},
    Row{S3Code::entity_too_small, 400, "EntityTooSmall",
        "A part that is not the last is smaller than 5 MiB."},
    Row{S3Code::expired_token, 400, "ExpiredToken", "The token has expired."},
    Row{S3Code::incomplete_body, 400, "IncompleteBody",
        "The body is shorter or longer than the headers say."},
    Row{S3Code::internal_error, 500, "InternalError",
        "Something failed on our side; the request may be repeated."},
    Row{S3Code::invalid_access_key_id, 403, "InvalidAccessKeyId", "There is no such access key."},
    Row{S3Code::invalid_argument, 400, "InvalidArgument", "An argument is invalid."},
    Row{S3Code::invalid_bucket_name, 400, "InvalidBucketName",
        "A bucket's name has 3 to 63 lower-case letters, digits, dots and hyphens."},
    Row{S3Code::invalid_digest, 400, "InvalidDigest", "Content-MD5 is no base64 of 16 bytes."},
    Row{S3Code::invalid_part, 400, "InvalidPart",
        "A part of the list was not uploaded, or its ETag is another."},
    Row{S3Code::invalid_part_order, 400, "InvalidPartOrder",
        "The parts are not in ascending order."},
    Row{S3Code::invalid_range, 416, "InvalidRange", "The range lies outside the object."},
    Row{S3Code::invalid_rdma_token, 400, "InvalidRDMAToken", "The RDMA token is malformed."},
    Row{S3Code::invalid_part_number, 416, "InvalidPartNumber", "The object has no such part."},
    Row{S3Code::invalid_request, 400, "InvalidRequest", "The request is invalid."},
    Row{S3Code::invalid_storage_class, 400, "InvalidStorageClass",
        "There is one storage class here, STANDARD."},
    Row{S3Code::invalid_tag, 400, "InvalidTag", "The tags are malformed."},
    Row{S3Code::invalid_uri, 400, "InvalidURI", "The URI cannot be decoded."},
    Row{S3Code::key_too_long, 400, "KeyTooLongError", "The key is longer than 1024 bytes."},
    Row{S3Code::malformed_xml, 400, "MalformedXML",
        "The XML is not well-formed, or not what this operation takes."},
    Row{S3Code::metadata_too_large, 400, "MetadataTooLarge",
        "Names and values of user metadata have at most 2048 bytes together."},
    Row{S3Code::method_not_allowed, 405, "MethodNotAllowed",
        "The method is not allowed for this resource."},
    Row{S3Code::missing_content_length, 411, "MissingContentLength",
        "The length of the body is needed."},
    Row{S3Code::no_such_bucket, 404, "NoSuchBucket", "There is no such bucket."},
    Row{S3Code::no_such_key, 404, "NoSuchKey", "There is no such key."},
    Row{S3Code::no_such_tag_set, 404, "NoSuchTagSet", "There are no tags."},
    Row{S3Code::no_such_upload, 404, "NoSuchUpload",
        "There is no such multipart upload; it may have been completed or aborted."},
    Row{S3Code::no_such_version, 404, "NoSuchVersion", "There is no such version."},
    Row{S3Code::not_implemented, 501, "NotImplemented", "This is not implemented here."},
    Row{S3Code::not_modified, 304, "NotModified", ""},
    Row{S3Code::precondition_failed, 412, "PreconditionFailed",
        "A condition of the request does not hold."},
    Row{S3Code::request_time_too_skewed, 403, "RequestTimeTooSkewed",
        "The time of the request and ours differ too much."},
    Row{S3Code::request_timeout, 400, "RequestTimeout", "The body did not arrive in time."},
    Row{S3Code::service_unavailable, 503, "ServiceUnavailable",
        "A part of the service cannot be reached; try again."},
    Row{S3Code::signature_does_not_match, 403, "SignatureDoesNotMatch",
        "The signature is not the one that we calculate; check the secret key and how it is "
        "signed."},
    Row{S3Code::slow_down, 503, "SlowDown", "Too much at once; try again more slowly."},
    Row{S3Code::content_sha256_mismatch, 400, "XAmzContentSHA256Mismatch",
        "The body has another SHA-256 than x-amz-content-sha256 says."},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<std::size_t>(kRows[i].code) != i) return false;
  }
  return true;
}
static_assert(in_order(), "one row a code, in the order of the enumeration");

const Row& row_of(S3Code code) noexcept { return kRows[static_cast<std::size_t>(code)]; }

}  // namespace

std::uint32_t S3Error::status() const noexcept { return row_of(code).status; }
std::string_view S3Error::name() const noexcept { return row_of(code).name; }
std::string_view S3Error::text() const noexcept {
  return message.empty() ? row_of(code).text : std::string_view(message);
}

S3Error s3_error_of(const Error& error) {
  switch (error.code) {
    case Errc::exhausted:
    case Errc::again:
    case Errc::busy:
      return refuse(S3Code::slow_down);
    case Errc::timeout:
    case Errc::unreachable:
    case Errc::connection_lost:
    case Errc::closed:
      return refuse(S3Code::service_unavailable);
    default:
      return refuse(S3Code::internal_error);
  }
}

std::string error_xml(const S3Error& error, std::string_view resource,
                      std::string_view request_id) {
  XmlWriter xml;
  xml.open("Error").element("Code", error.name()).element("Message", error.text());
  for (const auto& [name, value] : error.elements) xml.element(name, value);
  xml.element("Resource", resource).element("RequestId", request_id).close("Error");
  return std::move(xml).finish();
}

}  // namespace farlift::s3::gateway
