// soft_bench: how fast the soft lanes are beside what the host can do: a raw TCP stream,
// process_vm_readv, and memcpy from a shared mapping. Two processes; a round measures each way
// once, so that a busy host disturbs all of them alike.
//
//   soft_bench [rounds=5] [piece=0 (whole value) or bytes] [largest MiB=256]
#include "core/fabric/soft/soft.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace farlift::fabric::soft {
namespace {

using Seconds = std::chrono::duration<double>;

struct Shared {  // what the child tells the parent
  std::uint64_t ready = 0;
  std::uint64_t key[2] = {};
  unsigned char address[2][16] = {};
  std::uint16_t raw_port = 0;
  std::uint64_t buffer = 0;
};

std::size_t g_max = 256u << 20;

void run_raw_sink(int listener, std::byte* into) {
  for (;;) {
    const int fd = ::accept(listener, nullptr, nullptr);
    if (fd < 0) return;
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::uint64_t size = 0;
    while (::recv(fd, &size, sizeof size, MSG_WAITALL) == sizeof size) {
      std::uint64_t at = 0;
      while (at < size) {
        const ssize_t n = ::recv(fd, into + at, std::min<std::uint64_t>(size - at, 1u << 20), 0);
        if (n <= 0) break;
        at += static_cast<std::uint64_t>(n);
      }
      const char ack = 1;
      if (::send(fd, &ack, 1, MSG_NOSIGNAL) != 1) break;
    }
    ::close(fd);
  }
}

void child(Shared* shared, std::byte* mapping, bool two_threads) {
  static const SystemClock clock;
  std::vector<std::unique_ptr<Domain>> domains;
  std::vector<std::unique_ptr<Registration>> regions;
  std::vector<std::unique_ptr<TargetEndpoint>> targets;
  for (int lane = 0; lane < 2; ++lane) {
    SoftOptions options;
    options.host_lane = lane == 1;
    domains.push_back(*open_domain(options, clock));
    regions.push_back(
        *domains.back()->register_memory({{mapping, g_max}}, Access::remote_read_write));
    targets.push_back(*domains.back()->open_target({}));
    shared->key[lane] = regions.back()->key().raw();
    std::memcpy(shared->address[lane], targets.back()->address().bytes().data(), 16);
  }
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof any;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&any), size) != 0 || ::listen(listener, 8) != 0)
    std::exit(1);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&any), &size);
  shared->raw_port = any.sin_port;
  shared->buffer = reinterpret_cast<std::uint64_t>(mapping);
  __atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
  if (two_threads) {
    // A second thread of progress for each endpoint, as a caller that waits for its reply would be.
    for (auto& t : targets) {
      TargetEndpoint* target = t.get();
      if (::getenv("SOFT_BENCH_ONE_THREAD") == nullptr) {
        new std::thread([target] {
          while (target->progress(-1).ok()) {
          }
        });
      }
    }
  }
  run_raw_sink(listener, mapping);
  std::exit(0);
}

void must(bool ok, const char* what) {
  if (!ok) {
    std::fprintf(stderr, "soft_bench: %s\n", what);
    std::exit(1);
  }
}

// One value of `size`, cut into pieces (0: whole), at most 16 in flight.
void move_value(Initiator& i, PeerId peer, RKey key, OpKind kind, std::byte* local,
                std::size_t size, std::size_t piece) {
  if (piece == 0) piece = size;
  std::size_t at = 0;
  std::size_t out = 0;
  while (at < size || out > 0) {
    while (at < size && out < 16) {
      const std::size_t n = std::min(piece, size - at);
      must(i.post({kind, peer, key, RemoteAddr(at), {local + at, n}, nullptr, 0}).ok(), "post");
      at += n;
      ++out;
    }
    Completion done[16];
    const std::size_t n = i.poll(done);
    for (std::size_t k = 0; k < n; ++k) must(done[k].status.ok(), "operation failed");
    out -= n;
    if (n == 0) i.wait(-1);
  }
}

struct Row {
  std::vector<double> gb_per_s;
  std::vector<double> us;
};

double median(std::vector<double> v) {  // of a sorted copy
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

int run(int rounds, std::size_t piece) {
  auto* shared = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  auto* mapping = static_cast<std::byte*>(
      ::mmap(nullptr, g_max, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  auto* local = static_cast<std::byte*>(
      ::mmap(nullptr, g_max, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  must(mapping != MAP_FAILED && local != MAP_FAILED, "mmap");
  std::memset(mapping, 1, g_max);
  std::memset(local, 2, g_max);
  const pid_t pid = ::fork();
  if (pid == 0) child(shared, mapping, true);
  while (__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) == 0) ::usleep(1000);
  static const SystemClock clock;
  std::unique_ptr<Domain> domains[2];
  std::unique_ptr<Initiator> initiators[2];
  PeerId peers[2];
  for (int lane = 0; lane < 2; ++lane) {
    SoftOptions options;
    options.host_lane = lane == 1;
    domains[lane] = *open_domain(options, clock);
    InitiatorOptions initiator_options;
    if (const char* streams = ::getenv("SOFT_BENCH_STREAMS"))
      initiator_options.streams_per_peer = static_cast<std::uint32_t>(std::atoi(streams));
    initiators[lane] = *domains[lane]->open_initiator(initiator_options);
    peers[lane] = *initiators[lane]->add_peer(
        *Address::from_bytes(std::as_bytes(std::span(shared->address[lane]))));
  }
  const int raw = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = shared->raw_port;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  must(::connect(raw, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0, "connect");
  const int on = 1;
  ::setsockopt(raw, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);

  const auto raw_tcp = [&](std::size_t size) {
    const std::uint64_t n = size;
    must(::send(raw, &n, sizeof n, MSG_NOSIGNAL | MSG_MORE) == sizeof n, "send");
    for (std::size_t at = 0; at < size;) {
      const ssize_t s =
          ::send(raw, local + at, std::min<std::size_t>(size - at, 1u << 20), MSG_NOSIGNAL);
      must(s > 0, "send");
      at += static_cast<std::size_t>(s);
    }
    char ack = 0;
    must(::recv(raw, &ack, 1, MSG_WAITALL) == 1, "recv");
  };
  const auto pvm = [&](std::size_t size) {
    for (std::size_t at = 0; at < size; at += 1u << 20) {
      const iovec l{local + at, std::min<std::size_t>(size - at, 1u << 20)};
      const iovec r{mapping + at, l.iov_len};
      must(::process_vm_readv(pid, &l, 1, &r, 1, 0) == static_cast<ssize_t>(l.iov_len),
           "process_vm_readv");
    }
  };
  const std::vector<std::pair<std::string, std::function<void(std::size_t)>>> ways = {
      {"raw_tcp", raw_tcp},
      {"remote write",
       [&](std::size_t n) {
         move_value(*initiators[0], peers[0], RKey(shared->key[0]), OpKind::write, local, n, piece);
       }},
      {"remote read",
       [&](std::size_t n) {
         move_value(*initiators[0], peers[0], RKey(shared->key[0]), OpKind::read, local, n, piece);
       }},
      {"pvm_readv", pvm},
      {"memcpy shared", [&](std::size_t n) { std::memcpy(local, mapping, n); }},
      {"host write",
       [&](std::size_t n) {
         move_value(*initiators[1], peers[1], RKey(shared->key[1]), OpKind::write, local, n, piece);
       }},
      {"host read",
       [&](std::size_t n) {
         move_value(*initiators[1], peers[1], RKey(shared->key[1]), OpKind::read, local, n, piece);
       }},
  };
  std::printf("%-14s", "GB/s (p50 us)");
  const std::size_t sizes[] = {64u << 10, 512u << 10, 1u << 20,  4u << 20,
                               16u << 20, 64u << 20,  256u << 20};
  for (const std::size_t size : sizes) {
    if (size <= g_max) std::printf(" %17zuK", size >> 10);
  }
  std::printf("\n");
  std::map<std::string, std::map<std::size_t, Row>> rows;
  for (const std::size_t size : sizes) {
    if (size > g_max) continue;
    const std::size_t repeat = std::clamp<std::size_t>((64u << 20) / size, 1, 200);
    for (int round = 0; round < rounds; ++round) {
      for (const auto& [name, way] : ways) {
        way(size);
        Row& row = rows[name][size];
        const auto begin = std::chrono::steady_clock::now();
        auto last = begin;
        for (std::size_t i = 0; i < repeat; ++i) {
          way(size);
          const auto now = std::chrono::steady_clock::now();
          row.us.push_back(Seconds(now - last).count() * 1e6);
          last = now;
        }
        row.gb_per_s.push_back(static_cast<double>(size * repeat) / Seconds(last - begin).count() /
                               1e9);
      }
    }
  }
  for (const auto& [name, way] : ways) {
    std::printf("%-14s", name.c_str());
    for (const auto& [size, row] : rows[name])
      std::printf(" %7.2f (%8.1f)", static_cast<double>(size) / median(row.us) / 1e3,
                  median(row.us));
    std::printf("\n");
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace farlift::fabric::soft

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  const std::size_t piece = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (argc > 3) farlift::fabric::soft::g_max = std::strtoull(argv[3], nullptr, 10) << 20;
  return farlift::fabric::soft::run(rounds, piece);
}
