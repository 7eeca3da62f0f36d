#include "s3/catalog/sqlite.h"

#include "core/base/log.h"

#include <sqlite3.h>
#include <utility>

namespace farlift::s3::catalog {

namespace {

constexpr int kBusyMs = 10'000;

Error error_of(int code) {
  switch (code & 0xff) {
    case SQLITE_FULL:
      return Error::make(Errc::exhausted, "catalog", code);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return Error::make(Errc::permission, "catalog", code);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Error::make(Errc::corrupt, "catalog", code);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Error::make(Errc::busy, "catalog", code);
    case SQLITE_CONSTRAINT:
      return Error::make(Errc::already_exists, "catalog", code);
    case SQLITE_NOMEM:
      return Error::make(Errc::no_memory, "catalog", code);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_INTERRUPT:
      return Error::make(Errc::io, "catalog", code);
    default:
      return Error::make(Errc::internal, "catalog", code);
  }
}

Error note(sqlite3* handle, int code) {
  const Error error = error_of(code);
  if (error.code != Errc::already_exists)
    logf(LogLevel::error, "catalog: %s", handle != nullptr ? sqlite3_errmsg(handle) : "no memory");
  return error;
}

constexpr Error kFine = Error::make(Errc::internal, "");

}  // namespace

Query::~Query() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Query& Query::bind(std::int64_t value) {
  if (statement_ != nullptr) sqlite3_bind_int64(statement_, next_++, value);
  return *this;
}

Query& Query::bind_text(std::string_view value) {
  if (statement_ != nullptr) {
    sqlite3_bind_text64(statement_, next_++, value.data() == nullptr ? "" : value.data(),
                        value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  }
  return *this;
}

Query& Query::bind_blob(std::string_view value) {
  if (statement_ != nullptr) {
    sqlite3_bind_blob64(statement_, next_++, value.data() == nullptr ? "" : value.data(),
                        value.size(), SQLITE_TRANSIENT);
  }
  return *this;
}

Result<bool> Query::step() {
  if (statement_ == nullptr) return error_;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return note(sqlite3_db_handle(statement_),
              sqlite3_extended_errcode(sqlite3_db_handle(statement_)));
}

Status Query::run() {
  for (;;) {
    TRY_ASSIGN(const bool more, step());
    if (!more) return {};
  }
}

std::int64_t Query::i64(int column) const { return sqlite3_column_int64(statement_, column); }

std::string Query::text(int column) const {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  const int size = sqlite3_column_bytes(statement_, column);
  return data == nullptr ? std::string() : std::string(data, static_cast<std::size_t>(size));
}

bool Query::null(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

Result<std::unique_ptr<Database>> Database::open(const std::string& path, bool writer, Sync sync) {
  sqlite3* handle = nullptr;
  const int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READWRITE | (writer ? SQLITE_OPEN_CREATE : 0);
  const int code = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  std::unique_ptr<Database> db(new Database(handle));
  if (code != SQLITE_OK) return note(handle, code);
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, kBusyMs);
  TRY(
      db->run("PRAGMA journal_mode = WAL; PRAGMA foreign_keys = OFF; PRAGMA temp_store = MEMORY;"
              "PRAGMA cache_size = -8192; PRAGMA wal_autocheckpoint = 4000;"));
  TRY(db->run(sync == Sync::full ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL"));
  return db;
}

Database::~Database() {
  for (const auto& [sql, statement] : prepared_) sqlite3_finalize(statement);
  sqlite3_close_v2(handle_);
}

Query Database::query(const char* sql) {
  sqlite3_stmt*& statement = prepared_[sql];
  if (statement == nullptr) {
    const int code =
        sqlite3_prepare_v3(handle_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (code != SQLITE_OK) return {nullptr, note(handle_, code)};
  }
  return {statement, kFine};
}

Status Database::run(const char* sql) {
  const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return note(handle_, sqlite3_extended_errcode(handle_));
  return {};
}

std::int64_t Database::changes() const { return sqlite3_changes64(handle_); }
std::int64_t Database::last_id() const { return sqlite3_last_insert_rowid(handle_); }

Result<Transaction> Transaction::begin(Database& db) {
  TRY(db.query("BEGIN IMMEDIATE").run());
  return Transaction(db);
}

Transaction::~Transaction() {
  if (db_ != nullptr) db_->run("ROLLBACK").ignore();  // SQLite may have done so by itself
}

Status Transaction::commit() {
  TRY(db_->query("COMMIT").run());
  db_ = nullptr;
  return {};
}

}  // namespace farlift::s3::catalog
