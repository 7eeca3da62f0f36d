#include "s3/catalog/sqlite_impl.h"

namespace farlift::s3::catalog {

class SqliteStore::Lease final : public ReadLease {
 public:
  explicit Lease(SqliteStore& store) : store_(store) {
    const MutexLock lock(store_.lease_mutex_);
    number_ = store_.committed_number_;
    store_.leases_.insert(number_);
  }
  ~Lease() override {
    const MutexLock lock(store_.lease_mutex_);
    store_.leases_.erase(store_.leases_.find(number_));
  }

 private:
  SqliteStore& store_;
  std::int64_t number_ = 0;
};

std::unique_ptr<ReadLease> SqliteStore::lease() { return std::make_unique<Lease>(*this); }

// Of one change: what becomes garbage in it.
Result<std::int64_t> SqliteStore::next_garbage_number() { return ++garbage_number_; }

// After a commit: leases that begin now see the change.
void SqliteStore::publish_number() {
  const MutexLock lock(lease_mutex_);
  committed_number_ = garbage_number_;
}

Status SqliteStore::claim(std::span<const Chunk> chunks) {
  for (const Chunk& chunk : chunks) {
    TRY(writer_->query("DELETE FROM fids WHERE fid = ? AND number = 0").bind_text(chunk.fid).run());
    if (writer_->changes() != 1) return Error::make(Errc::internal, "a fid was not reserved");
  }
  return {};
}

Status SqliteStore::waste(std::span<const Chunk> chunks) {
  if (chunks.empty()) return {};
  TRY_ASSIGN(const std::int64_t number, next_garbage_number());
  for (const Chunk& chunk : chunks) {
    TRY(writer_->query("INSERT INTO fids VALUES (?, ?, 0, 0)")
            .bind_text(chunk.fid)
            .bind(number)
            .run());
  }
  return {};
}

Status SqliteStore::waste_body(std::int64_t id) {
  std::string bytes;
  {
    Query q = writer_->query("SELECT bytes FROM bodies WHERE id = ?");
    q.bind(id);
    TRY_ASSIGN(const bool found, q.step());
    if (!found) return Error::make(Errc::corrupt, "catalog body");
    bytes = q.text(0);
  }
  TRY_ASSIGN(const Body body, decode_body(bytes));
  return waste(body.chunks);
}

Status SqliteStore::reserve(std::span<const std::string> fids) {
  const MutexLock lock(write_mutex_);
  TRY_ASSIGN(Transaction change, Transaction::begin(*writer_));
  for (const std::string& fid : fids)
    TRY(writer_->query("INSERT INTO fids VALUES (?, 0, 0, 0)").bind_text(fid).run());
  return change.commit();
}

Status SqliteStore::discard(std::span<const std::string> fids, bool doubtful) {
  if (fids.empty()) return {};
  const MutexLock lock(write_mutex_);
  TRY_ASSIGN(Transaction change, Transaction::begin(*writer_));
  TRY_ASSIGN(const std::int64_t number, next_garbage_number());
  for (const std::string& fid : fids) {
    // Only what is reserved: a fid that an object owns by now stays.
    TRY(writer_->query("UPDATE fids SET number = ?, doubtful = ? WHERE fid = ? AND number = 0")
            .bind(number)
            .bind(std::int64_t{doubtful})
            .bind_text(fid)
            .run());
  }
  TRY(change.commit());
  publish_number();
  return {};
}

Result<std::vector<std::string>> SqliteStore::garbage(std::size_t limit) {
  std::int64_t upto = 0;
  {
    const MutexLock lock(lease_mutex_);
    upto = leases_.empty() ? committed_number_ : *leases_.begin();
  }
  TRY_ASSIGN(Reading db, reading());
  Query q = db->query(
      "SELECT fid FROM fids WHERE number > 0 AND number <= ? AND due <= ? ORDER BY number LIMIT ?");
  q.bind(upto).bind(options_.now()).bind(std::uint64_t{limit});
  std::vector<std::string> out;
  for (;;) {
    TRY_ASSIGN(const bool more, q.step());
    if (!more) return out;
    out.push_back(q.text(0));
  }
}

Status SqliteStore::forget(std::span<const std::string> fids) {
  if (fids.empty()) return {};
  const MutexLock lock(write_mutex_);
  TRY_ASSIGN(Transaction change, Transaction::begin(*writer_));
  const std::int64_t again = options_.now() + options_.doubt_ms;
  for (const std::string& fid : fids) {
    TRY(writer_->query("DELETE FROM fids WHERE fid = ? AND number > 0 AND doubtful = 0")
            .bind_text(fid)
            .run());
    TRY(writer_->query("UPDATE fids SET doubtful = 0, due = ? WHERE fid = ? AND doubtful = 1")
            .bind(again)
            .bind_text(fid)
            .run());
  }
  return change.commit();
}

Status SqliteStore::postpone(std::span<const std::string> fids) {
  if (fids.empty()) return {};
  const MutexLock lock(write_mutex_);
  TRY_ASSIGN(Transaction change, Transaction::begin(*writer_));
  const std::int64_t later = options_.now() + options_.retry_ms;
  for (const std::string& fid : fids) {
    TRY(writer_->query("UPDATE fids SET due = ? WHERE fid = ? AND number > 0")
            .bind(later)
            .bind_text(fid)
            .run());
  }
  return change.commit();
}

Result<Store::LedgerCounts> SqliteStore::ledger() {
  TRY_ASSIGN(Reading db, reading());
  Query q = db->query("SELECT count(*), coalesce(sum(number > 0), 0) FROM fids");
  TRY_ASSIGN(const bool found, q.step());
  if (!found) return Error::make(Errc::internal, "catalog");
  return LedgerCounts{q.u64(0) - q.u64(1), q.u64(1)};
}

Result<std::uint64_t> SqliteStore::take_needle_ids(std::uint64_t count) {
  const MutexLock lock(write_mutex_);
  TRY_ASSIGN(Transaction change, Transaction::begin(*writer_));
  std::uint64_t first = 0;
  {
    Query q = writer_->query("SELECT value FROM meta WHERE name = 'needle'");
    TRY_ASSIGN(const bool found, q.step());
    if (!found) return Error::make(Errc::corrupt, "catalog");
    first = q.u64(0);
  }
  TRY(writer_->query("UPDATE meta SET value = ? WHERE name = 'needle'").bind(first + count).run());
  TRY(change.commit());
  return first;
}

Result<bool> SqliteStore::owned(std::string_view fid) {
  TRY_ASSIGN(Reading db, reading());
  Query q = db->query("SELECT 1 FROM fids WHERE fid = ?");
  q.bind_text(fid);
  TRY_ASSIGN(const bool listed, q.step());
  return !listed;
}

}  // namespace farlift::s3::catalog
