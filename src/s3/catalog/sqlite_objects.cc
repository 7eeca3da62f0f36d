#include "s3/catalog/sqlite_impl.h"

#include <algorithm>

namespace farlift::s3::catalog {

namespace {

bool names(const std::vector<std::string>& etags, std::string_view etag) {
  return std::any_of(etags.begin(), etags.end(),
                     [&](const std::string& one) { return one == "*" || one == etag; });
}

}  // namespace

Status SqliteStore::check_conditions(const BucketRow& bucket, std::string_view key,
                                     const Conditions& conditions) {
  if (conditions.if_match.empty() && conditions.if_none_match.empty()) return {};
  Query q = writer_->query(
      "SELECT marker, etag FROM objects WHERE bucket = ? AND key = ? AND latest = 1");
  q.bind(bucket.id).bind_blob(key);
  TRY_ASSIGN(bool there, q.step());
  there = there && q.i64(0) == 0;
  const std::string etag = there ? q.text(1) : std::string();
  if (!conditions.if_match.empty()) {
    if (!there) return Error::make(Errc::not_found, kNoKey);
    if (!names(conditions.if_match, etag)) return Error::make(Errc::aborted, kCondition);
  }
  if (there && names(conditions.if_none_match, etag)) return Error::make(Errc::aborted, kCondition);
  return {};
}

Status SqliteStore::insert_version(const BucketRow& bucket, const Object& object,
                                   std::string_view version) {
  TRY(writer_->query("UPDATE objects SET latest = 0 WHERE bucket = ? AND key = ? AND latest = 1")
          .bind(bucket.id)
          .bind_blob(object.key)
          .run());
  TRY(writer_->query("INSERT INTO bodies(bytes) VALUES (?)")
          .bind_blob(encode_object(object))
          .run());
  const std::int64_t seq = writer_->last_id();
  return writer_->query("INSERT INTO objects VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?)")
      .bind(bucket.id)
      .bind_blob(object.key)
      .bind(seq)
      .bind_text(version)
      .bind(std::int64_t{object.marker})
      .bind(object.size)
      .bind_text(object.etag)
      .bind(object.modified_ms)
      .bind_text(object.checksum ? object.checksum->algorithm : "")
      .bind(std::int64_t{object.checksum && object.checksum->composite})
      .run();
}

// True when there was one. The next younger version becomes the current one where it was.
Result<bool> SqliteStore::drop_version(const BucketRow& bucket, std::string_view key,
                                       std::string_view version, bool* was_marker) {
  std::int64_t seq = 0;
  bool latest = false;
  {
    Query q = writer_->query(
        "SELECT seq, latest, marker FROM objects WHERE bucket = ? AND key = ? AND version = ?");
    q.bind(bucket.id).bind_blob(key).bind_text(version);
    TRY_ASSIGN(const bool found, q.step());
    if (!found) return false;
    seq = q.i64(0);
    latest = q.i64(1) != 0;
    if (was_marker != nullptr) *was_marker = q.i64(2) != 0;
  }
  TRY(waste_body(seq));
  TRY(writer_->query("DELETE FROM objects WHERE bucket = ? AND key = ? AND seq = ?")
          .bind(bucket.id)
          .bind_blob(key)
          .bind(seq)
          .run());
  TRY(writer_->query("DELETE FROM bodies WHERE id = ?").bind(seq).run());
  if (latest) {
    TRY(writer_
            ->query("UPDATE objects SET latest = 1 WHERE bucket = ?1 AND key = ?2 AND seq = "
                    "(SELECT max(seq) FROM objects WHERE bucket = ?1 AND key = ?2)")
            .bind(bucket.id)
            .bind_blob(key)
            .run());
  }
  return true;
}

Result<Published> SqliteStore::publish_row(const BucketRow& bucket, const Object& object,
                                           const Conditions& conditions) {
  TRY(check_conditions(bucket, object.key, conditions));
  Published done;
  done.versioning = bucket.versioning;
  if (bucket.versioning == Versioning::enabled) {
    done.version = new_version_id();
  } else {
    TRY(drop_version(bucket, object.key, kNullVersion, nullptr));
  }
  TRY(insert_version(bucket, object, done.version));
  return done;
}

Result<Published> SqliteStore::publish(std::string_view bucket, const Object& object,
                                       const Conditions& conditions) {
  const MutexLock lock(write_mutex_);
  TRY_ASSIGN(Transaction change, Transaction::begin(*writer_));
  TRY_ASSIGN(const BucketRow row, bucket_row(*writer_, bucket));
  TRY(claim(object.chunks));
  TRY_ASSIGN(Published done, publish_row(row, object, conditions));
  TRY(change.commit());
  publish_number();
  return done;
}

Result<Removed> SqliteStore::remove(std::string_view bucket, std::string_view key,
                                    std::string_view version, const Conditions& conditions) {
  const MutexLock lock(write_mutex_);
  TRY_ASSIGN(Transaction change, Transaction::begin(*writer_));
  TRY_ASSIGN(const BucketRow row, bucket_row(*writer_, bucket));
  TRY(check_conditions(row, key, conditions));
  Removed done;
  done.versioning = row.versioning;
  if (!version.empty()) {
    TRY_ASSIGN(const bool was, drop_version(row, key, version, &done.marker));
    if (was) done.version = version;
  } else if (row.versioning == Versioning::never) {
    TRY_ASSIGN(const bool was, drop_version(row, key, kNullVersion, nullptr));
    if (was) done.version = kNullVersion;
  } else {
    done.marker = true;
    done.version = row.versioning == Versioning::enabled ? new_version_id() : kNullVersion;
    if (row.versioning == Versioning::suspended) TRY(drop_version(row, key, kNullVersion, nullptr));
    Object marker;
    marker.key = key;
    marker.marker = true;
    marker.modified_ms = options_.now();
    TRY(insert_version(row, marker, done.version));
  }
  TRY(change.commit());
  publish_number();
  return done;
}

Status SqliteStore::set_tags(std::string_view bucket, std::string_view key,
                             std::string_view version, const Fields& tags) {
  const MutexLock lock(write_mutex_);
  TRY_ASSIGN(Transaction change, Transaction::begin(*writer_));
  TRY_ASSIGN(const BucketRow row, bucket_row(*writer_, bucket));
  std::int64_t seq = 0;
  std::string bytes;
  {
    Query q = writer_->query(
        "SELECT o.seq, d.bytes FROM objects o JOIN bodies d ON d.id = o.seq WHERE o.bucket = ?1 "
        "AND o.key = ?2 AND ((?3 = '' AND o.latest = 1) OR o.version = ?3) AND o.marker = 0");
    q.bind(row.id).bind_blob(key).bind_text(version);
    TRY_ASSIGN(const bool found, q.step());
    if (!found) return Error::make(Errc::not_found, version.empty() ? kNoKey : kNoVersion);
    seq = q.i64(0);
    bytes = q.text(1);
  }
  TRY_ASSIGN(Body body, decode_body(bytes));
  body.tags = tags;
  TRY(writer_->query("UPDATE bodies SET bytes = ? WHERE id = ?")
          .bind_blob(encode_body(body))
          .bind(seq)
          .run());
  return change.commit();
}

}  // namespace farlift::s3::catalog
