#include "s3/gateway/operations.h"

#include <array>

namespace farlift::s3::gateway {

namespace {

// What of S3 is not served: a sub-resource named in the query.
constexpr std::array kMissing = {"accelerate",
                                 "acl",
                                 "analytics",
                                 "attributes",
                                 "cors",
                                 "encryption",
                                 "inventory",
                                 "legal-hold",
                                 "lifecycle",
                                 "logging",
                                 "metadataTable",
                                 "metrics",
                                 "notification",
                                 "object-lock",
                                 "ownershipControls",
                                 "policy",
                                 "policyStatus",
                                 "publicAccessBlock",
                                 "replication",
                                 "requestPayment",
                                 "restore",
                                 "retention",
                                 "select",
                                 "session",
                                 "torrent",
                                 "website",
                                 "intelligent-tiering",
                                 "renameObject"};

constexpr Operation kMissingBucket{"REST.OTHER.BUCKET", "s3:*", not_implemented};
constexpr Operation kMissingObject{"REST.OTHER.OBJECT", "s3:*", not_implemented};
constexpr Operation kWrongMethod{"REST.OTHER", "s3:*", method_not_allowed};

constexpr Operation kListBuckets{"REST.GET.SERVICE", "s3:ListAllMyBuckets", list_buckets};
constexpr Operation kCreateBucket{"REST.PUT.BUCKET", "s3:CreateBucket", create_bucket};
constexpr Operation kDeleteBucket{"REST.DELETE.BUCKET", "s3:DeleteBucket", delete_bucket};
constexpr Operation kHeadBucket{"REST.HEAD.BUCKET", "s3:ListBucket", head_bucket};
constexpr Operation kLocation{"REST.GET.LOCATION", "s3:GetBucketLocation", bucket_location};
constexpr Operation kGetVersioning{"REST.GET.VERSIONING", "s3:GetBucketVersioning", get_versioning};
constexpr Operation kPutVersioning{"REST.PUT.VERSIONING", "s3:PutBucketVersioning", put_versioning};
constexpr Operation kList{"REST.GET.BUCKET", "s3:ListBucket", list_objects};
constexpr Operation kList2{"REST.GET.BUCKET", "s3:ListBucket", list_objects_v2};
constexpr Operation kListVersions{"REST.GET.BUCKETVERSIONS", "s3:ListBucketVersions",
                                  list_object_versions};
constexpr Operation kListUploads{"REST.GET.UPLOADS", "s3:ListBucketMultipartUploads", list_uploads};
constexpr Operation kDeleteMany{"REST.POST.MULTI_OBJECT_DELETE", "s3:DeleteObject", delete_objects};
constexpr Operation kGet{"REST.GET.OBJECT", "s3:GetObject", get_object};
constexpr Operation kHead{"REST.HEAD.OBJECT", "s3:GetObject", get_object};
constexpr Operation kPut{"REST.PUT.OBJECT", "s3:PutObject", put_object};
constexpr Operation kCopy{"REST.COPY.OBJECT", "s3:PutObject", copy_object};
constexpr Operation kDelete{"REST.DELETE.OBJECT", "s3:DeleteObject", delete_object};
constexpr Operation kGetTagging{"REST.GET.OBJECT_TAGGING", "s3:GetObjectTagging", get_tagging};
constexpr Operation kPutTagging{"REST.PUT.OBJECT_TAGGING", "s3:PutObjectTagging", put_tagging};
constexpr Operation kDeleteTagging{"REST.DELETE.OBJECT_TAGGING", "s3:DeleteObjectTagging",
                                   delete_tagging};
constexpr Operation kCreateUpload{"REST.POST.UPLOADS", "s3:PutObject", create_upload};
constexpr Operation kPart{"REST.PUT.PART", "s3:PutObject", upload_part};
constexpr Operation kPartCopy{"REST.COPY.PART", "s3:PutObject", upload_part_copy};
constexpr Operation kComplete{"REST.POST.UPLOAD", "s3:PutObject", complete_upload};
constexpr Operation kAbort{"REST.DELETE.UPLOAD", "s3:AbortMultipartUpload", abort_upload};
constexpr Operation kListParts{"REST.GET.UPLOAD", "s3:ListMultipartUploadParts", list_parts};

const Operation& bucket_operation(const Call& call, const std::string& method) {
  const Query& query = call.query();
  if (method == "GET") {
    if (query.has("location")) return kLocation;
    if (query.has("versioning")) return kGetVersioning;
    if (query.has("versions")) return kListVersions;
    if (query.has("uploads")) return kListUploads;
    if (query.has("tagging")) return kMissingBucket;
    return query.get("list-type") == "2" ? kList2 : kList;
  }
  if (method == "PUT") {
    if (query.has("versioning")) return kPutVersioning;
    return query.has("tagging") ? kMissingBucket : kCreateBucket;
  }
  if (method == "HEAD") return kHeadBucket;
  if (method == "DELETE") return query.has("tagging") ? kMissingBucket : kDeleteBucket;
  // Without ?delete it is a form from a browser.
  if (method == "POST") return query.has("delete") ? kDeleteMany : kMissingBucket;
  return kWrongMethod;
}

const Operation& object_operation(const Call& call, const std::string& method) {
  const Query& query = call.query();
  const bool tagging = query.has("tagging");
  const bool upload = query.has("uploadId");
  if (method == "GET") return tagging ? kGetTagging : upload ? kListParts : kGet;
  if (method == "HEAD") return kHead;
  if (method == "PUT") {
    const bool copy = !call.header("x-amz-copy-source").empty();
    if (tagging) return kPutTagging;
    if (upload) return copy ? kPartCopy : kPart;
    return copy ? kCopy : kPut;
  }
  if (method == "DELETE") return tagging ? kDeleteTagging : upload ? kAbort : kDelete;
  if (method == "POST")
    return query.has("uploads") ? kCreateUpload : upload ? kComplete : kMissingObject;
  return kWrongMethod;
}

}  // namespace

const Operation& operation_of(const Call& call) {
  // HEAD may only be asked of a bucket or an object.
  const std::string& method = const_cast<Call&>(call).request().method();
  if (call.bucket().empty()) return method == "GET" ? kListBuckets : kWrongMethod;
  const bool object = !call.key().empty();
  for (const char* name : kMissing) {
    if (call.query().has(name)) return object ? kMissingObject : kMissingBucket;
  }
  return object ? object_operation(call, method) : bucket_operation(call, method);
}

S3Status not_implemented(Call& call) {
  static_cast<void>(call);
  return refuse(S3Code::not_implemented, "This operation of S3 is not implemented here.");
}

S3Status method_not_allowed(Call& call) {
  static_cast<void>(call);
  return refuse(S3Code::method_not_allowed);
}

}  // namespace farlift::s3::gateway
