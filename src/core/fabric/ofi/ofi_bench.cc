// Pushes into a process's memory over libfabric's tcp wire, beside a plain TCP stream doing the
// same work, in turns.
//
//   ofi_bench [SECONDS_PER_CELL]      (default 0.5)
//
// One operation is one value: cut into 512 KiB pieces, each written with delivery-complete, over
// when the last is; for the stream: sent, received into one buffer, and acknowledged by one byte.
// Target and initiator are two domains (and two threads) of this process, so both sides share its
// cores.
#include "core/base/assert.h"
#include "core/base/unique_fd.h"
#include "core/fabric/ofi/ofi.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace farlift::fabric::ofi {
namespace {

constexpr std::size_t kPiece = 512 << 10;
constexpr std::size_t kSizes[] = {64 << 10, 256 << 10, 1 << 20,  4 << 20,
                                  16 << 20, 64 << 20,  256 << 20};
constexpr int kRounds = 3;

using Seconds = std::chrono::duration<double>;

struct Cell {
  double gb_per_s = 0;
  double p50_us = 0;
};

// Runs `one` for about `budget`, at least three times.
template <class One>
Cell measure(std::size_t size, Seconds budget, One one) {
  one();  // warm: connections, page faults
  std::vector<double> us;
  const auto start = std::chrono::steady_clock::now();
  Seconds spent{};
  while (us.size() < 3 || spent < budget) {
    const auto from = std::chrono::steady_clock::now();
    one();
    const auto now = std::chrono::steady_clock::now();
    us.push_back(std::chrono::duration<double, std::micro>(now - from).count());
    spent = now - start;
  }
  Cell cell;
  cell.gb_per_s = static_cast<double>(size) * static_cast<double>(us.size()) / spent.count() / 1e9;
  std::nth_element(us.begin(), us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2), us.end());
  cell.p50_us = us[us.size() / 2];
  return cell;
}

class Push {
 public:
  Push(Domain& server, Domain& client, std::span<std::byte> memory, std::span<std::byte> source)
      : lent_(server.register_memory(MemoryRef{memory, -1, 0}, Access::remote_write).value()),
        local_(client.register_memory(MemoryRef{source, -1, 0}, Access::local).value()),
        target_(server.open_target(TargetOptions{}).value()),
        initiator_(client.open_initiator(InitiatorOptions{}).value()),
        peer_(initiator_->add_peer(target_->address()).value()),
        source_(source) {}

  void value(std::size_t size) {
    std::size_t posted = 0;
    std::size_t done = 0;
    while (done < size) {
      while (posted < size) {
        Operation op;
        op.peer = peer_;
        op.key = lent_->key();
        op.addr = lent_->addr() + Offset(posted);
        op.local = source_.subspan(posted, std::min(kPiece, size - posted));
        op.local_registration = local_.get();
        op.context = op.local.size();
        if (!initiator_->post(op).ok()) break;
        posted += op.local.size();
      }
      Completion out[16];
      const std::size_t n = initiator_->poll(out);
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT(out[i].status.ok());
        done += out[i].context;
      }
      if (n == 0) initiator_->wait(1000);
    }
  }

 private:
  std::unique_ptr<Registration> lent_;
  std::unique_ptr<Registration> local_;
  std::unique_ptr<TargetEndpoint> target_;
  std::unique_ptr<Initiator> initiator_;
  PeerId peer_;
  std::span<std::byte> source_;
};

void send_all(int fd, const std::byte* data, std::size_t size) {
  for (std::size_t at = 0; at < size;) {
    const ssize_t n = ::send(fd, data + at, size - at, MSG_NOSIGNAL);
    ASSERT(n > 0);
    at += static_cast<std::size_t>(n);
  }
}

bool receive_all(int fd, std::byte* data, std::size_t size) {
  for (std::size_t at = 0; at < size;) {
    const ssize_t n = ::recv(fd, data + at, size - at, 0);
    if (n <= 0) return false;
    at += static_cast<std::size_t>(n);
  }
  return true;
}

// Announces each value's size, receives it, answers one byte.
class Stream {
 public:
  Stream(std::span<std::byte> memory, std::span<std::byte> source) : source_(source) {
    UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof in;
    auto* const address = reinterpret_cast<sockaddr*>(&in);
    ASSERT(::bind(listener.get(), address, length) == 0 && ::listen(listener.get(), 1) == 0);
    ASSERT(::getsockname(listener.get(), address, &length) == 0);
    near_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT(::connect(near_.get(), address, length) == 0);
    UniqueFd far(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT(far);
    const int on = 1;
    ASSERT(::setsockopt(near_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    receiver_ = std::thread([fd = std::move(far), memory] {
      std::size_t size = 0;
      while (receive_all(fd.get(), reinterpret_cast<std::byte*>(&size), sizeof size) &&
             receive_all(fd.get(), memory.data(), size)) {
        const std::byte done{1};
        send_all(fd.get(), &done, 1);
      }
    });
  }
  ~Stream() {
    near_.reset();
    receiver_.join();
  }

  void value(std::size_t size) {
    send_all(near_.get(), reinterpret_cast<const std::byte*>(&size), sizeof size);
    send_all(near_.get(), source_.data(), size);
    std::byte done{};
    ASSERT(receive_all(near_.get(), &done, 1));
  }

 private:
  std::span<std::byte> source_;
  UniqueFd near_;
  std::thread receiver_;
};

int run(Seconds budget) {
  const SystemClock clock;
  OfiOptions options;
  options.listen_ip = "127.0.0.1";
  std::string why;
  auto server = open_domain(options, clock, &why);
  auto client = open_domain(options, clock, &why);
  if (!server.ok() || !client.ok()) {
    std::fprintf(stderr, "ofi_bench: %s\n", why.c_str());
    return 1;
  }
  const std::size_t largest = *std::max_element(std::begin(kSizes), std::end(kSizes));
  std::vector<std::byte> memory(largest);
  std::vector<std::byte> source(largest, std::byte{0x5a});
  Push push(*server.value(), *client.value(), memory, source);
  Stream stream(memory, source);
  std::printf("libfabric %s, provider %s, loopback; best of %d rounds in turn\n",
              server.value()->info().version.c_str(), server.value()->info().provider.c_str(),
              kRounds);
  std::printf("%10s %14s %10s %14s %10s %7s\n", "KiB", "push GB/s", "p50 us", "stream GB/s",
              "p50 us", "ratio");
  for (const std::size_t size : kSizes) {
    Cell best_push;
    Cell best_stream;
    const auto better = [](Cell a, Cell b) { return a.gb_per_s > b.gb_per_s ? a : b; };
    for (int round = 0; round < kRounds; ++round) {
      best_push = better(best_push, measure(size, budget, [&] { push.value(size); }));
      best_stream = better(best_stream, measure(size, budget, [&] { stream.value(size); }));
    }
    std::fill(memory.begin(), memory.end(), std::byte{0});
    push.value(size);
    if (std::memcmp(memory.data(), source.data(), size) != 0) {
      std::fprintf(stderr, "ofi_bench: wrong bytes\n");
      return 1;
    }
    std::printf("%10zu %14.2f %10.0f %14.2f %10.0f %7.2f\n", size >> 10, best_push.gb_per_s,
                best_push.p50_us, best_stream.gb_per_s, best_stream.p50_us,
                best_push.gb_per_s / best_stream.gb_per_s);
  }
  return 0;
}

}  // namespace
}  // namespace farlift::fabric::ofi

int main(int argc, char** argv) {
  double seconds = 0.5;
  if (argc > 1) {
    const char* const end = argv[1] + std::strlen(argv[1]);
    if (std::from_chars(argv[1], end, seconds).ptr != end || seconds <= 0) {
      std::fprintf(stderr, "usage: ofi_bench [SECONDS_PER_CELL]\n");
      return 2;
    }
  }
  return farlift::fabric::ofi::run(farlift::fabric::ofi::Seconds(seconds));
}
