// Database and Query: SQLite with our errors, values and lifetimes; nothing of it shows outside
// this folder.
//
//   Query q = db.query("SELECT name FROM buckets WHERE id = ?");   // the text must be a literal
//   q.bind(id);
//   TRY_ASSIGN(const bool found, q.step());
//   if (found) name = q.text(0);
//
// Invariants: a Query is at its start again when it ends, so no read transaction lingers. Text is
// bound as
//             blobs where it is a name: it compares by bytes and may hold any.
// Threads:    a Database and its queries belong to one thread at a time.
// Errors:     exhausted (disk full), permission (read-only), corrupt, busy (another process),
//             already_exists (a row of that key), io. Wrong SQL is a bug: internal.
#pragma once

#include "core/base/result.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

struct sqlite3;
struct sqlite3_stmt;

namespace farlift::s3::catalog {

class Query {
 public:
  Query(sqlite3_stmt* statement, Error error) : statement_(statement), error_(error) {}
  ~Query();
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  // Each binds the next place.
  Query& bind(std::int64_t value);
  Query& bind(std::uint64_t value) { return bind(static_cast<std::int64_t>(value)); }
  Query& bind_text(std::string_view value);
  Query& bind_blob(std::string_view value);

  // True: there is a row.
  Result<bool> step();
  // For changes: runs to the end.
  Status run();

  std::int64_t i64(int column) const;
  std::uint64_t u64(int column) const { return static_cast<std::uint64_t>(i64(column)); }
  std::string text(int column) const;  // of a text or a blob
  bool null(int column) const;

 private:
  sqlite3_stmt* statement_;
  Error error_;
  int next_ = 1;
};

class Database {
 public:
  enum class Sync : std::uint8_t { full, normal };
  static Result<std::unique_ptr<Database>> open(const std::string& path, bool writer, Sync sync);
  ~Database();

  Query query(const char* sql);
  Status run(const char* sql);  // several statements, without values
  std::int64_t changes() const;
  std::int64_t last_id() const;

 private:
  explicit Database(sqlite3* handle) : handle_(handle) {}
  sqlite3* handle_;
  std::unordered_map<const char*, sqlite3_stmt*> prepared_;  // by the literal's address
};

// Rolls back what was not committed.
class Transaction {
 public:
  static Result<Transaction> begin(Database& db);
  Transaction(Transaction&& other) noexcept : db_(std::exchange(other.db_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Status commit();

 private:
  explicit Transaction(Database& db) : db_(&db) {}
  Database* db_;
};

}  // namespace farlift::s3::catalog
