#include "blob/module/services.h"

#include "blob/module/api.h"
#include "blob/module/interfaces.h"
#include "blob/module/signal_guard.h"
#include "core/base/log.h"
#include "core/fabric/ofi/ofi.h"
#include "core/fabric/soft/soft.h"

#include <algorithm>
#include <utility>

namespace farlift::blob {
namespace {

// Longest single operation: pieces this long keep the CRC of one in cache while the next one
// travels.
constexpr std::uint64_t kPieceBytes = 1u << 20;
// How long stop() waits for the aborted transfers of the inline engine before it closes over them.
constexpr Duration kStopPatience = std::chrono::seconds(5);
// state rule 3 of spec blob 4: an unreachable peer fails after this long.
constexpr Duration kConnectDeadline = std::chrono::seconds(1);

std::optional<fabric::ofi::Provider> ofi_provider(Provider provider) {
  switch (provider) {
    case Provider::emulated:
      return fabric::ofi::Provider::tcp;
    case Provider::efa_direct:
      return fabric::ofi::Provider::efa;
    case Provider::verbs:
      return fabric::ofi::Provider::verbs;
    case Provider::automatic:
    case Provider::soft:
      break;
  }
  return std::nullopt;
}

void drive(transfer::Engine& engine) {
  while (engine.step()) {
  }
}

void on_inline_ready(int, void* user, int) noexcept {
  drive(*static_cast<transfer::Engine*>(user));
}

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
      logf(LogLevel::warning,
           "fabric-interfaces: there is no '%s' here; RDMA is off, inline commands work",
           entry.c_str());
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
    logf(LogLevel::warning, "fabric: cannot open %s: %s", listen_ip.c_str(),
         domain.error().describe().c_str());
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
  if (options.provider == fabric::ofi::Provider::efa)
    options.version = fabric::ofi::kVersionEfaServer;
  std::vector<fabric::ofi::OfiOptions> wanted;
  for (const std::string& entry : split_list(settings_.get().fabric_interfaces)) {
    fabric::ofi::OfiOptions one = options;
    const auto ip = IpAddress::parse(entry);
    (ip ? one.listen_ip : one.interface_name) = entry;
    wanted.push_back(one);
  }
  std::string why;
  const SignalGuard guard;
  if (wanted.empty()) {
    auto found = fabric::ofi::list_domains(options, &why);
    std::vector<std::string>
        seen;  // one service a card, its first address (IPv4 where there is one)
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
  logf(LogLevel::warning, "fabric: %s; RDMA is off, inline commands work",
       why.empty() ? "no card found" : why.c_str());
  services_.clear();
}

std::vector<fabric::Domain*> Services::pool_rails() {
  std::vector<fabric::Domain*> out;
  for (const auto& service : services_) out.push_back(service->domain.get());
  return out;
}

void Services::start() {
  crc_pool_ = std::make_unique<transfer::CrcPool>(
      static_cast<std::size_t>(settings_.get().fabric_crc_pool_threads));
  const auto threads = static_cast<std::size_t>(settings_.get().worker_threads);
  for (auto& service : services_) {
    const bool soft = service->domain->info().provider == "soft";
    if (start_rails(*service, soft ? threads : 1)) continue;
    services_.clear();
    return;
  }
  for (auto& service : services_) announced_.push_back(service->rails.front()->address());
  start_inline();
}

transfer::EngineOptions Services::engine_options(std::size_t rails) const {
  transfer::EngineOptions options;
  options.initiator.connect_deadline = kConnectDeadline;
  // fabric-max-in-flight bounds a whole service (spec blob 5.3), so its rails share it; 0: what the
  // provider allows.
  options.in_flight_max = static_cast<std::uint32_t>(
      static_cast<std::size_t>(settings_.get().fabric_max_in_flight) / rails);
  options.piece_max = Length(std::min<std::uint64_t>(kPieceBytes, settings_.chunk_size().raw()));
  options.crc_pool = crc_pool_.get();
  return options;
}

bool Services::start_rails(Service& service, std::size_t count) {
  const auto limit = static_cast<std::size_t>(settings_.get().fabric_max_in_flight);
  if (limit != 0) count = std::min(count, limit);
  for (std::size_t i = 0; i < count; ++i) {
    transfer::RunnerOptions options;
    options.engine = engine_options(count);
    auto rail = transfer::Runner::create(*service.domain, clock_, options);
    if (!rail.ok()) {
      logf(LogLevel::warning, "fabric: no rail on %s: %s; RDMA is off, inline commands work",
           service.name.c_str(), rail.error().describe().c_str());
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
  auto engine = transfer::Engine::create(*services_.front()->domain, clock_, engine_options(1));
  if (!engine.ok() || (*engine)->wait_fd() < 0) return;
  inline_engine_ = std::move(engine).value();
  vk::EventLoopAdd(inline_engine_->wait_fd(), vk::kEventLoopReadable, on_inline_ready,
                   inline_engine_.get());
  vigil_.open();
}

void Services::stop_inline() {
  vigil_.close();
  if (!inline_engine_) return;
  vk::EventLoopDel(inline_engine_->wait_fd(), vk::kEventLoopReadable);
  inline_engine_->cancel_all();
  const Instant until = clock_.now() + kStopPatience;
  drive(*inline_engine_);
  while (inline_engine_->live() > 0 && clock_.now() < until) {
    inline_engine_->wait(10);
    drive(*inline_engine_);
  }
  inline_engine_->close();
}

void Services::stop() {
  std::unique_ptr<Service> fallback;
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    fallback = std::move(fallback_);
  }
  stop_inline();
  for (auto& service : services_) {
    for (auto& rail : service->rails) rail->stop();
  }
  handing_over_.stop();
  // Last: a transfer of the others may have been handed to it.
  if (fallback) fallback->rails.clear();
}

wire::AddressForms Services::address_forms() const noexcept {
  wire::AddressForms forms;
  forms.efa = settings_.provider() == Provider::efa_direct;
  forms.socket = !forms.efa;
  return forms;
}

std::string Services::provider_names() {
  std::string out;
  for (const auto& service : services_) {
    if (!out.empty()) out += ',';
    out += service->domain->info().provider;
  }
  MutexLock lock(mutex_);
  if (fallback_) out += "," + fallback_->domain->info().provider;
  return out.empty() ? "none" : out;
}

Result<BindingRef> Services::bind(const fabric::Address& address) {
  for (std::size_t i = 0; i < services_.size(); ++i) {
    const Status admitted = services_[i]->domain->admit_peer(address);
    if (admitted.ok()) continue;
    while (i-- > 0) services_[i]->domain->release_peer(address);
    return admitted.error();
  }
  for (auto& service : services_) {
    for (auto& rail : service->rails) rail->bind(address);
  }
  if (inline_engine_) inline_engine_->bind(address);
  return std::make_shared<Binding>(address, [this](const Binding& b) { release(b); });
}

void Services::release(const Binding& binding) {
  MutexLock lock(mutex_);
  if (stopped_) return;  // the rails are gone, and their peers with them
  const fabric::Address& address = binding.address();
  if (inline_engine_) inline_engine_->unbind(address);
  for (auto& service : services_) {
    for (auto& rail : service->rails) rail->unbind(address);
    service->domain->release_peer(address);
  }
  if (!fallback_ || !binding.fallback.load(std::memory_order_acquire)) return;
  for (auto& rail : fallback_->rails) rail->unbind(address);
}

std::uint64_t Services::Service::load() const {
  std::uint64_t sum = 0;
  for (const auto& rail : rails) sum += rail->stats().live;
  return sum;
}

Services::Service& Services::pick() {
  if (services_.size() == 1) return *services_.front();
  MutexLock lock(mutex_);
  // Least loaded of two random picks (spec blob 1.6).
  Service& a = *services_[prng_.below(services_.size())];
  Service& b = *services_[prng_.below(services_.size())];
  return a.load() <= b.load() ? a : b;
}

transfer::Runner& Services::pick_rail(Service& service) {
  transfer::Runner* best = service.rails.front().get();
  std::uint64_t lightest = best->stats().live;
  for (std::size_t i = 1; i < service.rails.size() && lightest > 0; ++i) {
    const std::uint64_t load = service.rails[i]->stats().live;
    if (load >= lightest) continue;
    lightest = load;
    best = service.rails[i].get();
  }
  return *best;
}

transfer::Job Services::make_job(const Service& service, const TransferAsk& ask) {
  transfer::Job job;
  job.kind = ask.kind;
  job.peer = ask.binding->address();
  job.remote = ask.remote;
  job.compute_crc = ask.kind == fabric::OpKind::read;
  for (const std::span<std::byte> span : ask.local) {
    job.local.push_back({span, service.in_pool ? ask.registration(service.pool_rail) : nullptr});
  }
  return job;
}

std::unique_ptr<transfer::Lender> Services::make_lender(SharedAsk ask, bool first_provider) {
  return transfer::lend(
      [this, ask = std::move(ask), first_provider](const transfer::TransferOutcome& outcome) {
        on_done(ask, outcome, first_provider);
      });
}

void Services::submit(Service& service, const SharedAsk& ask) {
  transfer::Job job = make_job(service, *ask);
  auto lender = make_lender(ask, service.in_pool);
  transfer::Runner& rail = pick_rail(service);
  Error why;
  {
    // Held across submit(), so that on_done() finds the entry it is to remove.
    MutexLock lock(mutex_);
    Flight& flight = flights_[ask->id.raw()];
    if (flight.cancelled) {
      why = Error::make(Errc::aborted, "client is gone");
    } else {
      auto id = rail.submit(std::move(job), std::move(lender));
      if (id.ok()) {
        flight = Flight{&rail, *id, false, false};
        return;
      }
      why = id.error();
    }
  }
  transfer::TransferOutcome outcome;
  outcome.status = why;
  on_done(ask, outcome, false);
}

void Services::transfer(TransferAsk ask) {
  auto shared = std::make_shared<TransferAsk>(std::move(ask));
  Service* service = nullptr;
  if (shared->binding->fallback.load(std::memory_order_acquire)) service = fallback();
  submit(service != nullptr ? *service : pick(), shared);
}

bool Services::transfer_inline(TransferAsk& ask) {
  if (!inline_engine_ || ask.binding->fallback.load(std::memory_order_acquire)) return false;
  vigil_.end(true);
  const bool alone = !crowded(ask);
  auto shared = std::make_shared<TransferAsk>(std::move(ask));
  const transfer::TransferId id = inline_engine_->draw_id();
  {
    MutexLock lock(mutex_);
    flights_[shared->id.raw()] = Flight{nullptr, id, false, false};
  }
  inline_engine_->submit(id, make_job(*services_.front(), *shared), make_lender(shared, true));
  drive(*inline_engine_);
  if (alone && shared->length <= kLingerLengthMax) linger(shared->length);
  return true;
}

bool Services::crowded(const TransferAsk& ask) {
  if (std::exchange(last_peer_, ask.binding.get()) != ask.binding.get()) {
    crowd_ = kCrowdTransfers;
  } else if (crowd_ > 0) {
    --crowd_;
  }
  return crowd_ > 0;
}

void Services::linger(Length length) {
  // With more than one under way, serving the others is better than waiting for one.
  const Duration bytes_time = std::chrono::microseconds(length.raw() / kLingerBytesPerUsec);
  if (inline_engine_->live() == 1) {
    const Duration budget = spin_.budget();
    if (budget.count() == 0) return;
    const Instant until = clock_.now() + budget + bytes_time;
    for (;;) {
      (void)inline_engine_->step();
      if (inline_engine_->live() == 0 || clock_.now() >= until) break;
      AdaptiveSpin::breathe();
    }
    spin_.count(inline_engine_->live() == 0);
  }
  if (inline_engine_->live() == 0) vigil_.begin(bytes_time);
}

void Services::on_done(const SharedAsk& ask, const transfer::TransferOutcome& outcome,
                       bool first_provider) {
  const Status& status = outcome.status;
  const bool foreign = !status.ok() && status.code() == Errc::unsupported &&
                       outcome.moved.raw() == 0 && status.error().quiet;
  const bool other_provider =
      foreign && first_provider && settings_.provider() == Provider::automatic;
  if (other_provider) {
    MutexLock lock(mutex_);
    Flight& flight = flights_[ask->id.raw()];
    flight.rail = nullptr;
    flight.on_the_way = true;
  }
  if (other_provider && handing_over_.submit([this, ask, outcome] { hand_over(ask, outcome); }))
    return;
  {
    MutexLock lock(mutex_);
    flights_.erase(ask->id.raw());
  }
  // The command still holds the binding, and only the main thread may drop the last reference.
  ask->binding.reset();
  ask->done(outcome);
}

// The peer does not speak soft and nothing has moved: libfabric's tcp, if there is one.
void Services::hand_over(const SharedAsk& ask, const transfer::TransferOutcome& outcome) {
  Service* other = open_fallback();
  if (other == nullptr) return on_done(ask, outcome, false);
  if (!ask->binding->fallback.exchange(true)) {
    counters_.rdma_fallback_bindings.add();
    for (auto& rail : other->rails) rail->bind(ask->binding->address());
  }
  submit(*other, ask);
}

Services::Service* Services::fallback() {
  MutexLock lock(mutex_);
  return stopped_ ? nullptr : fallback_.get();
}

// On the thread of handing_over_ only.
Services::Service* Services::open_fallback() {
  {
    MutexLock lock(mutex_);
    if (stopped_) return nullptr;
    if (fallback_ || std::exchange(fallback_tried_, true)) return fallback_.get();
  }
  fabric::ofi::OfiOptions options;
  options.listen_ip = services_.front()->name;
  std::string why;
  auto service = std::make_unique<Service>();
  {
    const SignalGuard guard;
    auto domain = fabric::ofi::open_domain(options, clock_, &why);
    if (!domain.ok() || (*domain)->info().local_registration_required) {
      logf(LogLevel::warning,
           "fabric: a peer does not speak soft, and libfabric's tcp is not available: %s",
           why.c_str());
      return nullptr;
    }
    service->domain = std::move(domain).value();
  }
  service->name = options.listen_ip;
  service->in_pool = false;
  if (!start_rails(*service, 1)) return nullptr;
  logf(LogLevel::info, "fabric: a peer does not speak soft; serving it by libfabric %s",
       service->domain->info().provider.c_str());
  MutexLock lock(mutex_);
  if (stopped_) return nullptr;
  fallback_ = std::move(service);
  return fallback_.get();
}

void Services::cancel(JobId id) {
  Flight flight;
  {
    MutexLock lock(mutex_);
    const auto at = flights_.find(id.raw());
    if (at == flights_.end()) return;
    at->second.cancelled = at->second.on_the_way;
    flight = at->second;
  }
  if (flight.on_the_way) return;
  // Rails live until stop(), which like this is the main thread's.
  if (flight.rail != nullptr) return flight.rail->cancel(flight.id);
  inline_engine_->cancel(flight.id);
  drive(*inline_engine_);
}

}  // namespace farlift::blob
