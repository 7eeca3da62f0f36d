#include "s3/catalog/sqlite_impl.h"

#include <algorithm>

namespace farlift::s3::catalog {

Status SqliteStore::check_upload(Database& db, std::int64_t bucket, std::string_view key,
                                 std::string_view id) {
  Query q = db.query("SELECT 1 FROM uploads WHERE id = ? AND bucket = ? AND key = ?");
  q.bind_text(id).bind(bucket).bind_blob(key);
  TRY_ASSIGN(const bool found, q.step());
  return found ? Status() : Error::make(Errc::not_found, kNoUpload);
}

Status SqliteStore::create_upload(const Upload& upload) {
  const MutexLock lock(write_mutex_);
  TRY_ASSIGN(Transaction change, Transaction::begin(*writer_));
  TRY_ASSIGN(const BucketRow row, bucket_row(*writer_, upload.bucket));
  TRY(writer_->query("INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
          .bind_text(upload.id)
          .bind(row.id)
          .bind_blob(upload.key)
          .bind_blob(upload.owner)
          .bind(upload.started_ms)
          .bind_text(upload.checksum_algorithm)
          .bind(std::int64_t{upload.checksum_composite})
          .bind_blob(encode_body({upload.fields, upload.tags, {}, {}, {}}))
          .run());
  return change.commit();
}

Result<Upload> SqliteStore::upload(std::string_view bucket, std::string_view key,
                                   std::string_view id) {
  TRY_ASSIGN(Reading db, reading());
  TRY_ASSIGN(const BucketRow row, bucket_row(*db, bucket));
  Query q = db->query(
      "SELECT owner, started, sum_name, sum_composite, bytes FROM uploads WHERE id = ? AND bucket "
      "= ? AND key = ?");
  q.bind_text(id).bind(row.id).bind_blob(key);
  TRY_ASSIGN(const bool found, q.step());
  if (!found) return Error::make(Errc::not_found, kNoUpload);
  TRY_ASSIGN(Body body, decode_body(q.text(4)));
  Upload out;
  out.id = id;
  out.bucket = bucket;
  out.key = key;
  out.owner = q.text(0);
  out.started_ms = q.i64(1);
  out.checksum_algorithm = q.text(2);
  out.checksum_composite = q.i64(3) != 0;
  out.fields = std::move(body.fields);
  out.tags = std::move(body.tags);
  return out;
}

Status SqliteStore::put_part(std::string_view bucket, std::string_view key, std::string_view id,
                             const Part& part) {
  const MutexLock lock(write_mutex_);
  TRY_ASSIGN(Transaction change, Transaction::begin(*writer_));
  TRY_ASSIGN(const BucketRow row, bucket_row(*writer_, bucket));
  TRY(check_upload(*writer_, row.id, key, id));
  TRY(claim(part.chunks));
  std::string before;
  {
    Query q = writer_->query("SELECT bytes FROM parts WHERE upload = ? AND number = ?");
    q.bind_text(id).bind(std::int64_t{part.number});
    TRY_ASSIGN(const bool found, q.step());
    if (found) before = q.text(0);
  }
  if (!before.empty()) {
    TRY_ASSIGN(const Body body, decode_body(before));
    TRY(waste(body.chunks));
  }
  TRY(writer_->query("INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?, ?)")
          .bind_text(id)
          .bind(std::int64_t{part.number})
          .bind(part.size)
          .bind_text(part.etag)
          .bind(part.modified_ms)
          .bind_blob(encode_body({{}, {}, part.checksum, part.chunks, {}}))
          .run());
  TRY(change.commit());
  publish_number();
  return {};
}

namespace {

Result<Part> part_of(const Query& q) {
  TRY_ASSIGN(Body body, decode_body(q.text(4)));
  Part part;
  part.number = static_cast<std::uint32_t>(q.i64(0));
  part.size = q.u64(1);
  part.etag = q.text(2);
  part.modified_ms = q.i64(3);
  part.checksum = std::move(body.checksum);
  part.chunks = std::move(body.chunks);
  return part;
}

}  // namespace

Result<PartPage> SqliteStore::list_parts(std::string_view bucket, std::string_view key,
                                         std::string_view id, std::uint32_t after,
                                         std::size_t limit) {
  Result<PartPage> page{PartPage()};
  TRY_ASSIGN(page->upload, upload(bucket, key, id));
  limit = std::min(limit, kPageMax);
  TRY_ASSIGN(Reading db, reading());
  Query q = db->query(
      "SELECT number, size, etag, modified, bytes FROM parts WHERE upload = ? AND number > ? ORDER "
      "BY number");
  q.bind_text(id).bind(std::int64_t{after});
  for (;;) {
    TRY_ASSIGN(const bool more, q.step());
    if (!more) return page;
    if (page->parts.size() >= limit) {
      page->truncated = limit > 0;
      return page;
    }
    TRY_ASSIGN(Part part, part_of(q));
    part.chunks.clear();
    page->parts.push_back(std::move(part));
  }
}

Result<std::vector<Part>> SqliteStore::read_parts(Database& db, std::string_view id,
                                                  std::span<const WantedPart> wanted) {
  std::vector<Part> out;
  out.reserve(wanted.size());
  for (std::size_t i = 1; i < wanted.size(); ++i) {
    if (wanted[i].number <= wanted[i - 1].number)
      return Error::make(Errc::invalid_argument, kBadOrder);
  }
  for (const WantedPart& one : wanted) {
    Query q = db.query(
        "SELECT number, size, etag, modified, bytes FROM parts WHERE upload = ? AND number = ?");
    q.bind_text(id).bind(std::int64_t{one.number});
    TRY_ASSIGN(const bool found, q.step());
    if (!found) return Error::make(Errc::invalid_argument, kBadPart);
    TRY_ASSIGN(Part part, part_of(q));
    const bool same_sum = !one.checksum || (part.checksum && *part.checksum == *one.checksum);
    if (part.etag != one.etag || !same_sum) return Error::make(Errc::invalid_argument, kBadPart);
    out.push_back(std::move(part));
  }
  for (std::size_t i = 0; i + 1 < out.size(); ++i) {
    if (out[i].size < kPartSizeMin) return Error::make(Errc::invalid_argument, kSmallPart);
  }
  return out;
}

Result<std::vector<Part>> SqliteStore::parts(std::string_view bucket, std::string_view key,
                                             std::string_view id,
                                             std::span<const WantedPart> wanted) {
  TRY_ASSIGN(Reading db, reading());
  TRY_ASSIGN(const BucketRow row, bucket_row(*db, bucket));
  TRY(check_upload(*db, row.id, key, id));
  return read_parts(*db, id, wanted);
}

Result<Published> SqliteStore::complete_upload(std::string_view bucket, std::string_view key,
                                               std::string_view id,
                                               std::span<const WantedPart> wanted, Object object,
                                               const Conditions& conditions) {
  const MutexLock lock(write_mutex_);
  TRY_ASSIGN(Transaction change, Transaction::begin(*writer_));
  TRY_ASSIGN(const BucketRow row, bucket_row(*writer_, bucket));
  TRY(check_upload(*writer_, row.id, key, id));
  TRY_ASSIGN(const std::vector<Part> parts, read_parts(*writer_, id, wanted));
  std::uint64_t offset = 0;
  object.key = key;
  for (const Part& part : parts) {
    object.parts.push_back({part.number, offset, part.size});
    for (const Chunk& chunk : part.chunks)
      object.chunks.push_back({offset + chunk.offset, chunk.size, chunk.fid});
    offset += part.size;
    TRY(writer_->query("DELETE FROM parts WHERE upload = ? AND number = ?")
            .bind_text(id)
            .bind(std::int64_t{part.number})
            .run());
  }
  if (offset != object.size) return Error::make(Errc::invalid_argument, kBadPart);
  TRY_ASSIGN(Published done, publish_row(row, object, conditions));
  TRY(drop_upload(id));  // and the parts that were not named
  TRY(change.commit());
  publish_number();
  return done;
}

Status SqliteStore::drop_upload(std::string_view id) {
  std::vector<Chunk> chunks;
  {
    Query q =
        writer_->query("SELECT number, size, etag, modified, bytes FROM parts WHERE upload = ?");
    q.bind_text(id);
    for (;;) {
      TRY_ASSIGN(const bool more, q.step());
      if (!more) break;
      TRY_ASSIGN(Part part, part_of(q));
      chunks.insert(chunks.end(), part.chunks.begin(), part.chunks.end());
    }
  }
  TRY(waste(chunks));
  TRY(writer_->query("DELETE FROM parts WHERE upload = ?").bind_text(id).run());
  return writer_->query("DELETE FROM uploads WHERE id = ?").bind_text(id).run();
}

Status SqliteStore::abort_upload(std::string_view bucket, std::string_view key,
                                 std::string_view id) {
  const MutexLock lock(write_mutex_);
  TRY_ASSIGN(Transaction change, Transaction::begin(*writer_));
  TRY_ASSIGN(const BucketRow row, bucket_row(*writer_, bucket));
  TRY(check_upload(*writer_, row.id, key, id));
  TRY(drop_upload(id));
  TRY(change.commit());
  publish_number();
  return {};
}

}  // namespace farlift::s3::catalog
