#include "apps/private_node.h"

#include "apps/files.h"
#include "core/base/clock.h"
#include "core/base/prng.h"
#include "core/codec/text.h"

#include <fmt/format.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <unistd.h>

namespace farlift::apps {

namespace {

constexpr Duration kStartLimit = std::chrono::seconds(60);
constexpr std::chrono::milliseconds kPollInterval(20);
constexpr std::size_t kLogMax = std::size_t{1} << 20;

// The secret is made once and stays, so that what a kept directory signed stays valid.
Outcome<std::string> key_file_in(const std::string& directory) {
  const std::string path = directory + "/okv.keys";
  if (access(path.c_str(), R_OK) == 0) return path;
  std::array<std::byte, 32> secret{};
  secure_random(secret);
  const std::string text = "# tenant " + std::string(kPrivateTenant) + ": key id, secret\n1 " +
                           codec::hex_encode(secret) + "\n";
  if (Outcome<void> written = write_file(path, text); !written) return fail(written.error());
  return path;
}

std::string last_line(const std::string& path) {
  Outcome<std::string> text = read_file(path, kLogMax);
  if (!text) return "";
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return text->substr(text->rfind('\n') + 1);
}

}  // namespace

Outcome<std::unique_ptr<PrivateNode>> PrivateNode::start(const PrivateNodeOptions& options) {
  Outcome<std::string> keys = key_file_in(options.directory);
  if (!keys) return fail(keys.error());
  Outcome<std::string> self = absolute_path("/proc/self/exe");
  if (!self) return fail(self.error());
  const std::string log = options.directory + "/node.log";
  const std::string ready = options.directory + "/node.port";
  unlink(ready.c_str());
  if (!options.password.empty()) setenv("FARLIFT_PASSWORD", options.password.c_str(), 1);
  Child::Options wanted;
  wanted.argv = {
      *self,          "node",
      "--listen",     options.host,
      "--valkey",     fmt::format("{}:{}", options.host, options.valkey_port),
      "--tenant",     fmt::format("{},keys={},quota={}", kPrivateTenant, *keys, options.quota),
      "--arena-size", options.arena_size,
      "--ready-file", ready};
  for (const auto& [tenant, quota] : options.more_tenants) {
    wanted.argv.push_back("--tenant");
    wanted.argv.push_back(fmt::format("{},keys={},quota={}", tenant, *keys, quota));
  }
  wanted.argv.insert(wanted.argv.end(), options.flags.begin(), options.flags.end());
  wanted.output = log;
  Outcome<Child> child = Child::start(wanted);
  if (!child) return fail(child.error());
  const SystemClock clock;
  const Instant end = clock.now() + kStartLimit;
  for (;;) {
    if (Outcome<std::string> port = read_file(ready, 64); port && port->size() > 1) {
      const auto number = codec::parse_u32(port->substr(0, port->size() - 1));
      if (!number.ok()) return fail(kExitFailed, "the data node wrote no port into " + ready);
      return std::unique_ptr<PrivateNode>(
          new PrivateNode(std::move(*child), *keys, log, static_cast<std::uint16_t>(*number)));
    }
    if (child->ended(kPollInterval))
      return fail(kExitFailed, "the data node did not start: " + last_line(log));
    if (clock.now() >= end)
      return fail(kExitFailed, "the data node did not serve within 60 s; see " + log);
  }
}

PrivateNode::~PrivateNode() { stop(); }

void PrivateNode::stop() { child_.stop(); }

void PrivateNode::kill() {
  ::kill(child_.pid(), SIGKILL);
  child_.stop();
}

std::string PrivateNode::complaint() const { return last_line(log_); }

}  // namespace farlift::apps
