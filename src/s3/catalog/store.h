// Store: what exists. Buckets, versions of objects with their chunks, uploads with their parts, and
// a ledger of every fid that no object owns: assigned and not yet published, or no longer needed.
//
//   TRY(store.reserve(fids));                       // before any of them is written to
//   TRY_ASSIGN(auto done, store.publish(bucket, object, conditions));   // they belong to it now
//   store.discard(fids);                            // or to nobody: the sweep deletes them
//
// Invariants: each change is one transaction, durable when the call returns: after a crash there is
// the
//             old state or the new one. Every fid is owned by exactly one object, one part, or the
//             ledger. What a change replaces goes to the ledger in the same transaction.
//             A look-up of a reader that holds a ReadLease never sees its chunks swept.
// Threads:    any.
// Errors:     not_found with `where` naming what is missing (kNo...); already_exists (bucket);
//             busy (bucket not empty); aborted (a condition does not hold: kCondition);
//             invalid_argument (kBadPart, kBadOrder, kSmallPart, kBadSum); exhausted (disk full);
//             permission (a disk that cannot be written); io, corrupt. Failure of a change means
//             that it did not happen, unless the code is `io`: then it may have.
#pragma once

#include "core/base/result.h"
#include "s3/catalog/record.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::s3::catalog {

// `where` of errors; compare the pointers.
inline constexpr char kNoBucket[] = "bucket";
inline constexpr char kNoKey[] = "key";
inline constexpr char kNoVersion[] = "version";
inline constexpr char kNoUpload[] = "upload";
inline constexpr char kCondition[] = "condition";
inline constexpr char kBadPart[] = "part";
inline constexpr char kBadOrder[] = "part order";
inline constexpr char kSmallPart[] = "part size";
inline constexpr char kBadSum[] = "checksum of the whole";

inline constexpr std::size_t kPageMax = 1000;  // keys, versions, parts or uploads of one listing
inline constexpr std::uint32_t kPartNumberMax = 10000;
inline constexpr std::uint64_t kPartSizeMin = std::uint64_t{5} << 20;  // but for the last

// What must hold of the current version at the moment of a change. ETags without quotes; "*" means
// any.
struct Conditions {
  std::vector<std::string> if_match;       // empty: no condition
  std::vector<std::string> if_none_match;  // empty: no condition
};

struct Published {
  std::string version = kNullVersion;
  Versioning versioning = Versioning::never;  // of the bucket, at that moment
};

struct Removed {
  std::string version;  // of what was removed, or of the marker made; empty: nothing was there
  bool marker = false;  // a marker was made, or the removed one was a marker
  Versioning versioning = Versioning::never;
};

struct ListQuery {
  std::string prefix;
  std::string delimiter;
  std::string after;  // keys after this one, exclusive
  // With versions: those of the key `after` that come after this version.
  std::string after_version;
  std::size_t limit = kPageMax;
};

struct Page {
  std::vector<Listed> entries;
  std::vector<std::string> prefixes;  // common ones, in order
  bool truncated = false;
  std::string next;  // the last key or common prefix of this page
  std::string next_version;
};

struct UploadPage {
  std::vector<Upload> uploads;
  std::vector<std::string> prefixes;
  bool truncated = false;
  std::string next_key;
  std::string next_id;
};

struct PartPage {
  Upload upload;
  std::vector<Part> parts;  // without chunks
  bool truncated = false;
};

struct WantedPart {
  std::uint32_t number = 0;
  std::string etag;
  std::optional<Checksum> checksum;
};

// While it lives, nothing that was in use when it was made is given to the sweep.
class ReadLease {
 public:
  virtual ~ReadLease() = default;
};

class Store {
 public:
  virtual ~Store() = default;

  virtual Status create_bucket(const Bucket& bucket) = 0;
  virtual Result<Bucket> bucket(std::string_view name) = 0;
  virtual Result<std::vector<Bucket>> buckets() = 0;        // by name
  virtual Status delete_bucket(std::string_view name) = 0;  // open uploads do not hold it
  virtual Status set_versioning(std::string_view name, Versioning versioning) = 0;

  virtual std::unique_ptr<ReadLease> lease() = 0;
  // `version` empty: the current one, which may be a delete marker.
  virtual Result<Object> find(std::string_view bucket, std::string_view key,
                              std::string_view version) = 0;
  // Takes key, size, etag and everything after them from `object`; its fids leave the ledger.
  virtual Result<Published> publish(std::string_view bucket, const Object& object,
                                    const Conditions& conditions) = 0;
  // `version` empty: makes a marker where versions are kept, else removes.
  virtual Result<Removed> remove(std::string_view bucket, std::string_view key,
                                 std::string_view version, const Conditions& conditions) = 0;
  virtual Status set_tags(std::string_view bucket, std::string_view key, std::string_view version,
                          const Fields& tags) = 0;

  virtual Result<Page> list(std::string_view bucket, const ListQuery& query) = 0;
  virtual Result<Page> list_versions(std::string_view bucket, const ListQuery& query) = 0;

  virtual Status create_upload(const Upload& upload) = 0;
  virtual Result<Upload> upload(std::string_view bucket, std::string_view key,
                                std::string_view id) = 0;
  virtual Status put_part(std::string_view bucket, std::string_view key, std::string_view id,
                          const Part& part) = 0;
  virtual Result<PartPage> list_parts(std::string_view bucket, std::string_view key,
                                      std::string_view id, std::uint32_t after,
                                      std::size_t limit) = 0;
  // The parts wanted, with chunks, if they are all there, in order, and of a sufficient size.
  virtual Result<std::vector<Part>> parts(std::string_view bucket, std::string_view key,
                                          std::string_view id,
                                          std::span<const WantedPart> wanted) = 0;
  // Makes `object` of the parts named; `object`'s chunks and parts are filled in here. Parts that
  // are not named are discarded, the upload ends.
  virtual Result<Published> complete_upload(std::string_view bucket, std::string_view key,
                                            std::string_view id, std::span<const WantedPart> wanted,
                                            Object object, const Conditions& conditions) = 0;
  virtual Status abort_upload(std::string_view bucket, std::string_view key,
                              std::string_view id) = 0;
  // `query.after_version` is an upload id.
  virtual Result<UploadPage> list_uploads(std::string_view bucket, const ListQuery& query) = 0;

  // The ledger.
  virtual Status reserve(std::span<const std::string> fids) = 0;
  // To be deleted. `doubtful`: a write to them may still be on its way, so they are deleted twice.
  virtual Status discard(std::span<const std::string> fids, bool doubtful) = 0;
  // What may be deleted now, oldest first. Leases hold back what was in use when they began.
  virtual Result<std::vector<std::string>> garbage(std::size_t limit) = 0;
  // They are gone from the volumes (or were never there).
  virtual Status forget(std::span<const std::string> fids) = 0;
  // Deleting failed for now: tried again later.
  virtual Status postpone(std::span<const std::string> fids) = 0;
  struct LedgerCounts {
    std::uint64_t reserved = 0;
    std::uint64_t garbage = 0;
  };
  virtual Result<LedgerCounts> ledger() = 0;
  // `count` needle ids that nobody gets again; the first.
  virtual Result<std::uint64_t> take_needle_ids(std::uint64_t count) = 0;
  // Whether an object or part owns the fid; after a publish whose outcome is unknown.
  virtual Result<bool> owned(std::string_view fid) = 0;
};

}  // namespace farlift::s3::catalog
