// Inside the SQLite catalog: what its source files share.
//
// Threads: see sqlite_store.h.
#pragma once

#include "core/base/mutex.h"
#include "core/base/unique_fd.h"
#include "s3/catalog/body.h"
#include "s3/catalog/sqlite.h"
#include "s3/catalog/sqlite_store.h"

#include <atomic>
#include <set>

namespace farlift::s3::catalog {

struct BucketRow {
  std::int64_t id = 0;
  Versioning versioning = Versioning::never;
};

// The smallest text that is larger than every text which begins with `prefix`; empty: there is
// none.
std::string after_all_of(std::string_view prefix);
std::string encode_object(const Object& object);
std::string new_version_id();

class SqliteStore final : public Store {
 public:
  SqliteStore(SqliteOptions options, UniqueFd lock, std::unique_ptr<Database> writer)
      : options_(std::move(options)), lock_(std::move(lock)), writer_(std::move(writer)) {}
  Status start();

  Status create_bucket(const Bucket& bucket) override;
  Result<Bucket> bucket(std::string_view name) override;
  Result<std::vector<Bucket>> buckets() override;
  Status delete_bucket(std::string_view name) override;
  Status set_versioning(std::string_view name, Versioning versioning) override;

  std::unique_ptr<ReadLease> lease() override;
  Result<Object> find(std::string_view bucket, std::string_view key,
                      std::string_view version) override;
  Result<Published> publish(std::string_view bucket, const Object& object,
                            const Conditions& conditions) override;
  Result<Removed> remove(std::string_view bucket, std::string_view key, std::string_view version,
                         const Conditions& conditions) override;
  Status set_tags(std::string_view bucket, std::string_view key, std::string_view version,
                  const Fields& tags) override;

  Result<Page> list(std::string_view bucket, const ListQuery& query) override;
  Result<Page> list_versions(std::string_view bucket, const ListQuery& query) override;

  Status create_upload(const Upload& upload) override;
  Result<Upload> upload(std::string_view bucket, std::string_view key,
                        std::string_view id) override;
  Status put_part(std::string_view bucket, std::string_view key, std::string_view id,
                  const Part& part) override;
  Result<PartPage> list_parts(std::string_view bucket, std::string_view key, std::string_view id,
                              std::uint32_t after, std::size_t limit) override;
  Result<std::vector<Part>> parts(std::string_view bucket, std::string_view key,
                                  std::string_view id, std::span<const WantedPart> wanted) override;
  Result<Published> complete_upload(std::string_view bucket, std::string_view key,
                                    std::string_view id, std::span<const WantedPart> wanted,
                                    Object object, const Conditions& conditions) override;
  Status abort_upload(std::string_view bucket, std::string_view key, std::string_view id) override;
  Result<UploadPage> list_uploads(std::string_view bucket, const ListQuery& query) override;

  Status reserve(std::span<const std::string> fids) override;
  Status discard(std::span<const std::string> fids, bool doubtful) override;
  Result<std::vector<std::string>> garbage(std::size_t limit) override;
  Status forget(std::span<const std::string> fids) override;
  Status postpone(std::span<const std::string> fids) override;
  Result<LedgerCounts> ledger() override;
  Result<std::uint64_t> take_needle_ids(std::uint64_t count) override;
  Result<bool> owned(std::string_view fid) override;

 private:
  class Lease;
  // A read connection, given back at the end.
  class Reading {
   public:
    Reading(SqliteStore& store, std::unique_ptr<Database> db) : store_(store), db_(std::move(db)) {}
    Reading(Reading&&) noexcept = default;
    Reading& operator=(Reading&&) = delete;
    ~Reading();
    Database& operator*() { return *db_; }
    Database* operator->() { return db_.get(); }

   private:
    SqliteStore& store_;
    std::unique_ptr<Database> db_;
  };
  Result<Reading> reading();

  // Of one transaction.
  static Result<BucketRow> bucket_row(Database& db, std::string_view name);
  static Status check_upload(Database& db, std::int64_t bucket, std::string_view key,
                             std::string_view id);
  Result<Published> publish_row(const BucketRow& bucket, const Object& object,
                                const Conditions& conditions) REQUIRES(write_mutex_);
  Status check_conditions(const BucketRow& bucket, std::string_view key,
                          const Conditions& conditions) REQUIRES(write_mutex_);
  Status insert_version(const BucketRow& bucket, const Object& object, std::string_view version)
      REQUIRES(write_mutex_);
  Result<bool> drop_version(const BucketRow& bucket, std::string_view key, std::string_view version,
                            bool* was_marker) REQUIRES(write_mutex_);
  Status claim(std::span<const Chunk> chunks) REQUIRES(write_mutex_);
  Status waste(std::span<const Chunk> chunks) REQUIRES(write_mutex_);
  Status waste_body(std::int64_t body) REQUIRES(write_mutex_);
  Status drop_upload(std::string_view id) REQUIRES(write_mutex_);
  static Result<std::vector<Part>> read_parts(Database& db, std::string_view id,
                                              std::span<const WantedPart> wanted);
  Result<std::int64_t> next_garbage_number() REQUIRES(write_mutex_);

  const SqliteOptions options_;
  const UniqueFd lock_;
  Mutex write_mutex_;
  const std::unique_ptr<Database> writer_ GUARDED_BY(write_mutex_);
  std::int64_t garbage_number_ GUARDED_BY(write_mutex_) = 0;  // the last one given

  Mutex lease_mutex_;
  std::multiset<std::int64_t> leases_ GUARDED_BY(lease_mutex_);
  // Garbage up to here was garbage before any lease that begins now.
  std::int64_t committed_number_ GUARDED_BY(lease_mutex_) = 0;
  void publish_number() REQUIRES(write_mutex_);

  Mutex pool_mutex_;
  std::vector<std::unique_ptr<Database>> pool_ GUARDED_BY(pool_mutex_);
};

}  // namespace farlift::s3::catalog
