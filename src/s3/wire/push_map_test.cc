#include "s3/wire/push_map.h"

#include <gtest/gtest.h>

namespace farlift::s3 {
namespace {

TEST(S3PushMap, entries_are_found_as_they_are_spelled) {
  const auto map =
      PushMap::parse("10.0.0.5:8080=10.0.0.5:19080 ; [::1]:8080=[fd00::2]:7;v.x:1=w:65535");
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->size(), 3u);
  ASSERT_NE(map->find("10.0.0.5:8080"), nullptr);
  EXPECT_EQ(*map->find("10.0.0.5:8080"), (HostPort{"10.0.0.5", 19080}));
  EXPECT_EQ(map->find("[::1]:8080")->format(), "[fd00::2]:7");
  EXPECT_EQ(map->find("v.x:1")->format(), "w:65535");
  EXPECT_EQ(map->find("V.x:1"), nullptr);
  EXPECT_EQ(map->find("10.0.0.5:08080"), nullptr);
}

TEST(S3PushMap, bad_entries_are_named) {
  for (const char* text : {"",
                           " ",
                           ";",
                           "a:1=b:2;",
                           "a:1=b:2;;c:3=d:4",
                           "a:1",
                           "a:1=",
                           "=b:2",
                           "a=b:2",
                           "a:1=b",
                           "a:0=b:2",
                           "a:1=b:0",
                           "a:1=b:65536",
                           "a:65536=b:2",
                           "a:1=b:2;a:1=c:3",
                           "::1:5=b:2",
                           "[::1]5=b:2",
                           "[]:1=b:2",
                           ":1=b:2",
                           "a:1=b:x",
                           "a:1=b:2=c:3",
                           "a :1=b:2",
                           "a:1 = b:2"}) {
    std::string reason;
    EXPECT_FALSE(PushMap::parse(text, &reason).ok()) << text;
    EXPECT_FALSE(reason.empty()) << text;
  }
}

}  // namespace
}  // namespace farlift::s3
