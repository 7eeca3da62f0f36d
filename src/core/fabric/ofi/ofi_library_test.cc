// Opening libfabric at run time: what is refused, and what loading it leaves alone.
#include "core/fabric/ofi/ofi_test_base.h"

#include <charconv>
#include <cstdlib>
#include <signal.h>

namespace farlift::fabric::ofi {
namespace {

TEST(OfiLibrary, missing_library_is_a_reason_not_a_crash) {
  const LibraryStatus status = library_status(kVersionAny, "libfabric-that-is-not-there.so.1");
  EXPECT_FALSE(status.usable);
  EXPECT_TRUE(status.version.empty());
  EXPECT_NE(status.reason.find("cannot be loaded"), std::string::npos) << status.reason;
  OfiOptions options;
  options.library = "libfabric-that-is-not-there.so.1";
  std::string why;
  const auto opened = open_domain(options, kClock, &why);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.code(), Errc::unsupported);
  EXPECT_FALSE(why.empty());
}

TEST(OfiLibrary, a_library_that_is_not_libfabric_is_refused) {
  const LibraryStatus status = library_status(kVersionAny, "libc.so.6");
  EXPECT_FALSE(status.usable);
  EXPECT_NE(status.reason.find("not a usable libfabric"), std::string::npos) << status.reason;
}

TEST(OfiLibrary, version_rules_gate_both_ends) {
  const LibraryStatus any = library_status(VersionRule{0, 0, 0});
  if (!any.usable) GTEST_SKIP() << any.reason;
  unsigned major = 0;
  unsigned minor = 0;
  const char* const end = any.version.data() + any.version.size();
  const auto dot = std::from_chars(any.version.data(), end, major);
  ASSERT_TRUE(dot.ec == std::errc() && dot.ptr != end && *dot.ptr == '.');
  ASSERT_TRUE(std::from_chars(dot.ptr + 1, end, minor).ec == std::errc());
  EXPECT_TRUE(library_status(VersionRule{major, minor, 0}).usable);
  EXPECT_TRUE(library_status(VersionRule{major, minor, major + 1}).usable);
  EXPECT_FALSE(library_status(VersionRule{major, minor + 1, 0}).usable);
  EXPECT_FALSE(library_status(VersionRule{major + 1, 0, 0}).usable);
  const LibraryStatus below = library_status(VersionRule{0, 0, major});
  EXPECT_FALSE(below.usable);
  EXPECT_NE(below.reason.find(any.version), std::string::npos) << below.reason;
}

std::vector<void (*)(int)> signal_handlers() {
  std::vector<void (*)(int)> handlers;
  for (int number = 1; number < 32; ++number) {
    struct sigaction action {};
    (void)::sigaction(number, nullptr, &action);
    handlers.push_back(action.sa_handler);
  }
  return handlers;
}

const auto kHandlersAtStart = signal_handlers();  // before anything loaded libfabric

TEST(OfiLibrary, loading_leaves_signal_handlers_alone) {
  if (const LibraryStatus status = library_status(kVersionAny); !status.usable) {
    GTEST_SKIP() << status.reason;
  }
  ASSERT_TRUE(list_domains(OfiOptions{}).ok());
  EXPECT_EQ(signal_handlers(), kHandlersAtStart);
}

TEST(OfiLibrary, the_registration_cache_is_switched_off_whatever_the_user_said) {
  ASSERT_EQ(::setenv("FI_MR_CACHE_MAX_COUNT", "1000", 1), 0);
  ASSERT_EQ(::setenv("FI_UNIVERSE_SIZE", "77", 1), 0);
  if (const LibraryStatus status = library_status(kVersionAny); !status.usable)
    GTEST_SKIP() << status.reason;
  EXPECT_STREQ(::getenv("FI_MR_CACHE_MAX_COUNT"), "0");
  EXPECT_STREQ(::getenv("FI_MR_CACHE_MONITOR"), "disabled");
  EXPECT_STREQ(::getenv("FI_UNIVERSE_SIZE"), "77");
}

}  // namespace
}  // namespace farlift::fabric::ofi
