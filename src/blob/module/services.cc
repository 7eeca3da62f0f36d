#include "blob/module/services.h"

#include <algorithm>
#include <utility>

#include "blob/module/api.h"
#include "blob/module/interfaces.h"
#include "core/base/log.h"
#include "core/fabric/ofi/ofi.h"
#include "core/fabric/soft/soft.h"

namespace farlift::blob {
namespace {

// Operations one transfer keeps out: enough to hide a completion behind the next piece, few enough to share a rail.
constexpr std::uint32_t kPiecesInFlight = 8;
// Longest single operation: pieces this long keep the CRC of one in cache while the next one travels.
constexpr std::uint64_t kPieceBytes = 1u << 20;
// state rule 3 of spec blob 4: an unreachable peer fails after this long.
constexpr Duration kConnectDeadline = std::chrono::seconds(1);

std::optional<fabric::ofi::Provider> ofi_provider(Provider provider) {
  switch (provider) {
    case Provider::emulated: return fabric::ofi::Provider::tcp;
    case Provider::efa_direct: return fabric::ofi::Provider::efa;
    case Provider::verbs: return fabric::ofi::Provider::verbs;
    case Provider::automatic:
    case Provider::soft: break;
  }
  return std::nullopt;
}

void on_inline_ready(int, void* user, int) noexcept { static_cast<Rail*>(user)->pump(); }

}  // namespace

Services::Services(const Settings& settings, const Clock& clock, Counters& counters)
    : settings_(settings), clock_(clock), counters_(counters), prng_(secure_random_u64()) {}

Services::~Services() { stop(); }

void Services::open() {
  const Provider provider = settings_.provider();
  if (ofi_provider(provider)) {
    open_ofi(provider);
    return;
  }
  const std::vector<std::string> entries = split_list(settings_.get().fabric_interfaces);
  if (entries.empty()) return open_soft(default_interface_address());
  for (const std::string& entry : entries) {
    const auto ip = resolve_interface(entry);
    if (!ip) {
      // One missing card must not leave a binding that covers only some of what was asked for.
      logf(LogLevel::warning, "fabric-interfaces: there is no '%s' here; RDMA is off, inline commands work", entry.c_str());
      services_.clear();
      return;
    }
    open_soft(*ip);
  }
}

void Services::open_soft(const std::string& listen_ip) {
  fabric::soft::SoftOptions options;
  options.listen_ip = listen_ip;
  auto domain = fabric::soft::open_domain(options, clock_);
  if (!domain.ok()) {
    logf(LogLevel::warning, "fabric: cannot open %s: %s", listen_ip.c_str(), domain.error().describe().c_str());
    return;
  }
  auto service = std::make_unique<Service>();
  service->name = listen_ip;
  service->domain = std::move(domain).value();
  service->pool_rail = services_.size();
  services_.push_back(std::move(service));
}

void Services::open_ofi(Provider provider) {
  fabric::ofi::OfiOptions options;
  options.provider = *ofi_provider(provider);
  if (options.provider == fabric::ofi::Provider::efa) options.version = fabric::ofi::kVersionEfaServer;
  std::vector<fabric::ofi::OfiOptions> wanted;
  for (const std::string& entry : split_list(settings_.get().fabric_interfaces)) {
    fabric::ofi::OfiOptions one = options;
    const auto ip = IpAddress::parse(entry);
    (ip ? one.listen_ip : one.interface_name) = entry;
    wanted.push_back(one);
  }
  std::string why;
  if (wanted.empty()) {
    auto found = fabric::ofi::list_domains(options, &why);
    std::vector<std::string> seen;  // one service a card, its first address (IPv4 where there is one)
    for (const auto& d : found.ok() ? *found : std::vector<fabric::ofi::DomainDescription>()) {
      if (std::find(seen.begin(), seen.end(), d.interface_name) != seen.end()) continue;
      seen.push_back(d.interface_name);
      fabric::ofi::OfiOptions one = options;
      one.interface_name = d.interface_name;
      wanted.push_back(one);
    }
  }
  for (const auto& one : wanted) {
    auto domain = fabric::ofi::open_domain(one, clock_, &why);
    if (!domain.ok()) break;
    auto service = std::make_unique<Service>();
    service->name = one.interface_name.empty() ? one.listen_ip : one.interface_name;
    service->domain = std::move(domain).value();
    service->pool_rail = services_.size();
    services_.push_back(std::move(service));
  }
  if (services_.size() == wanted.size() && !wanted.empty()) return;
  logf(LogLevel::warning, "fabric: %s; RDMA is off, inline commands work", why.empty() ? "no card found" : why.c_str());
  services_.clear();
}

std::vector<fabric::Domain*> Services::pool_rails() {
  std::vector<fabric::Domain*> out;
  for (const auto& service : services_) out.push_back(service->domain.get());
  return out;
}

void Services::start() {
  const auto threads = static_cast<std::size_t>(settings_.get().worker_threads);
  for (auto& service : services_) {
    const bool soft = service->domain->info().provider == "soft";
    if (start_rails(*service, soft ? threads : 1)) continue;
    services_.clear();
    return;
  }
  start_inline();
}

bool Services::start_rails(Service& service, std::size_t count) {
  // fabric-max-in-flight is a bound on the whole service (spec blob 5.3), so rails share it.
  const auto limit = static_cast<std::size_t>(settings_.get().fabric_max_in_flight);
  if (limit != 0) count = std::min(count, limit);
  RailOptions options;
  options.initiator.connect_deadline = kConnectDeadline;
  options.initiator.in_flight_max = static_cast<std::uint32_t>(limit / count);
  options.name = "farlift-rail";
  for (std::size_t i = 0; i < count; ++i) {
    auto rail = Rail::open(*service.domain, options, clock_);
    if (!rail.ok()) {
      logf(LogLevel::warning, "fabric: no rail on %s: %s; RDMA is off, inline commands work", service.name.c_str(),
           rail.error().describe().c_str());
      return false;
    }
    service.rails.push_back(std::move(rail).value());
  }
  return true;
}

void Services::start_inline() {
  // With a bound on operations in flight every operation must pass the rails that share it.
  if (services_.empty() || settings_.get().fabric_max_in_flight != 0) return;
  if (services_.front()->domain->info().provider != "soft") return;
  RailOptions options;
  options.initiator.connect_deadline = kConnectDeadline;
  options.own_thread = false;
  auto rail = Rail::open(*services_.front()->domain, options, clock_);
  if (!rail.ok() || (*rail)->wait_fd() < 0) return;
  inline_rail_ = std::move(rail).value();
  vk::EventLoopAdd(inline_rail_->wait_fd(), vk::kEventLoopReadable, on_inline_ready, inline_rail_.get());
  inline_rail_->on_new_wait_fd = [this](int old_fd, int new_fd) {
    vk::EventLoopDel(old_fd, vk::kEventLoopReadable);
    vk::EventLoopAdd(new_fd, vk::kEventLoopReadable, on_inline_ready, inline_rail_.get());
  };
}

void Services::stop() {
  std::unique_ptr<Service> fallback;
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    fallback = std::move(fallback_);
  }
  if (inline_rail_) {
    vk::EventLoopDel(inline_rail_->wait_fd(), vk::kEventLoopReadable);
    inline_rail_->stop();
  }
  for (auto& service : services_) {
    for (auto& rail : service->rails) rail->stop();
  }
  if (fallback) {
    for (auto& rail : fallback->rails) rail->stop();
    // Jobs of the other rails name it no more; bindings may still be released through it.
    fallback->rails.clear();
  }
  inline_rail_.reset();
  for (auto& service : services_) service->rails.clear();
}

wire::AddressForms Services::address_forms() const noexcept {
  const Provider p = settings_.provider();
  wire::AddressForms forms;
  forms.efa = p == Provider::efa_direct;
  forms.socket = !forms.efa;
  return forms;
}

bool Services::socket_addresses() const noexcept { return address_forms().socket; }

std::vector<fabric::Address> Services::announced() const {
  std::vector<fabric::Address> out;
  for (const auto& service : services_) out.push_back(service->rails.front()->address());
  return out;
}

std::string Services::provider_names() const {
  std::string out;
  for (const auto& service : services_) {
    if (!out.empty()) out += ',';
    out += service->domain->info().provider;
  }
  return out.empty() ? "none" : out;
}

Result<BindingRef> Services::bind(const fabric::Address& address) {
  for (std::size_t i = 0; i < services_.size(); ++i) {
    const Status admitted = services_[i]->domain->admit_peer(address);
    if (admitted.ok()) continue;
    while (i-- > 0) services_[i]->domain->release_peer(address);
    return admitted.error();
  }
  const BindingId id = std::exchange(next_binding_, BindingId(next_binding_.raw() + 1));
  return std::make_shared<Binding>(id, address, [this](const Binding& b) { release(b); });
}

void Services::release(const Binding& binding) {
  if (inline_rail_) inline_rail_->forget(binding.id());
  for (auto& service : services_) {
    for (auto& rail : service->rails) rail->forget(binding.id());
    service->domain->release_peer(binding.address());
  }
  MutexLock lock(mutex_);
  if (!fallback_) return;
  for (auto& rail : fallback_->rails) rail->forget(binding.id());
}

Services::Service& Services::pick() {
  if (services_.size() == 1) return *services_.front();
  MutexLock lock(mutex_);
  // Least loaded of two random picks (spec blob 1.6).
  Service& a = *services_[prng_.below(services_.size())];
  Service& b = *services_[prng_.below(services_.size())];
  return a.rails.front()->load() <= b.rails.front()->load() ? a : b;
}

Rail& Services::pick_rail(Service& service) {
  const auto lightest = std::min_element(service.rails.begin(), service.rails.end(),
                                         [](const auto& a, const auto& b) { return a->load() < b->load(); });
  return **lightest;
}

Job Services::make_job(const Service& service, const std::shared_ptr<TransferAsk>& ask) const {
  Job job;
  job.id = ask->id;
  job.binding = ask->binding->id();
  job.peer = ask->binding->address();
  job.request.kind = ask->kind;
  job.request.remote = ask->remote;
  job.request.compute_crc = ask->kind == fabric::OpKind::read;
  job.request.piece_max = Length(std::min<std::uint64_t>(kPieceBytes, settings_.chunk_size().raw()));
  job.request.in_flight_max = kPiecesInFlight;
  for (const std::span<std::byte> span : ask->local) {
    job.request.local.push_back({span, service.in_pool ? ask->registration(service.pool_rail) : nullptr});
  }
  job.keep = ask->keep;
  return job;
}

void Services::submit(Service& service, Rail& rail, std::shared_ptr<TransferAsk> ask) {
  Job job = make_job(service, ask);
  const bool first_provider = service.in_pool;
  job.done = [this, ask = std::move(ask), first_provider](JobOutcome outcome) {
    on_done(ask, std::move(outcome), first_provider);
  };
  rail.submit(std::move(job));
}

void Services::transfer(TransferAsk ask) {
  auto shared = std::make_shared<TransferAsk>(std::move(ask));
  Service* service = nullptr;
  if (shared->binding->fallback.load(std::memory_order_relaxed)) service = fallback();
  if (service == nullptr) service = &pick();
  submit(*service, pick_rail(*service), std::move(shared));
}

bool Services::transfer_inline(TransferAsk& ask) {
  if (!inline_rail_ || ask.binding->fallback.load(std::memory_order_relaxed)) return false;
  submit(*services_.front(), *inline_rail_, std::make_shared<TransferAsk>(std::move(ask)));
  return true;
}

void Services::on_done(const std::shared_ptr<TransferAsk>& ask, JobOutcome outcome, bool first_provider) {
  const Status& status = outcome.transfer.status;
  const bool foreign = !status.ok() && status.code() == Errc::unsupported && outcome.transfer.moved.raw() == 0 &&
                       status.error().quiet;
  if (foreign && first_provider && settings_.provider() == Provider::automatic) {
    if (Service* other = fallback()) {
      if (!ask->binding->fallback.exchange(true)) counters_.rdma_emulated_bindings.add();
      return submit(*other, pick_rail(*other), ask);
    }
  }
  // The command still holds the binding, and only the main thread may drop the last reference.
  ask->binding.reset();
  ask->done(std::move(outcome));
}

Services::Service* Services::fallback() {
  MutexLock lock(mutex_);
  if (stopped_) return nullptr;
  if (fallback_ || fallback_tried_) return fallback_.get();
  fallback_tried_ = true;
  fabric::ofi::OfiOptions options;
  options.listen_ip = services_.front()->name;
  std::string why;
  auto domain = fabric::ofi::open_domain(options, clock_, &why);
  if (!domain.ok() || (*domain)->info().local_registration_required) {
    logf(LogLevel::warning, "fabric: a peer does not speak soft, and libfabric's tcp is not available: %s", why.c_str());
    return nullptr;
  }
  auto service = std::make_unique<Service>();
  service->name = options.listen_ip;
  service->domain = std::move(domain).value();
  service->in_pool = false;
  if (!start_rails(*service, 1)) return nullptr;
  logf(LogLevel::info, "fabric: a peer does not speak soft; serving it by libfabric %s",
       service->domain->info().provider.c_str());
  fallback_ = std::move(service);
  return fallback_.get();
}

void Services::cancel(JobId id) {
  if (inline_rail_) inline_rail_->cancel(id);
  for (auto& service : services_) {
    for (auto& rail : service->rails) rail->cancel(id);
  }
  MutexLock lock(mutex_);
  if (!fallback_) return;
  for (auto& rail : fallback_->rails) rail->cancel(id);
}

}  // namespace farlift::blob
