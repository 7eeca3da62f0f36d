// The operations of S3 that are served, and which of them a request means.
//
// Invariants: every request means exactly one operation; what S3 has and we have not is one that
// answers
//             NotImplemented, and needs the right to do it all the same.
// Threads:    pure look-up; operations run on the server's workers.
#pragma once

#include "s3/gateway/call.h"

namespace farlift::s3::gateway {

struct Operation {
  const char* log_name;  // "REST.GET.OBJECT"
  const char* action;    // what a policy must allow, "s3:GetObject"
  S3Status (*run)(Call& call);
};

const Operation& operation_of(const Call& call);

// Buckets (ops_buckets.cc)
S3Status list_buckets(Call& call);
S3Status create_bucket(Call& call);
S3Status delete_bucket(Call& call);
S3Status head_bucket(Call& call);
S3Status bucket_location(Call& call);
S3Status get_versioning(Call& call);
S3Status put_versioning(Call& call);
// Listings (ops_lists.cc)
S3Status list_objects(Call& call);  // version 1
S3Status list_objects_v2(Call& call);
S3Status list_object_versions(Call& call);
// Objects (ops_objects.cc, ops_put.cc, ops_copy.cc)
S3Status get_object(Call& call);  // and HEAD
S3Status put_object(Call& call);
S3Status copy_object(Call& call);
S3Status delete_object(Call& call);
S3Status delete_objects(Call& call);
S3Status get_tagging(Call& call);
S3Status put_tagging(Call& call);
S3Status delete_tagging(Call& call);
// Uploads in parts (ops_multipart.cc)
S3Status create_upload(Call& call);
S3Status upload_part(Call& call);
S3Status upload_part_copy(Call& call);
S3Status complete_upload(Call& call);
S3Status abort_upload(Call& call);
S3Status list_parts(Call& call);
S3Status list_uploads(Call& call);

S3Status not_implemented(Call& call);
S3Status method_not_allowed(Call& call);

}  // namespace farlift::s3::gateway
