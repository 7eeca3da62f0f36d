// The other process of the raw measurements.
#include "apps/bench/peer.h"

#include "apps/bench/bench.h"
#include "apps/bench/socket.h"
#include "core/base/clock.h"
#include "core/fabric/ofi/ofi.h"
#include "core/fabric/soft/soft.h"
#include "core/memory/mapping.h"

#include <algorithm>
#include <sched.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace farlift::apps {

namespace {

// Pushes the whole value and returns when the last byte is delivered.
bool push(fabric::Initiator& initiator, fabric::PeerId peer, const PeerRequest& request,
          std::span<std::byte> value) {
  std::uint64_t posted = 0;
  std::uint64_t done = 0;
  while (done < value.size()) {
    while (posted < value.size()) {
      const std::uint64_t piece = std::min(kPushPiece, value.size() - posted);
      fabric::Operation operation;
      operation.peer = peer;
      operation.key = RKey(request.rkey);
      operation.addr = RemoteAddr(request.remote_addr + posted);
      operation.local = value.subspan(posted, piece);
      operation.context = piece;
      if (Status status = initiator.post(operation); !status.ok()) {
        if (status.code() != Errc::again) return false;
        break;
      }
      posted += piece;
    }
    fabric::Completion completions[64];
    const std::size_t got = initiator.poll(completions);
    if (got == 0) initiator.wait(1000);
    for (std::size_t i = 0; i < got; ++i) {
      if (!completions[i].status.ok()) return false;
      done += completions[i].context;
    }
  }
  return true;
}

void serve_push(Socket& socket, const PeerRequest& request, std::span<std::byte> value) {
  const SystemClock clock;
  fabric::ofi::OfiOptions options;
  options.interface_name = "lo";
  auto domain = fabric::ofi::open_domain(options, clock);
  PeerOffer offer;
  if (!domain) {
    static_cast<void>(socket.send_all(std::as_bytes(std::span(&offer, 1))));
    return;
  }
  auto initiator = (*domain)->open_initiator({});
  auto address =
      fabric::Address::from_bytes(std::span(request.address).first(request.address_size));
  offer.ok = initiator.ok() && address.ok() ? 1 : 0;
  if (!socket.send_all(std::as_bytes(std::span(&offer, 1))) || offer.ok == 0) return;
  auto peer = (*initiator)->add_peer(*address);
  std::byte word{};
  while (peer.ok() && socket.receive_all(std::span(&word, 1))) {
    if (!push(**initiator, *peer, request, value) || !socket.send_all(std::span(&word, 1))) return;
  }
}

// Lends the value to one-sided reads until the connection ends.
void serve_read(Socket& socket, std::span<std::byte> value, int memfd) {
  const SystemClock clock;
  auto domain = fabric::soft::open_domain({}, clock);
  PeerOffer offer;
  if (domain.ok()) {
    auto registration = (*domain)->register_memory({value, memfd, 0}, fabric::Access::remote_read);
    auto endpoint = (*domain)->open_target({});
    if (registration.ok() && endpoint.ok()) {
      const auto address = (*endpoint)->address().bytes();
      offer.ok = 1;
      offer.rkey = (*registration)->key().raw();
      offer.remote_addr = (*registration)->addr().raw();
      offer.endpoint_size = address.size();
      std::copy(address.begin(), address.end(), offer.endpoint.begin());
      std::byte word{};
      if (!socket.send_all(std::as_bytes(std::span(&offer, 1)))) return;
      while (socket.receive_all(std::span(&word, 1))) {
      }
      (*endpoint)->close().ignore();  // it goes away with us
      return;
    }
  }
  static_cast<void>(socket.send_all(std::as_bytes(std::span(&offer, 1))));
}

// The calling thread only. Left where it was if the system refuses; the rows then agree with those
// that are not pinned.
void run_on_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  static_cast<void>(sched_setaffinity(0, sizeof set, &set));
}

void serve(Socket socket) {
  PeerRequest request;
  if (!socket.receive_all(std::as_writable_bytes(std::span(&request, 1)))) return;
  auto memory = memory::Mapping::create(Length(request.size), {});
  if (!memory) return;
  const std::span<std::byte> value = memory->bytes().first(request.size);
  std::fill(value.begin(), value.end(), std::byte{0x5a});
  if (request.kind == PeerKind::push) {
    serve_push(socket, request, value);
    return;
  }
  if (request.kind == PeerKind::read) return serve_read(socket, value, memory->memfd());
  if (request.core >= 0) run_on_core(request.core);
  PeerOffer offer;
  offer.ok = 1;
  offer.address = reinterpret_cast<std::uintptr_t>(value.data());
  offer.fd = static_cast<std::uint64_t>(memory->memfd());
  if (!socket.send_all(std::as_bytes(std::span(&offer, 1)))) return;
  std::byte word{};
  while (socket.receive_all(std::span(&word, 1))) {
    if (request.kind == PeerKind::stream && !socket.send_all(value)) return;
  }
}

}  // namespace

int run_bench_peer(std::uint16_t parent_port) {
  std::uint16_t port = 0;
  Outcome<UniqueFd> listener = listen_on_loopback(&port);
  Outcome<Socket> parent = Socket::connect(parent_port);
  if (!listener || !parent || !parent->send_all(std::as_bytes(std::span(&port, 1))))
    return kExitFailed;
  std::vector<std::jthread> workers;  // ended by their connections, which the parent closes
  for (;;) {
    Outcome<Socket> socket = Socket::accept(*listener);
    if (!socket) return kExitOk;
    workers.emplace_back([s = std::move(*socket)]() mutable { serve(std::move(s)); });
  }
}

}  // namespace farlift::apps
