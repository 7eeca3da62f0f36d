#include "s3/catalog/sqlite_impl.h"

#include <algorithm>

namespace farlift::s3::catalog {

namespace {

// What a listing of names does with each: shown by itself, or summed up with others.
class Grouping {
 public:
  explicit Grouping(const ListQuery& query) : query_(query) {}

  // Where the listing begins.
  std::string first() const {
    if (query_.after.empty()) return query_.prefix;
    // The last thing shown may have been a common prefix: nothing below it comes again.
    const std::string group = group_of(query_.after);
    if (!group.empty() && group == query_.after) return after_all_of(group);
    return std::max(query_.prefix, query_.after + '\0');
  }
  bool ends_at(std::string_view key) const { return !key.starts_with(query_.prefix); }
  // The common prefix that stands for the key; empty: it stands for itself.
  std::string group_of(std::string_view key) const {
    if (query_.delimiter.empty() || !key.starts_with(query_.prefix)) return {};
    const std::size_t at = key.find(query_.delimiter, query_.prefix.size());
    if (at == std::string_view::npos) return {};
    return std::string(key.substr(0, at + query_.delimiter.size()));
  }

 private:
  const ListQuery& query_;
};

constexpr const char* kCurrentFrom =
    "SELECT key, version, 1, marker, size, etag, modified, sum_name, sum_composite FROM objects "
    "INDEXED BY objects_current WHERE bucket = ? AND key >= ? AND latest = 1 ORDER BY key";
constexpr const char* kVersionsFrom =
    "SELECT key, version, latest, marker, size, etag, modified, sum_name, sum_composite FROM "
    "objects WHERE bucket = ? AND key >= ? ORDER BY key, seq DESC";
constexpr const char* kVersionsAfter =
    "SELECT key, version, latest, marker, size, etag, modified, sum_name, sum_composite FROM "
    "objects WHERE bucket = ?1 AND key = ?2 AND seq < (SELECT seq FROM objects WHERE bucket = ?1 "
    "AND key = ?2 AND version = ?3) ORDER BY seq DESC";

Listed listed_of(const Query& q) {
  Listed one;
  one.key = q.text(0);
  one.version = q.text(1);
  one.latest = q.i64(2) != 0;
  one.marker = q.i64(3) != 0;
  one.size = q.u64(4);
  one.etag = q.text(5);
  one.modified_ms = q.i64(6);
  one.checksum_algorithm = q.text(7);
  one.checksum_composite = q.i64(8) != 0;
  return one;
}

// Fills a page from `sql`, which gives rows from a key on; true when the page is complete, false
// when the rows ended.
class Filler {
 public:
  Filler(Database& db, const ListQuery& query, std::int64_t bucket, bool markers, Page& page)
      : db_(db),
        query_(query),
        grouping_(query),
        bucket_(bucket),
        markers_(markers),
        page_(page),
        limit_(std::min(query.limit, kPageMax)) {}

  Status versions_after(std::string_view key, std::string_view version) {
    Query q = db_.query(kVersionsAfter);
    q.bind(bucket_).bind_blob(key).bind_text(version);
    return rows(q, nullptr);
  }

  Status from(const char* sql, std::string start) {
    while (!done_) {
      std::string next;
      {
        Query q = db_.query(sql);
        q.bind(bucket_).bind_blob(start);
        TRY(rows(q, &next));
      }
      if (next.empty()) return {};
      start = std::move(next);  // beyond a group: its other keys are not read one by one
    }
    return {};
  }

 private:
  Status rows(Query& q, std::string* jump) {
    while (!done_) {
      TRY_ASSIGN(const bool more, q.step());
      if (!more) return {};
      Listed one = listed_of(q);
      if (grouping_.ends_at(one.key)) return done();
      if (one.marker && !markers_) continue;
      std::string group = jump == nullptr ? std::string() : grouping_.group_of(one.key);
      if (page_.entries.size() + page_.prefixes.size() >= limit_) {
        page_.truncated = limit_ > 0;
        return done();
      }
      if (group.empty()) {
        page_.next = one.key;
        page_.next_version = one.version;
        page_.entries.push_back(std::move(one));
        continue;
      }
      page_.next = group;
      page_.next_version.clear();
      *jump = after_all_of(group);
      page_.prefixes.push_back(std::move(group));
      return jump->empty() ? done() : Status();
    }
    return {};
  }
  Status done() {
    done_ = true;
    return {};
  }

  Database& db_;
  const ListQuery& query_;
  const Grouping grouping_;
  const std::int64_t bucket_;
  const bool markers_;
  Page& page_;
  const std::size_t limit_;
  bool done_ = false;
};

}  // namespace

Result<Page> SqliteStore::list(std::string_view bucket, const ListQuery& query) {
  TRY_ASSIGN(Reading db, reading());
  TRY_ASSIGN(const BucketRow row, bucket_row(*db, bucket));
  Result<Page> page{Page()};
  Filler filler(*db, query, row.id, false, *page);
  TRY(filler.from(kCurrentFrom, Grouping(query).first()));
  return page;
}

Result<Page> SqliteStore::list_versions(std::string_view bucket, const ListQuery& query) {
  TRY_ASSIGN(Reading db, reading());
  TRY_ASSIGN(const BucketRow row, bucket_row(*db, bucket));
  Result<Page> page{Page()};
  Filler filler(*db, query, row.id, true, *page);
  if (!query.after_version.empty()) TRY(filler.versions_after(query.after, query.after_version));
  TRY(filler.from(kVersionsFrom, Grouping(query).first()));
  return page;
}

Result<UploadPage> SqliteStore::list_uploads(std::string_view bucket, const ListQuery& query) {
  TRY_ASSIGN(Reading db, reading());
  TRY_ASSIGN(const BucketRow row, bucket_row(*db, bucket));
  const Grouping grouping(query);
  const std::size_t limit = std::min(query.limit, kPageMax);
  Result<UploadPage> page{UploadPage()};
  std::string start = query.after_version.empty() ? grouping.first() : query.after;
  std::string after_id = query.after_version;
  for (;;) {
    Query q = db->query(
        "SELECT key, id, owner, started, sum_name, sum_composite FROM uploads WHERE bucket = ? AND "
        "(key, id) > (?, ?) ORDER BY key, id LIMIT 1");
    // From `start` on: an empty id comes before all.
    q.bind(row.id).bind_blob(start).bind_text(after_id);
    TRY_ASSIGN(const bool more, q.step());
    if (!more) return page;
    Upload one;
    one.key = q.text(0);
    one.id = q.text(1);
    one.bucket = bucket;
    one.owner = q.text(2);
    one.started_ms = q.i64(3);
    one.checksum_algorithm = q.text(4);
    one.checksum_composite = q.i64(5) != 0;
    if (grouping.ends_at(one.key)) return page;
    if (page->uploads.size() + page->prefixes.size() >= limit) {
      page->truncated = limit > 0;
      return page;
    }
    std::string group = grouping.group_of(one.key);
    page->next_key = group.empty() ? one.key : group;
    page->next_id = group.empty() ? one.id : std::string();
    if (group.empty()) {
      start = one.key;
      after_id = one.id;
      page->uploads.push_back(std::move(one));
    } else {
      start = after_all_of(group);
      after_id.clear();
      page->prefixes.push_back(std::move(group));
      if (start.empty()) return page;
    }
  }
}

}  // namespace farlift::s3::catalog
