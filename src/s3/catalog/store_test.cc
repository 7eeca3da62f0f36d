// The catalog by its interface: what a caller may rely on, whatever is behind it.
#include "s3/catalog/store.h"

#include "s3/catalog/body.h"
#include "s3/catalog/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace farlift::s3::catalog {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() {
    char path[] = "/tmp/farlift-catalog-XXXXXX";
    folder_ = ::mkdtemp(path);
    open();
    EXPECT_TRUE(store_->create_bucket({"b", "owner", 1, Versioning::never}).ok());
  }
  ~StoreTest() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }
  SqliteOptions options() {
    SqliteOptions out;
    out.path = folder_ + "/catalog.db";
    out.sync_each_commit = false;
    out.now = [this] { return now_ms_; };
    return out;
  }
  void open() { store_ = open_sqlite_store(options()).value(); }
  void reopen() {
    store_.reset();
    open();
  }

  // An object of one chunk, published.
  Result<Published> put(const std::string& key, const std::string& fid,
                        const Conditions& conditions = {}, const std::string& bucket = "b") {
    EXPECT_TRUE(store_->reserve(std::span(&fid, 1)).ok());
    return store_->publish(bucket, object(key, fid), conditions);
  }
  static Object object(const std::string& key, const std::string& fid) {
    Object out;
    out.key = key;
    out.size = 10;
    out.etag = "etag-" + fid;
    out.modified_ms = 5;
    out.chunks = {{0, 10, fid}};
    return out;
  }
  std::vector<std::string> garbage() { return store_->garbage(1000).value(); }
  std::vector<std::string> keys(const ListQuery& query) {
    std::vector<std::string> out;
    const Page page = store_->list("b", query).value();
    for (const Listed& one : page.entries) out.push_back(one.key);
    return out;
  }
  std::string fid_of(const std::string& key) {
    return store_->find("b", key, {})->chunks.at(0).fid;
  }

  std::string folder_;
  std::int64_t now_ms_ = 1000;
  std::unique_ptr<Store> store_;
};

TEST_F(StoreTest, BucketsComeAndGo) {
  EXPECT_EQ(store_->create_bucket({"b", "x", 2, Versioning::never}).code(), Errc::already_exists);
  EXPECT_TRUE(store_->create_bucket({"a", "x", 2, Versioning::never}).ok());
  const auto all = store_->buckets().value();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "a");
  EXPECT_EQ(all[1].owner, "owner");
  ASSERT_TRUE(put("k", "1,01").ok());
  EXPECT_EQ(store_->delete_bucket("b").code(), Errc::busy);
  ASSERT_TRUE(store_->remove("b", "k", {}, {}).ok());
  EXPECT_TRUE(store_->delete_bucket("b").ok());
  const Status again = store_->delete_bucket("b");
  EXPECT_EQ(again.code(), Errc::not_found);
  EXPECT_EQ(again.error().where, kNoBucket);
  EXPECT_THAT(garbage(), ElementsAre("1,01"));
}

TEST_F(StoreTest, EverythingOfAnObjectIsKept) {
  Object in = object(std::string("k\0\xff", 3), "3,01");
  in.fields = {{"content-type", "a/b"}, {"x-amz-meta-m", "\xe4"}};
  in.tags = {{"t", "1"}};
  in.checksum = Checksum{"crc32", "AAAAAA==", true};
  in.parts = {{1, 0, 4}, {7, 4, 6}};
  const std::string fid = "3,01";
  ASSERT_TRUE(store_->reserve(std::span(&fid, 1)).ok());
  ASSERT_TRUE(store_->publish("b", in, {}).ok());
  reopen();
  const Object out = store_->find("b", in.key, {}).value();
  EXPECT_EQ(out.fields, in.fields);
  EXPECT_EQ(out.tags, in.tags);
  EXPECT_EQ(out.checksum, in.checksum);
  EXPECT_EQ(out.chunks, in.chunks);
  EXPECT_EQ(out.parts, in.parts);
  EXPECT_EQ(out.size, 10U);
  EXPECT_EQ(out.etag, in.etag);
  EXPECT_EQ(out.version, kNullVersion);
  EXPECT_TRUE(out.latest);
}

TEST_F(StoreTest, ReplacingMakesGarbageOnceNobodyReads) {
  ASSERT_TRUE(put("k", "1,01").ok());
  auto lease = store_->lease();
  ASSERT_EQ(fid_of("k"), "1,01");
  ASSERT_TRUE(put("k", "1,02").ok());
  EXPECT_THAT(garbage(), IsEmpty());  // somebody may still read it
  auto later = store_->lease();
  lease.reset();
  EXPECT_THAT(garbage(), ElementsAre("1,01"));  // the later one cannot have seen it
  const std::string gone = "1,01";
  ASSERT_TRUE(store_->forget(std::span(&gone, 1)).ok());
  EXPECT_THAT(garbage(), IsEmpty());
  EXPECT_TRUE(store_->owned("1,02").value());
}

TEST_F(StoreTest, AFidIsOwnedByOneOrNobody) {
  const std::string fids[] = {"1,01", "1,02"};
  ASSERT_TRUE(store_->reserve(fids).ok());
  EXPECT_FALSE(store_->owned("1,01").value());
  ASSERT_TRUE(store_->publish("b", object("k", "1,01"), {}).ok());
  EXPECT_TRUE(store_->owned("1,01").value());
  // Neither a second object nor a sweep may have it.
  EXPECT_EQ(store_->publish("b", object("other", "1,01"), {}).code(), Errc::internal);
  EXPECT_EQ(store_->find("b", "other", {}).code(), Errc::not_found);
  ASSERT_TRUE(store_->discard(fids, false).ok());
  EXPECT_THAT(garbage(), ElementsAre("1,02"));
  // What is garbage cannot be published any more.
  EXPECT_EQ(store_->publish("b", object("other", "1,02"), {}).code(), Errc::internal);
}

TEST_F(StoreTest, WhatWasReservedByADeadProcessIsGarbage) {
  const std::string fids[] = {"1,01", "1,02"};
  ASSERT_TRUE(store_->reserve(fids).ok());
  ASSERT_TRUE(store_->publish("b", object("k", "1,01"), {}).ok());
  reopen();
  EXPECT_THAT(garbage(), ElementsAre("1,02"));
  // Its writer may have had a request on the way: it is deleted twice.
  ASSERT_TRUE(store_->forget(std::span(&fids[1], 1)).ok());
  EXPECT_THAT(garbage(), IsEmpty());
  now_ms_ += 60'000;
  EXPECT_THAT(garbage(), ElementsAre("1,02"));
  ASSERT_TRUE(store_->forget(std::span(&fids[1], 1)).ok());
  now_ms_ += 600'000;
  EXPECT_THAT(garbage(), IsEmpty());
  EXPECT_EQ(store_->ledger()->garbage, 0U);
}

TEST_F(StoreTest, WhatCannotBeDeletedWaits) {
  ASSERT_TRUE(put("k", "1,01").ok());
  ASSERT_TRUE(store_->remove("b", "k", {}, {}).ok());
  const auto found = garbage();
  ASSERT_TRUE(store_->postpone(found).ok());
  EXPECT_THAT(garbage(), IsEmpty());
  now_ms_ += 5'000;
  EXPECT_THAT(garbage(), ElementsAre("1,01"));
}

TEST_F(StoreTest, ConditionsHoldAtTheMomentOfTheChange) {
  Conditions none;
  none.if_none_match = {"*"};
  Conditions match;
  match.if_match = {"etag-1,01"};
  EXPECT_EQ(put("k", "1,00", match).error().where, kNoKey);
  ASSERT_TRUE(put("k", "1,01", none).ok());
  const Result<Published> second = put("k", "1,02", none);
  EXPECT_EQ(second.error().where, kCondition);
  EXPECT_EQ(fid_of("k"), "1,01");
  ASSERT_TRUE(put("k", "1,03", match).ok());
  EXPECT_EQ(put("k", "1,04", match).error().where, kCondition);
  EXPECT_EQ(store_->remove("b", "k", {}, match).error().where, kCondition);
  EXPECT_EQ(fid_of("k"), "1,03");
}

TEST_F(StoreTest, VersionsAreKeptAndMarkersHideThem) {
  ASSERT_TRUE(put("k", "1,01").ok());
  ASSERT_TRUE(store_->set_versioning("b", Versioning::enabled).ok());
  const std::string second = put("k", "1,02")->version;
  EXPECT_EQ(second.size(), 32U);
  EXPECT_EQ(fid_of("k"), "1,02");
  EXPECT_EQ(store_->find("b", "k", kNullVersion)->chunks.at(0).fid, "1,01");
  const Removed marker = store_->remove("b", "k", {}, {}).value();
  EXPECT_TRUE(marker.marker);
  EXPECT_TRUE(store_->find("b", "k", {})->marker);
  EXPECT_THAT(keys({}), IsEmpty());
  EXPECT_EQ(store_->delete_bucket("b").code(), Errc::busy);
  // Without the marker the version before is the current one again.
  ASSERT_TRUE(store_->remove("b", "k", marker.version, {})->marker);
  EXPECT_EQ(fid_of("k"), "1,02");
  ASSERT_TRUE(store_->remove("b", "k", second, {}).ok());
  EXPECT_EQ(fid_of("k"), "1,01");
  EXPECT_EQ(store_->find("b", "k", second).error().where, kNoVersion);
  EXPECT_THAT(garbage(), ElementsAre("1,02"));
  // Suspended: the null version is replaced, others stay.
  const std::string third = put("k", "1,03")->version;
  ASSERT_TRUE(store_->set_versioning("b", Versioning::suspended).ok());
  EXPECT_EQ(put("k", "1,04")->version, kNullVersion);
  const Page page = store_->list_versions("b", {}).value();
  ASSERT_EQ(page.entries.size(), 2U);
  EXPECT_EQ(page.entries[0].version, kNullVersion);
  EXPECT_EQ(page.entries[1].version, third);
  EXPECT_TRUE(page.entries[0].latest);
  EXPECT_FALSE(page.entries[1].latest);
}

TEST_F(StoreTest, ListingsGroupAndPage) {
  int number = 0;
  for (const char* key : {"a", "a/1", "a/2", "b/", "b/x", "c", "c\xff", "c\xff\xff", "d/e/f"})
    ASSERT_TRUE(put(key, "1,0" + std::to_string(++number)).ok());
  ListQuery query;
  query.delimiter = "/";
  EXPECT_THAT(keys(query), ElementsAre("a", "c", "c\xff", "c\xff\xff"));
  EXPECT_THAT(store_->list("b", query)->prefixes, ElementsAre("a/", "b/", "d/"));
  // Every page size gives the same whole.
  for (std::size_t limit = 1; limit < 10; ++limit) {
    std::vector<std::string> all;
    ListQuery page_query = query;
    page_query.limit = limit;
    for (int turns = 0; turns < 20; ++turns) {
      const Page page = store_->list("b", page_query).value();
      EXPECT_LE(page.entries.size() + page.prefixes.size(), limit);
      for (const Listed& one : page.entries) all.push_back(one.key);
      for (const std::string& one : page.prefixes) all.push_back(one);
      if (!page.truncated) break;
      page_query.after = page.next;
    }
    std::sort(all.begin(), all.end());
    EXPECT_THAT(all, ElementsAre("a", "a/", "b/", "c", "c\xff", "c\xff\xff", "d/")) << limit;
  }
  query.prefix = "d/";
  EXPECT_THAT(store_->list("b", query)->prefixes, ElementsAre("d/e/"));
  query = {};
  query.prefix = "c\xff";
  EXPECT_THAT(keys(query), ElementsAre("c\xff", "c\xff\xff"));
  query.limit = 0;
  EXPECT_FALSE(store_->list("b", query)->truncated);
}

TEST_F(StoreTest, UploadsEndInOneObject) {
  Upload upload;
  upload.id = "u1";
  upload.bucket = "b";
  upload.key = "k";
  upload.fields = {{"content-type", "x/y"}};
  ASSERT_TRUE(store_->create_upload(upload).ok());
  EXPECT_EQ(store_->upload("b", "k", "u1")->fields, upload.fields);
  EXPECT_EQ(store_->upload("b", "other", "u1").error().where, kNoUpload);
  const auto part = [&](std::uint32_t number, std::uint64_t size, const std::string& fid) {
    EXPECT_TRUE(store_->reserve(std::span(&fid, 1)).ok());
    Part out;
    out.number = number;
    out.size = size;
    out.etag = "e" + fid;
    out.chunks = {{0, size, fid}};
    return store_->put_part("b", "k", "u1", out);
  };
  ASSERT_TRUE(part(1, kPartSizeMin, "1,01").ok());
  ASSERT_TRUE(part(1, kPartSizeMin, "1,02").ok());  // instead of the first
  ASSERT_TRUE(part(5, 7, "1,03").ok());
  ASSERT_TRUE(part(9, 7, "1,04").ok());
  EXPECT_THAT(garbage(), ElementsAre("1,01"));
  EXPECT_EQ(store_->list_parts("b", "k", "u1", 1, 1)->parts.at(0).number, 5U);
  EXPECT_TRUE(store_->list_parts("b", "k", "u1", 0, 2)->truncated);
  Object whole;
  whole.size = kPartSizeMin + 7;
  const auto complete = [&](std::vector<WantedPart> wanted) {
    return store_->complete_upload("b", "k", "u1", wanted, whole, {});
  };
  EXPECT_EQ(complete({{5, "e1,03", {}}, {1, "e1,02", {}}}).error().where, kBadOrder);
  EXPECT_EQ(complete({{1, "e1,01", {}}, {5, "e1,03", {}}}).error().where, kBadPart);
  EXPECT_EQ(complete({{5, "e1,03", {}}, {9, "e1,04", {}}}).error().where, kSmallPart);
  ASSERT_TRUE(complete({{1, "e1,02", {}}, {5, "e1,03", {}}}).ok());
  const Object object = store_->find("b", "k", {}).value();
  EXPECT_THAT(object.chunks,
              ElementsAre(Chunk{0, kPartSizeMin, "1,02"}, Chunk{kPartSizeMin, 7, "1,03"}));
  EXPECT_THAT(object.parts,
              ElementsAre(PartSpan{1, 0, kPartSizeMin}, PartSpan{5, kPartSizeMin, 7}));
  EXPECT_THAT(garbage(), ElementsAre("1,01", "1,04"));
  EXPECT_EQ(store_->abort_upload("b", "k", "u1").error().where, kNoUpload);
}

TEST_F(StoreTest, OneProcessAtATime) { EXPECT_EQ(open_sqlite_store(options()).code(), Errc::busy); }

TEST_F(StoreTest, DamagedBodiesAreRefused) {
  const std::string good =
      encode_body({{{"a", "b"}}, {}, Checksum{"sha1", "x", false}, {{0, 1, "1,01"}}, {{1, 0, 1}}});
  ASSERT_TRUE(decode_body(good).ok());
  for (std::size_t cut = 0; cut < good.size(); ++cut)
    EXPECT_EQ(decode_body(good.substr(0, cut)).code(), Errc::corrupt) << cut;
  EXPECT_EQ(decode_body(good + "x").code(), Errc::corrupt);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = '\xff';
    decode_body(bad).ok();  // any answer, and no allocation of gigabytes
  }
}

// A process that publishes until it is killed: what it said was done is there, and whole.
TEST_F(StoreTest, KilledAtAnyPoint) {
  store_.reset();
  for (int round = 0; round < 10; ++round) {
    int tell[2];
    ASSERT_EQ(::pipe(tell), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      auto store = open_sqlite_store(options());
      if (!store.ok()) ::_exit(1);
      for (std::uint32_t i = 0;; ++i) {
        const std::string fid = std::to_string(round + 1) + "," + std::to_string(i);
        if (!(*store)->reserve(std::span(&fid, 1)).ok()) ::_exit(2);
        if (!(*store)->publish("b", object("k", fid), {}).ok()) ::_exit(3);
        if (::write(tell[1], &i, sizeof i) != sizeof i) ::_exit(4);
      }
    }
    ::close(tell[1]);
    std::uint32_t last = 0;
    for (int i = 0; i < 20 + round * 7; ++i)
      ASSERT_EQ(::read(tell[0], &last, sizeof last), static_cast<ssize_t>(sizeof last));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    for (std::uint32_t more = 0; ::read(tell[0], &more, sizeof more) == sizeof more;) last = more;
    ::close(tell[0]);
    open();
    const Object found = store_->find("b", "k", {}).value();
    const std::string told = std::to_string(round + 1) + "," + std::to_string(last);
    const std::string next = std::to_string(round + 1) + "," + std::to_string(last + 1);
    EXPECT_TRUE(found.chunks.at(0).fid == told || found.chunks.at(0).fid == next)
        << found.chunks.at(0).fid << " after " << told;
    EXPECT_EQ(found.etag, "etag-" + found.chunks[0].fid);
    EXPECT_TRUE(store_->owned(found.chunks[0].fid).value());
    // The rest is known as garbage.
    EXPECT_EQ(store_->ledger()->reserved, 0U);
    store_.reset();
  }
  open();
}

}  // namespace
}  // namespace farlift::s3::catalog
