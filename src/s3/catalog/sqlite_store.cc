#include "core/base/prng.h"
#include "core/codec/text.h"
#include "s3/catalog/sqlite_impl.h"

#include <array>
#include <fcntl.h>
#include <sys/file.h>

namespace farlift::s3::catalog {

namespace {

constexpr std::int64_t kFormat = 1;
constexpr std::size_t kReadersKept = 16;

// docs/formats/s3-catalog.md
constexpr const char* kSchema = R"(
CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS buckets(
  id INTEGER PRIMARY KEY AUTOINCREMENT, name BLOB NOT NULL UNIQUE, owner BLOB NOT NULL,
  created INTEGER NOT NULL, versioning INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS bodies(id INTEGER PRIMARY KEY AUTOINCREMENT, bytes BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS objects(
  bucket INTEGER NOT NULL, key BLOB NOT NULL, seq INTEGER NOT NULL, version TEXT NOT NULL,
  latest INTEGER NOT NULL, marker INTEGER NOT NULL, size INTEGER NOT NULL, etag TEXT NOT NULL,
  modified INTEGER NOT NULL, sum_name TEXT NOT NULL, sum_composite INTEGER NOT NULL,
  PRIMARY KEY(bucket, key, seq DESC)) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS objects_version ON objects(bucket, key, version);
CREATE UNIQUE INDEX IF NOT EXISTS objects_current ON objects(bucket, key) WHERE latest = 1;
CREATE TABLE IF NOT EXISTS uploads(
  id TEXT PRIMARY KEY, bucket INTEGER NOT NULL, key BLOB NOT NULL, owner BLOB NOT NULL,
  started INTEGER NOT NULL, sum_name TEXT NOT NULL, sum_composite INTEGER NOT NULL,
  bytes BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS uploads_key ON uploads(bucket, key, id);
CREATE TABLE IF NOT EXISTS parts(
  upload TEXT NOT NULL, number INTEGER NOT NULL, size INTEGER NOT NULL, etag TEXT NOT NULL,
  modified INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY(upload, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fids(
  fid TEXT PRIMARY KEY, number INTEGER NOT NULL, due INTEGER NOT NULL, doubtful INTEGER NOT NULL)
  WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS fids_garbage ON fids(number) WHERE number > 0;
)";

Result<UniqueFd> lock_file(const std::string& path) {
  UniqueFd fd(::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return Error::from_errno("catalog");
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    return Error::make(Errc::busy, "the catalog is open in another process");
  return fd;
}

}  // namespace

std::string after_all_of(std::string_view prefix) {
  std::string out(prefix);
  while (!out.empty() && static_cast<unsigned char>(out.back()) == 0xff) out.pop_back();
  if (!out.empty()) ++out.back();
  return out;
}

std::string encode_object(const Object& object) {
  return encode_body({object.fields, object.tags, object.checksum, object.chunks, object.parts});
}

std::string new_version_id() {
  std::array<std::byte, 16> bytes;
  secure_random(bytes);
  return codec::hex_encode(bytes);
}

Result<std::unique_ptr<Store>> open_sqlite_store(SqliteOptions options) {
  TRY_ASSIGN(UniqueFd lock, lock_file(options.path));
  const auto sync = options.sync_each_commit ? Database::Sync::full : Database::Sync::normal;
  TRY_ASSIGN(auto writer, Database::open(options.path, true, sync));
  auto store =
      std::make_unique<SqliteStore>(std::move(options), std::move(lock), std::move(writer));
  TRY(store->start());
  return std::unique_ptr<Store>(std::move(store));
}

Status SqliteStore::start() {
  const MutexLock lock(write_mutex_);
  TRY(writer_->run(kSchema));
  TRY_ASSIGN(Transaction change, Transaction::begin(*writer_));
  TRY(writer_->query("INSERT OR IGNORE INTO meta VALUES ('format', ?)").bind(kFormat).run());
  TRY(writer_->query("INSERT OR IGNORE INTO meta VALUES ('needle', 1)").run());
  {
    Query q = writer_->query("SELECT value FROM meta WHERE name = 'format'");
    TRY_ASSIGN(const bool found, q.step());
    if (!found || q.i64(0) != kFormat)
      return Error::make(Errc::unsupported, "the catalog is of another format");
  }
  {
    Query q = writer_->query("SELECT max(number) FROM fids WHERE number > 0");
    TRY_ASSIGN(const bool found, q.step());
    if (found) garbage_number_ = q.i64(0);
  }
  // What an earlier process had reserved it can no longer publish; its writes may still arrive.
  TRY_ASSIGN(const std::int64_t number, next_garbage_number());
  TRY(writer_->query("UPDATE fids SET number = ?, doubtful = 1, due = 0 WHERE number = 0")
          .bind(number)
          .run());
  TRY(change.commit());
  publish_number();
  return {};
}

SqliteStore::Reading::~Reading() {
  if (db_ == nullptr) return;
  const MutexLock lock(store_.pool_mutex_);
  if (store_.pool_.size() < kReadersKept) store_.pool_.push_back(std::move(db_));
}

Result<SqliteStore::Reading> SqliteStore::reading() {
  {
    const MutexLock lock(pool_mutex_);
    if (!pool_.empty()) {
      std::unique_ptr<Database> db = std::move(pool_.back());
      pool_.pop_back();
      return Reading(*this, std::move(db));
    }
  }
  TRY_ASSIGN(auto db, Database::open(options_.path, false, Database::Sync::full));
  return Reading(*this, std::move(db));
}

Result<BucketRow> SqliteStore::bucket_row(Database& db, std::string_view name) {
  Query q = db.query("SELECT id, versioning FROM buckets WHERE name = ?");
  q.bind_blob(name);
  TRY_ASSIGN(const bool found, q.step());
  if (!found) return Error::make(Errc::not_found, kNoBucket);
  return BucketRow{q.i64(0), static_cast<Versioning>(q.i64(1))};
}

Status SqliteStore::create_bucket(const Bucket& bucket) {
  const MutexLock lock(write_mutex_);
  return writer_->query("INSERT INTO buckets(name, owner, created, versioning) VALUES (?, ?, ?, ?)")
      .bind_blob(bucket.name)
      .bind_blob(bucket.owner)
      .bind(bucket.created_ms)
      .bind(static_cast<std::int64_t>(bucket.versioning))
      .run();
}

namespace {

Bucket bucket_of(const Query& q) {
  return {q.text(0), q.text(1), q.i64(2), static_cast<Versioning>(q.i64(3))};
}

}  // namespace

Result<Bucket> SqliteStore::bucket(std::string_view name) {
  TRY_ASSIGN(Reading db, reading());
  Query q = db->query("SELECT name, owner, created, versioning FROM buckets WHERE name = ?");
  q.bind_blob(name);
  TRY_ASSIGN(const bool found, q.step());
  if (!found) return Error::make(Errc::not_found, kNoBucket);
  return bucket_of(q);
}

Result<std::vector<Bucket>> SqliteStore::buckets() {
  TRY_ASSIGN(Reading db, reading());
  std::vector<Bucket> out;
  Query q = db->query("SELECT name, owner, created, versioning FROM buckets ORDER BY name");
  for (;;) {
    TRY_ASSIGN(const bool more, q.step());
    if (!more) return out;
    out.push_back(bucket_of(q));
  }
}

Status SqliteStore::delete_bucket(std::string_view name) {
  const MutexLock lock(write_mutex_);
  TRY_ASSIGN(Transaction change, Transaction::begin(*writer_));
  TRY_ASSIGN(const BucketRow row, bucket_row(*writer_, name));
  {
    Query q = writer_->query("SELECT 1 FROM objects WHERE bucket = ? LIMIT 1");
    q.bind(row.id);
    TRY_ASSIGN(const bool any, q.step());
    if (any) return Error::make(Errc::busy, kNoBucket);
  }
  for (;;) {
    std::string id;
    {
      Query q = writer_->query("SELECT id FROM uploads WHERE bucket = ? LIMIT 1");
      q.bind(row.id);
      TRY_ASSIGN(const bool any, q.step());
      if (!any) break;
      id = q.text(0);
    }
    TRY(drop_upload(id));
  }
  TRY(writer_->query("DELETE FROM buckets WHERE id = ?").bind(row.id).run());
  TRY(change.commit());
  publish_number();
  return {};
}

Status SqliteStore::set_versioning(std::string_view name, Versioning versioning) {
  const MutexLock lock(write_mutex_);
  TRY(writer_->query("UPDATE buckets SET versioning = ? WHERE name = ?")
          .bind(static_cast<std::int64_t>(versioning))
          .bind_blob(name)
          .run());
  return writer_->changes() == 1 ? Status() : Error::make(Errc::not_found, kNoBucket);
}

Result<Object> SqliteStore::find(std::string_view bucket, std::string_view key,
                                 std::string_view version) {
  TRY_ASSIGN(Reading db, reading());
  Query q = db->query(
      version.empty()
          ? "SELECT b.id, o.version, o.latest, o.marker, o.size, o.etag, o.modified, o.sum_name, "
            "o.sum_composite, d.bytes FROM buckets b LEFT JOIN objects o ON o.bucket = b.id AND "
            "o.key = ?2 AND o.latest = 1 LEFT JOIN bodies d ON d.id = o.seq WHERE b.name = ?1"
          : "SELECT b.id, o.version, o.latest, o.marker, o.size, o.etag, o.modified, o.sum_name, "
            "o.sum_composite, d.bytes FROM buckets b LEFT JOIN objects o ON o.bucket = b.id AND "
            "o.key = ?2 AND o.version = ?3 LEFT JOIN bodies d ON d.id = o.seq WHERE b.name = ?1");
  q.bind_blob(bucket).bind_blob(key);
  if (!version.empty()) q.bind_text(version);
  TRY_ASSIGN(const bool found, q.step());
  if (!found) return Error::make(Errc::not_found, kNoBucket);
  if (q.null(1)) return Error::make(Errc::not_found, version.empty() ? kNoKey : kNoVersion);
  TRY_ASSIGN(Body body, decode_body(q.text(9)));
  Object object;
  object.key = key;
  object.version = q.text(1);
  object.latest = q.i64(2) != 0;
  object.marker = q.i64(3) != 0;
  object.size = q.u64(4);
  object.etag = q.text(5);
  object.modified_ms = q.i64(6);
  object.checksum_algorithm = q.text(7);
  object.checksum_composite = q.i64(8) != 0;
  object.fields = std::move(body.fields);
  object.tags = std::move(body.tags);
  object.checksum = std::move(body.checksum);
  object.chunks = std::move(body.chunks);
  object.parts = std::move(body.parts);
  return object;
}

}  // namespace farlift::s3::catalog
