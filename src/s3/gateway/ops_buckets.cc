#include "s3/gateway/operations.h"

namespace farlift::s3::gateway {

namespace {

constexpr std::size_t kSmallBodyMax = 64 * 1024;

S3Status existing(Call& call) {
  CATALOG_TRY(call.store().bucket(call.bucket()), call);
  return {};
}

}  // namespace

S3Status list_buckets(Call& call) {
  CATALOG_ASSIGN(const auto buckets, call.store().buckets(), call);
  XmlWriter xml;
  xml.root("ListAllMyBucketsResult").open("Owner").element("ID", call.owner());
  xml.element("DisplayName", call.owner()).close("Owner").open("Buckets");
  for (const catalog::Bucket& bucket : buckets) {
    xml.open("Bucket").element("Name", bucket.name);
    xml.element("CreationDate", iso_time(bucket.created_ms)).close("Bucket");
  }
  xml.close("Buckets").close("ListAllMyBucketsResult");
  return call.xml(std::move(xml).finish());
}

S3Status create_bucket(Call& call) {
  if (!valid_bucket_name(call.bucket())) return refuse(S3Code::invalid_bucket_name);
  TRY_ASSIGN(const std::string body, call.payload->read_all(kSmallBodyMax));
  if (!body.empty()) {
    TRY_ASSIGN(const std::string place, parse_create_bucket(body));
    if (!place.empty() && place != call.services().options.region) {
      return refuse(S3Code::invalid_argument,
                    "Buckets are made in the region " + call.services().options.region + ".");
    }
  }
  if (call.header("x-amz-bucket-object-lock-enabled") == "true")
    return refuse(S3Code::not_implemented, "Object lock is not implemented here.");
  catalog::Bucket bucket;
  bucket.name = call.bucket();
  bucket.owner = call.owner();
  bucket.created_ms = call.services().now_ms();
  const Status made = call.store().create_bucket(bucket);
  if (!made.ok() && made.code() == Errc::already_exists) {
    CATALOG_ASSIGN(const catalog::Bucket there, call.store().bucket(call.bucket()), call);
    return refuse(there.owner == call.owner() ? S3Code::bucket_already_owned_by_you
                                              : S3Code::bucket_already_exists);
  }
  CATALOG_TRY(made, call);
  return call.empty(200, {{"Location", "/" + call.bucket()}});
}

S3Status delete_bucket(Call& call) {
  CATALOG_TRY(call.store().delete_bucket(call.bucket()), call);
  return call.empty(204);
}

S3Status head_bucket(Call& call) {
  TRY(existing(call));
  return call.empty(200, {{"x-amz-bucket-region", call.services().options.region}});
}

S3Status bucket_location(Call& call) {
  TRY(existing(call));
  const std::string& region = call.services().options.region;
  XmlWriter xml;
  xml.root("LocationConstraint");
  // The first region of S3 has no name here.
  if (region != "us-east-1") xml.text(region);
  xml.close("LocationConstraint");
  return call.xml(std::move(xml).finish());
}

S3Status get_versioning(Call& call) {
  CATALOG_ASSIGN(const catalog::Bucket bucket, call.store().bucket(call.bucket()), call);
  XmlWriter xml;
  xml.root("VersioningConfiguration");
  if (bucket.versioning == catalog::Versioning::enabled) xml.element("Status", "Enabled");
  if (bucket.versioning == catalog::Versioning::suspended) xml.element("Status", "Suspended");
  xml.close("VersioningConfiguration");
  return call.xml(std::move(xml).finish());
}

S3Status put_versioning(Call& call) {
  TRY_ASSIGN(const std::string body, call.payload->read_all(kSmallBodyMax));
  TRY_ASSIGN(const std::string status, parse_versioning(body));
  const auto wanted =
      status == "Enabled" ? catalog::Versioning::enabled : catalog::Versioning::suspended;
  CATALOG_TRY(call.store().set_versioning(call.bucket(), wanted), call);
  return call.empty(200);
}

}  // namespace farlift::s3::gateway
