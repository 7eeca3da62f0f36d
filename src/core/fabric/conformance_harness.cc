#include "core/fabric/conformance_harness.h"

#include "core/base/prng.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace farlift::fabric::conformance {

__attribute__((no_sanitize("thread"))) std::uint8_t peek(const std::byte* at) noexcept {
  return *reinterpret_cast<const volatile std::uint8_t*>(at);
}

int rounds(const ConformanceProvider& provider, int at_full_speed) noexcept {
  static const int at_length = std::getenv("FARLIFT_LONG") != nullptr ? 2 : 1;  // ./test --long
  return at_length * std::max(3, at_full_speed * static_cast<int>(provider.rounds_percent) / 100);
}

bool all_are(std::span<const std::byte> bytes, int value) noexcept {
  if (bytes.empty()) return true;
  return bytes[0] == static_cast<std::byte>(value) &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

void fill_pattern(std::span<std::byte> out, std::uint64_t seed) {
  Prng prng(seed);
  std::size_t i = 0;
  for (; i + 8 <= out.size(); i += 8) {
    const std::uint64_t v = prng.next();
    std::memcpy(out.data() + i, &v, 8);
  }
  for (; i < out.size(); ++i) out[i] = static_cast<std::byte>(prng.next());
}

Buffer::Buffer(Domain& domain, std::size_t size) : bytes_(size) {
  if (!domain.info().local_registration_required) return;
  auto registered = domain.register_memory({bytes_}, Access::local);
  EXPECT_TRUE(registered.ok());
  if (registered.ok()) registration_ = *std::move(registered);
}

void Buffer::fill(std::uint64_t seed) { fill_pattern(bytes_, seed); }
void Buffer::set(int value) { std::memset(bytes_.data(), value, bytes_.size()); }
bool Buffer::is(int value) const noexcept { return all_are(bytes_, value); }

Pair::Pair(const ConformanceProvider& p) : provider(p) {
  auto opened = p.open();
  auto opened_target = p.open();
  EXPECT_TRUE(opened.ok() && opened_target.ok());
  domain = *std::move(opened);
  target_domain = *std::move(opened_target);
  TargetOptions target_options;
  target_options.own_thread = !p.pump_target;
  auto t = target_domain->open_target(target_options);
  EXPECT_TRUE(t.ok()) << t.error().describe();
  target = *std::move(t);
  InitiatorOptions options;
  options.streams_per_peer = p.streams_per_peer;
  options.connect_deadline = kLong;  // a busy machine is not a fault
  auto i = domain->open_initiator(options);
  EXPECT_TRUE(i.ok()) << i.error().describe();
  initiator = *std::move(i);
  EXPECT_TRUE(target->add_peer(initiator->address()).ok());
  auto added = initiator->add_peer(target->address());
  EXPECT_TRUE(added.ok()) << added.error().describe();
  peer = *added;
}

std::vector<std::byte>& Pair::memory(std::size_t size, std::byte value) {
  return kept.emplace_back(size, value);
}

std::unique_ptr<Registration> Pair::lend(std::span<std::byte> memory, Access access) {
  auto registered = target_domain->register_memory({memory}, access);
  EXPECT_TRUE(registered.ok()) << registered.error().describe();
  return *std::move(registered);
}

std::uint64_t Pair::post(OpKind kind, PeerId to, RKey key, RemoteAddr addr,
                         std::span<std::byte> local, Buffer& of) {
  const std::uint64_t context = next_context++;
  const auto limit = std::chrono::steady_clock::now() + kLong;
  for (;;) {
    const Status posted = initiator->post({kind, to, key, addr, local, of.registration(), context});
    if (posted.ok()) return context;
    const bool again = posted.code() == Errc::again && std::chrono::steady_clock::now() < limit;
    EXPECT_TRUE(again) << posted.error().describe();
    if (!again) {
      results[context] = posted;
      return context;
    }
    step();
  }
}

void Pair::step() {
  if (provider.pump_target && target) {
    for (int i = 0; i < 8; ++i) static_cast<void>(target->progress(0));
  }
  Completion done[16];
  const std::size_t n = initiator->poll(done);
  for (std::size_t i = 0; i < n; ++i) {
    EXPECT_FALSE(results.contains(done[i].context)) << "completed twice";
    results[done[i].context] = done[i].status;
  }
  if (n == 0) initiator->wait(provider.pump_target ? 0 : 5);
}

Status Pair::wait(std::uint64_t context) {
  const bool in_time = step_until(*this, [&] { return completed(context); });
  EXPECT_TRUE(in_time) << "operation never completed";
  return in_time ? results[context] : Status(Error::make(Errc::timeout, "test"));
}

PeerProcess::PeerProcess(const std::string& provider) {
  int in[2];
  int out[2];
  EXPECT_EQ(::pipe2(in, O_CLOEXEC), 0);
  EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  std::string program = "/proc/self/exe";
  std::string flag = "--fabric-peer=" + provider;
  char* argv[] = {program.data(), flag.data(), nullptr};
  EXPECT_EQ(::posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv, environ), 0);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  to_ = UniqueFd(in[1]);
  from_ = UniqueFd(out[0]);
}

PeerProcess::~PeerProcess() { kill(); }

std::vector<std::string> PeerProcess::ask(const std::string& line) {
  const std::string sent = line + "\n";
  EXPECT_EQ(::write(to_.get(), sent.data(), sent.size()), static_cast<ssize_t>(sent.size()));
  std::size_t end = 0;
  while ((end = pending_.find('\n')) == std::string::npos) {
    pollfd p{from_.get(), POLLIN, 0};
    char piece[512];
    ssize_t n = 0;
    if (::poll(&p, 1, static_cast<int>(std::chrono::milliseconds(kLong).count())) == 1) {
      n = ::read(from_.get(), piece, sizeof piece);
    }
    if (n <= 0) {
      ADD_FAILURE() << "no answer of the peer to: " << line;
      return {"none", "0", "0", "0"};
    }
    pending_.append(piece, static_cast<std::size_t>(n));
  }
  std::istringstream words(pending_.substr(0, end));
  pending_.erase(0, end + 1);
  std::vector<std::string> out;
  for (std::string word; words >> word;) out.push_back(word);
  EXPECT_FALSE(out.empty());
  EXPECT_EQ(out.empty() ? "" : out[0], "ok") << "the peer answered an error to: " << line;
  out.resize(4);
  return out;
}

void PeerProcess::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
}

void PeerProcess::stop() {
  EXPECT_EQ(::kill(pid_, SIGSTOP), 0);
  int status = 0;
  EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
  EXPECT_TRUE(WIFSTOPPED(status));
}

void PeerProcess::resume() { EXPECT_EQ(::kill(pid_, SIGCONT), 0); }

Address address_from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  auto address = Address::from_bytes(bytes);
  EXPECT_TRUE(address.ok());
  return address.ok() ? *address : Address();
}

}  // namespace farlift::fabric::conformance
