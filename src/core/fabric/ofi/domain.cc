#include "core/fabric/ofi/domain.h"

#include "core/base/log.h"
#include "core/base/prng.h"
#include "core/fabric/ofi/initiator.h"
#include "core/fabric/ofi/registration.h"
#include "core/fabric/ofi/socket_address.h"
#include "core/fabric/ofi/target.h"

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

namespace farlift::fabric::ofi {
namespace {

constexpr std::size_t kTargetQueueEntries = 256;  // targets post nothing
constexpr int kKeyAttemptsMax = 16;

int family_of(const fi_info* info) noexcept {
  switch (info->addr_format) {
    case FI_SOCKADDR_IN:
      return AF_INET;
    case FI_SOCKADDR_IN6:
      return AF_INET6;
    case FI_SOCKADDR: {
      sa_family_t family = AF_UNSPEC;
      if (info->src_addr != nullptr && info->src_addrlen >= sizeof family) {
        std::memcpy(&family, info->src_addr, sizeof family);
      }
      return family;
    }
    default:
      return AF_UNSPEC;
  }
}

std::string key_of(const Address& address) {
  const auto bytes = address.bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::uint64_t access_bits(Access access) noexcept {
  std::uint64_t bits = FI_READ | FI_WRITE;  // may be the local side of our own operations
  if (allows_read(access)) bits |= FI_REMOTE_READ;
  if (allows_write(access)) bits |= FI_REMOTE_WRITE;
  return bits;
}

bool is_epoll_set(int fd) noexcept {
  epoll_event event{};
  return ::epoll_wait(fd, &event, 1, 0) >= 0;  // anything else is EINVAL
}

int epoll_set_of(fid_cq* queue) noexcept {
  pollfd fds[8] = {};
  fi_wait_pollfd wait{};
  wait.nfds = std::size(fds);
  wait.fd = fds;
  if (fi_control(&queue->fid, FI_GETWAIT, &wait) != 0) return -1;
  for (const pollfd& entry : std::span(fds).first(std::min(wait.nfds, std::size(fds)))) {
    if (is_epoll_set(entry.fd)) return entry.fd;
  }
  return -1;
}

// 1.17 enters what it was told about its descriptors into the list only as it waits for them.
int progress_descriptor(fid_cq* queue) noexcept {
  if (const int fd = epoll_set_of(queue); fd >= 0) return fd;
  fi_cq_entry none{};
  (void)fi_cq_sread(queue, &none, 1, nullptr, 1);  // nothing can come: no endpoint is bound yet
  return epoll_set_of(queue);
}

}  // namespace

Result<Address> endpoint_name(fid_ep* endpoint) {
  std::byte name[Address::kBytesMax];
  std::size_t length = sizeof name;
  if (const int rc = fi_getname(&endpoint->fid, name, &length); rc != 0) {
    return fabric_error(rc, "endpoint address");
  }
  return Address::from_bytes(std::span(name, length));
}

Result<std::unique_ptr<OfiDomain>> OfiDomain::open(std::shared_ptr<const Library> library,
                                                   UniqueInfo info, Provider provider,
                                                   const Clock& clock) {
  std::unique_ptr<OfiDomain> domain(
      new OfiDomain(std::move(library), std::move(info), provider, clock));
  TRY(domain->open_objects());
  domain->describe();
  return domain;
}

OfiDomain::~OfiDomain() {
  MutexLock lock(mutex_);
  progress_.reset();
}

Status OfiDomain::open_objects() {
  fid_fabric* fabric = nullptr;
  if (const int rc = library_->fabric(info_->fabric_attr, &fabric, nullptr); rc != 0) {
    return fabric_error(rc, "open fabric");
  }
  fabric_.reset(fabric);
  return open_domain(domain_, address_vector_);
}

Status OfiDomain::open_domain(UniqueFid<fid_domain>& domain,
                              UniqueFid<fid_av>& address_vector) const {
  fid_domain* opened = nullptr;
  if (const int rc = fi_domain(fabric_.get(), info_.get(), &opened, nullptr); rc != 0)
    return fabric_error(rc, "open domain");
  domain.reset(opened);
  fi_av_attr attributes{};
  attributes.type = info_->domain_attr->av_type;
  fid_av* av = nullptr;
  if (const int rc = fi_av_open(opened, &attributes, &av, nullptr); rc != 0) {
    return fabric_error(rc, "open address vector");
  }
  address_vector.reset(av);
  return {};
}

void OfiDomain::describe() {
  const std::uint64_t mr_mode = static_cast<std::uint64_t>(info_->domain_attr->mr_mode);
  description_.provider =
      info_->fabric_attr->prov_name != nullptr ? info_->fabric_attr->prov_name : "";
  description_.version = library_->version_text();
  description_.interface_name = info_->domain_attr->name != nullptr ? info_->domain_attr->name : "";
  // Closing a registration ends a card's access; a software provider checks the key once, when the
  // request arrives.
  description_.fence_mode = provider_ == Provider::tcp ? FenceMode::endpoint : FenceMode::mr;
  description_.virtual_addressing = (mr_mode & FI_MR_VIRT_ADDR) != 0;
  description_.local_registration_required = (mr_mode & FI_MR_LOCAL) != 0;
  description_.in_flight_max = static_cast<std::uint32_t>(info_->tx_attr->size);
  description_.operation_length_max = Length(info_->ep_attr->max_msg_size);
}

Result<fid_mr*> OfiDomain::register_under_random_key(const MemoryRef& memory,
                                                     std::uint64_t access) const {
  const bool provider_key =
      (static_cast<std::uint64_t>(info_->domain_attr->mr_mode) & FI_MR_PROV_KEY) != 0;
  const std::size_t key_size = info_->domain_attr->mr_key_size;
  const std::uint64_t mask = key_size >= 8 ? UINT64_MAX : (std::uint64_t{1} << (8 * key_size)) - 1;
  int rc = 0;
  for (int attempt = 0; attempt < kKeyAttemptsMax; ++attempt) {
    // A constant or counted key would make rotation a no-op, or guessable (design 3, rule 4).
    const std::uint64_t key = provider_key ? 0 : secure_random_u64() & mask;
    fid_mr* region = nullptr;
    change_registrations([&] {
      rc = fi_mr_reg(domain_.get(), memory.bytes.data(), memory.bytes.size(), access, 0, key, 0,
                     &region, nullptr);
    });
    if (rc == 0) return region;
    if (provider_key || rc != -FI_ENOKEY) break;
  }
  return fabric_error(rc, "register memory");
}

void OfiDomain::change_registrations(const std::function<void()>& work) const {
  if (provider_ != Provider::tcp) return work();
  MutexLock lock(mutex_);
  if (progress_ == nullptr) return work();  // nobody reads, and nobody begins to meanwhile
  progress_->exclusive(work);
}

Result<std::unique_ptr<Registration>> OfiDomain::register_memory(const MemoryRef& memory,
                                                                 Access access) {
  if (memory.bytes.empty()) return Error::make(Errc::invalid_argument, "register memory");
  TRY_ASSIGN(fid_mr* const region, register_under_random_key(memory, access_bits(access)));
  const std::uint64_t addr =
      description_.virtual_addressing ? reinterpret_cast<std::uint64_t>(memory.bytes.data()) : 0;
  auto registration =
      std::make_unique<OfiRegistration>(*this, region, memory.bytes, RemoteAddr(addr), access);
  if (registration->key().raw() == FI_KEY_NOTAVAIL)
    return Error::make(Errc::unsupported, "registration key");
  return std::unique_ptr<Registration>(std::move(registration));
}

// tcp: of the descriptors that its queue waits for we want the epoll set with the domain's sockets.
// The other one announces completions; it is raised once and never lowered (1.17), and what
// completes for us completes while we read.
// rxm never takes a closed endpoint out of its queue's wait object, so the next blocking read of
// that queue crashes (seen on 1.17, unchanged since). There, and where a provider has no wait
// object, the caller polls.
Result<CompletionQueue> OfiDomain::open_queue(fid_domain* domain, std::size_t entries) const {
  fi_cq_attr attributes{};
  attributes.size = entries;
  attributes.format = FI_CQ_FORMAT_CONTEXT;
  attributes.wait_obj = provider_ == Provider::tcp ? FI_WAIT_POLLFD : FI_WAIT_FD;
  CompletionQueue result;
  fid_cq* queue = nullptr;
  if (provider_ != Provider::verbs && fi_cq_open(domain, &attributes, &queue, nullptr) == 0) {
    result.queue.reset(queue);
    result.blocks = provider_ != Provider::tcp;
    result.progress_fd = result.blocks ? -1 : progress_descriptor(queue);
    if (result.blocks || result.progress_fd >= 0) return result;
    result.queue.reset();
  }
  attributes.wait_obj = FI_WAIT_NONE;
  if (const int rc = fi_cq_open(domain, &attributes, &queue, nullptr); rc != 0) {
    return fabric_error(rc, "open completion queue");
  }
  result.queue.reset(queue);
  return result;
}

Result<std::unique_ptr<Link>> OfiDomain::open_link(const Address& peer, std::size_t entries) const {
  auto link = std::make_unique<Link>();
  TRY_ASSIGN(const UniqueInfo info, endpoint_info(TargetOptions{}));
  TRY(open_domain(link->domain, link->address_vector));
  TRY_ASSIGN(link->queue, open_queue(link->domain.get(), entries));
  const int inserted =
      fi_av_insert(link->address_vector.get(), peer.bytes().data(), 1, &link->fi_addr, 0, nullptr);
  if (inserted < 0) return fabric_error(inserted, "insert peer address");
  if (inserted != 1) return Error::make(Errc::invalid_argument, "insert peer address");
  TRY_ASSIGN(link->endpoint, open_endpoint(link->domain.get(), link->address_vector.get(),
                                           info.get(), link->queue.queue.get()));
  return link;
}

Result<UniqueFid<fid_ep>> OfiDomain::open_endpoint(fid_domain* domain, fid_av* address_vector,
                                                   fi_info* info, fid_cq* queue) const {
  fid_ep* raw = nullptr;
  if (const int rc = fi_endpoint(domain, info, &raw, nullptr); rc != 0) {
    return fabric_error(rc, "open endpoint");
  }
  UniqueFid<fid_ep> endpoint(raw);
  if (const int rc = fi_ep_bind(raw, &address_vector->fid, 0); rc != 0)
    return fabric_error(rc, "bind endpoint");
  if (const int rc = fi_ep_bind(raw, &queue->fid, FI_TRANSMIT | FI_RECV); rc != 0) {
    return fabric_error(rc, "bind endpoint");
  }
  if (const int rc = fi_enable(raw); rc != 0) return fabric_error(rc, "enable endpoint");
  return endpoint;
}

Result<UniqueInfo> OfiDomain::endpoint_info(const TargetOptions& options) const {
  UniqueInfo info(library_->dupinfo(info_.get()), InfoDeleter{library_.get()});
  if (info == nullptr) return Error::make(Errc::no_memory, "endpoint description");
  if (options.listen_ip.empty() && options.port == 0) return info;
  const int family = family_of(info_.get());
  if (family == AF_UNSPEC) return Error::make(Errc::invalid_argument, "listen address");
  const std::string ip = options.listen_ip.empty()
                             ? describe_socket_address(info_->src_addr, info_->src_addrlen)
                             : options.listen_ip;
  TRY_ASSIGN(const Address address, socket_address(ip, options.port, family));
  if (address.size() != info->src_addrlen) return Error::make(Errc::internal, "listen address");
  std::memcpy(info->src_addr, address.bytes().data(), address.size());
  return info;
}

Result<TargetProgress*> OfiDomain::target_progress() {
  MutexLock lock(mutex_);
  if (progress_ == nullptr) {
    TRY_ASSIGN(CompletionQueue queue, open_queue(kTargetQueueEntries));
    UniqueFd stop_event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!stop_event) return Error::from_errno("eventfd");
    progress_ = std::make_unique<TargetProgress>(std::move(queue.queue), queue.blocks,
                                                 queue.progress_fd, std::move(stop_event));
  }
  return progress_.get();
}

Result<std::unique_ptr<TargetEndpoint>> OfiDomain::open_target(const TargetOptions& options) {
  TRY_ASSIGN(UniqueInfo info, endpoint_info(options));
  TRY_ASSIGN(TargetProgress* const progress, target_progress());
  // Nobody may read the queue while an endpoint is bound to it but not enabled: rxm crashes then.
  Result<UniqueFid<fid_ep>> opened{Error::make(Errc::internal, "open endpoint")};
  progress->exclusive([&] { opened = open_endpoint(info.get(), progress->queue()); });
  TRY_ASSIGN(UniqueFid<fid_ep> endpoint, std::move(opened));
  TRY_ASSIGN(const Address address, endpoint_name(endpoint.get()));
  TRY_ASSIGN(auto target,
             OfiTarget::make(*this, *progress, std::move(endpoint), address, options.own_thread));
  if (options.own_thread) progress->run_thread();
  return std::unique_ptr<TargetEndpoint>(std::move(target));
}

Result<std::unique_ptr<Initiator>> OfiDomain::open_initiator(const InitiatorOptions& options) {
  TRY_ASSIGN(auto initiator, OfiInitiator::make(*this, options));
  return std::unique_ptr<Initiator>(std::move(initiator));
}

Result<Address> OfiDomain::canonical(const Address& peer) const {
  if (const int family = family_of(info_.get()); family != AF_UNSPEC)
    return normalise_peer(peer, family);
  if (info_->src_addrlen != 0 && peer.size() != info_->src_addrlen) {
    return Error::make(Errc::unsupported, "peer address length");
  }
  return peer;
}

Result<OfiDomain::Admitted> OfiDomain::admit(const Address& peer) {
  TRY_ASSIGN(const Address address, canonical(peer));
  MutexLock lock(mutex_);
  Peer& entry = peers_[key_of(address)];
  if (entry.references == 0) {
    const int inserted =
        fi_av_insert(address_vector_.get(), address.bytes().data(), 1, &entry.fi_addr, 0, nullptr);
    if (inserted != 1) {
      peers_.erase(key_of(address));
      return inserted < 0 ? fabric_error(inserted, "insert peer address")
                          : Error::make(Errc::invalid_argument, "insert peer address");
    }
  }
  ++entry.references;
  return Admitted{address, entry.fi_addr};
}

void OfiDomain::release(const Address& canonical_address) {
  MutexLock lock(mutex_);
  const auto found = peers_.find(key_of(canonical_address));
  ASSERT(found != peers_.end() && found->second.references > 0);
  if (--found->second.references > 0) return;
  if (const int rc = fi_av_remove(address_vector_.get(), &found->second.fi_addr, 1, 0); rc != 0) {
    logf(LogLevel::warning, "fabric: removing a peer address failed with %d", rc);
  }
  peers_.erase(found);
}

Status OfiDomain::admit_peer(const Address& peer) {
  TRY_ASSIGN([[maybe_unused]] const Admitted admitted, admit(peer));
  return {};
}

void OfiDomain::release_peer(const Address& peer) {
  auto address = canonical(peer);
  ASSERT(address.ok());  // it was admitted
  release(address.value());
}

}  // namespace farlift::fabric::ofi
