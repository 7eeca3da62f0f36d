// A hostile peer on a soft link: the input is a script of what it sends, from noise to well-formed
// requests with right and wrong keys, over a real socket to a real target. Checked besides
// sanitizers: what comes back is a hello and whole replies, nothing lands outside a registration or
// where there is no right to write, and the byte that stands for secrets (the guards, and memory
// without the right to read) never comes out.
//
// A script is a run of steps: one byte that picks (its value modulo the number of steps), then the
// step's own bytes. Bytes that are missing read as zero.
#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/unique_fd.h"
#include "core/fabric/soft/address.h"
#include "core/fabric/soft/soft.h"
#include "core/fabric/soft/soft_wire.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace {

using namespace farlift;
using namespace farlift::fabric::soft;
namespace fabric = farlift::fabric;

constexpr std::size_t kRegionBytes = 8192;
constexpr std::size_t kGuardBytes = 64;
constexpr int kTurnsMax = 64;  // of progress() that one step or the end may take
constexpr std::byte kSecret{0x5e};

class Script {
 public:
  explicit Script(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool at_end() const { return bytes_.empty(); }
  std::uint64_t number(std::size_t width) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < width && !bytes_.empty(); ++i) {
      value |= std::to_integer<std::uint64_t>(bytes_[0]) << (8 * i);
      bytes_ = bytes_.subspan(1);
    }
    return value;
  }
  std::span<const std::byte> bytes(std::size_t count) {
    const auto taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
};

// Memory lent with one right, between guards.
struct Lent {
  std::vector<std::byte> memory;
  std::unique_ptr<fabric::Registration> registration;

  Lent(fabric::Domain& domain, fabric::Access access)
      : memory(kRegionBytes + 2 * kGuardBytes, kSecret) {
    registration = *domain.register_memory({region(), -1, 0}, access);
    reset();
  }
  // Each input finds the same state.
  void reset() {
    const bool readable = registration->access() != fabric::Access::remote_write;
    std::fill(region().begin(), region().end(), readable ? std::byte{0} : kSecret);
  }
  std::span<std::byte> region() { return std::span(memory).subspan(kGuardBytes, kRegionBytes); }
  bool guards_whole() const {
    const auto secret = [](std::byte b) { return b == kSecret; };
    return std::all_of(memory.begin(), memory.begin() + kGuardBytes, secret) &&
           std::all_of(memory.end() - kGuardBytes, memory.end(), secret);
  }
};

struct Scene {
  SystemClock clock;
  std::unique_ptr<fabric::Domain> domain;
  Lent both;
  Lent read_only;
  Lent write_only;
  std::unique_ptr<fabric::TargetEndpoint> target;

  Scene()
      : domain(*open_domain({}, clock)),
        both(*domain, fabric::Access::remote_read_write),
        read_only(*domain, fabric::Access::remote_read),
        write_only(*domain, fabric::Access::remote_write) {
    set_log_level(LogLevel::error);
    fabric::TargetOptions options;
    options.own_thread = false;
    target = *domain->open_target(options);
  }
  // Until there is nothing to do right now.
  void turn() {
    for (int i = 0; i < kTurnsMax; ++i) {
      const auto before = stats(*domain);
      ASSERT(target->progress(0).ok());
      const auto after = stats(*domain);
      if (i > 1 && before.operations_served == after.operations_served &&
          before.bytes_landed == after.bytes_landed && before.bytes_sent == after.bytes_sent &&
          before.operations_refused == after.operations_refused)
        return;
    }
  }
};

class Peer {
 public:
  explicit Peer(Scene& scene) : scene_(scene) {
    const auto address = SocketAddress::decode(scene.target->address());
    fd_ = UniqueFd(::socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    // Ended by a reset: thousands of connections a second would use up the ports otherwise.
    const linger at_once{1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    if (::connect(fd_.get(), address->get(), address->size()) != 0) fd_ = UniqueFd();
  }

  bool connected() const { return fd_.get() >= 0; }

  void send(std::span<const std::byte> bytes) {
    for (int turns = 0; !bytes.empty() && turns < kTurnsMax; ++turns) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) {
        bytes = bytes.subspan(static_cast<std::size_t>(n));
      } else if (errno != EAGAIN) {
        return;
      } else {
        scene_.turn();
        receive();
      }
    }
  }

  void send_raw(std::span<const std::byte> bytes) {
    std::vector<std::byte> out(bytes.begin(), bytes.end());
    std::replace(out.begin(), out.end(), kSecret, std::byte{0});
    send(out);
  }

  void receive() {
    std::array<std::byte, 16384> piece;
    for (;;) {
      const ssize_t n = ::recv(fd_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
      if (n <= 0) return;
      received_.insert(received_.end(), piece.begin(), piece.begin() + n);
    }
  }

  void hello(Script& script) {
    Hello mine;
    const std::uint64_t how = script.number(1);
    if ((how & 1) != 0) {
      mine.host_lane = true;
      mine.pid = (how & 2) != 0 ? static_cast<std::uint32_t>(script.number(4))
                                : static_cast<std::uint32_t>(::getpid());
      mine.boot_id = boot_id();
      mine.socket_fd = static_cast<std::uint32_t>(fd_.get());
      mine.cell_addr = (how & 4) != 0 ? script.number(8) : reinterpret_cast<std::uint64_t>(&cell_);
      for (std::byte& b : mine.challenge) b = static_cast<std::byte>(how);
    }
    std::array<std::byte, kHelloBytes> out;
    encode(mine, out);
    send(out);
  }

  // Puts the target's challenge into our cell, as one who can read our memory would see.
  void prove(Script& script) {
    scene_.turn();
    receive();
    if (received_.size() >= kHelloBytes) {
      const auto theirs = decode_hello(std::span(received_).first(kHelloBytes));
      ASSERT(theirs.ok());
      cell_ = theirs->challenge;
    }
    Request request;
    request.kind = RequestKind::host_ready;
    request.length = Length(script.number(1) & 1);
    send_request(request, {});
  }

  void request(Script& script) {
    Request request;
    request.kind = static_cast<RequestKind>(1 + script.number(1) % 3);
    request.id = script.number(1);
    const std::uint64_t whose = script.number(1);
    Lent* const lent[] = {&scene_.both, &scene_.read_only, &scene_.write_only, &scene_.both};
    // What is pulled from anywhere in this process must not come out by a read.
    const bool anywhere = request.kind == RequestKind::pull && (whose & 32) != 0;
    Lent& one = anywhere ? scene_.write_only : *lent[whose & 3];
    request.key = RKey(one.registration->key().raw() ^ ((whose & 4) != 0 ? script.number(8) : 0));
    const std::uint64_t from = (whose & 8) != 0 ? script.number(8) : script.number(2);
    request.addr = RemoteAddr(one.registration->addr().raw() + from);
    request.length = Length((whose & 16) != 0 ? script.number(8) : script.number(2));
    if (request.kind == RequestKind::pull) {
      request.source =
          anywhere ? script.number(8) : reinterpret_cast<std::uint64_t>(source_.data());
    }
    std::vector<std::byte> payload;
    if (request.kind == RequestKind::write) {
      payload.assign(std::min<std::size_t>(request.length.raw(), 2 * kRegionBytes), std::byte{7});
      if ((whose & 64) != 0) payload.resize(script.number(2) % (payload.size() + 1));
    }
    send_request(request, payload);
  }

  void close_half() { ::shutdown(fd_.get(), SHUT_WR); }

  // A hello, then replies; the last may be cut.
  void check_received() const {
    std::span<const std::byte> rest = received_;
    if (rest.size() < kHelloBytes) return;
    ASSERT(decode_hello(rest.first(kHelloBytes)).ok());
    rest = rest.subspan(kHelloBytes);
    while (rest.size() >= kReplyBytes) {
      const auto reply = decode_reply(rest.first(kReplyBytes));
      ASSERT(reply.ok());
      rest = rest.subspan(kReplyBytes);
      if (reply->kind != ReplyKind::data) continue;
      const auto data = rest.first(std::min<std::size_t>(rest.size(), reply->length.raw()));
      ASSERT(std::find(data.begin(), data.end(), kSecret) == data.end());
      rest = rest.subspan(data.size());
    }
  }

 private:
  void send_request(const Request& request, std::span<const std::byte> payload) {
    std::array<std::byte, kRequestBytes> header;
    encode(request, header);
    send(header);
    send(payload);
  }

  // Of the target, as a peer on the same host knows it.
  Token16 boot_id() {
    static const Token16 id = [this] {
      Peer honest(scene_);
      std::array<std::byte, kHelloBytes> out;
      encode(Hello{}, out);
      honest.send(out);
      for (int i = 0; i < 1000 && honest.received_.size() < kHelloBytes; ++i) {
        scene_.turn();
        honest.receive();
      }
      ASSERT(honest.received_.size() == kHelloBytes);
      return decode_hello(honest.received_)->boot_id;
    }();
    return id;
  }

  Scene& scene_;
  UniqueFd fd_;
  std::vector<std::byte> received_;
  Token16 cell_{};
  std::vector<std::byte> source_ = std::vector<std::byte>(2 * kRegionBytes, std::byte{7});
};

void play(Scene& scene, Script script) {
  Peer peer(scene);
  if (!peer.connected()) return;
  while (!script.at_end()) {
    switch (script.number(1) % 8) {
      case 0:
        peer.send_raw(script.bytes(script.number(1)));
        break;
      case 1:
        peer.hello(script);
        break;
      case 2:
      case 3:
        peer.request(script);
        break;
      case 4:
        peer.prove(script);
        break;
      case 5:
        scene.turn();
        break;
      case 6:
        peer.receive();
        break;
      default:
        peer.close_half();
        break;
    }
  }
  scene.turn();
  peer.receive();
  peer.check_received();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Scene scene;
  play(scene, Script(std::as_bytes(std::span(data, size))));
  scene.turn();
  for (const Lent* lent : {&scene.both, &scene.read_only, &scene.write_only})
    ASSERT(lent->guards_whole());
  ASSERT(std::all_of(scene.read_only.region().begin(), scene.read_only.region().end(),
                     [](std::byte b) { return b == std::byte{0}; }));
  scene.both.reset();
  scene.write_only.reset();
  return 0;
}
