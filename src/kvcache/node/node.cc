#include "kvcache/node/node.h"

#include "core/base/log.h"
#include "core/fabric/self_test.h"
#include "kvcache/node/node_impl.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

namespace farlift::kv {

Result<std::unique_ptr<Node>> Node::create(const Environment& environment, NodeOptions options,
                                           std::string* why) {
  std::string ignored;
  if (why == nullptr) why = &ignored;
  *why = node::wrong_options(environment, options);
  if (!why->empty()) return Error::make(Errc::invalid_argument, "node options");
  auto made = std::make_unique<node::NodeImpl>(environment, std::move(options));
  TRY(made->open(why));
  return std::unique_ptr<Node>(std::move(made));
}

}  // namespace farlift::kv

namespace farlift::kv::node {
namespace {

constexpr std::uint64_t kArenaSizeMin = 64 << 10;
constexpr int kPortTries = 8;
constexpr auto kPollEvery =
    std::chrono::microseconds(200);  // rails without a descriptor to wait on

Status told(std::string* why, std::string text, Error error) {
  *why = std::move(text);
  return error;
}

}  // namespace

std::string wrong_options(const Environment& environment, const NodeOptions& options) {
  const std::uint64_t arena = options.arena_size.raw();
  if (environment.rails.empty() || environment.rails.size() > kRailsMax) {
    return "a node has 1 to 16 rails";
  }
  const auto readers = static_cast<std::size_t>(
      std::count_if(environment.rails.begin(), environment.rails.end(),
                    [](const Rail& rail) { return introduces_readers(rail.provider); }));
  if (environment.rails.size() + readers > kRailsMax) {
    return "HELLO has room for 16 addresses, and each EFA rail takes two: at most 8 of them";
  }
  if (!std::has_single_bit(arena) || arena < kArenaSizeMin || options.arena_size > kArenaSizeMax) {
    return "the arena size is a power of two from 64 KiB to 256 GiB";
  }
  if (options.tenants.empty()) return "a node serves at least one tenant";
  std::set<std::string> names;
  for (const TenantOptions& tenant : options.tenants) {
    if (!valid_tenant(tenant.name)) return "tenant '" + tenant.name + "': not a tenant's name";
    if (!names.insert(tenant.name).second) return "tenant '" + tenant.name + "' is there twice";
    if (tenant.keys.find(tenant.keys.signing_id()) == nullptr) {
      return "tenant '" + tenant.name +
             "' has no key to sign with (and is not in development mode)";
    }
    if (tenant.quota < options.arena_size) {
      return "tenant '" + tenant.name + "': the quota is less than one arena";
    }
  }
  if (options.low_percent > options.high_percent || options.high_percent > 100) {
    return "low_percent <= high_percent <= 100";
  }
  return {};
}

NodeImpl::NodeImpl(const Environment& environment, NodeOptions options)
    : core_(environment, std::move(options)),
      peers_(core_),
      publisher_(core_, peers_),
      pulls_(core_, publisher_, outcomes_),
      grants_(core_, publisher_, outcomes_),
      remover_(core_),
      rotation_(core_,
                [this](Tenant& tenant) {
                  sessions_.drop(tenant);
                  peers_.drop(tenant);
                }),
      sessions_(core_, Services{pulls_, grants_, remover_, [this] { drain_.begin(); },
                                [this](Tenant& tenant, const RotateRequest& request) {
                                  return rotate_for(tenant, request);
                                },
                                [this](const Tenant& tenant) { return stat_for(tenant); }}),
      reconcile_(core_),
      evictor_(core_, rotation_),
      announcer_(
          core_, [this] { return sessions_.port(); },
          [this](std::uint16_t used) {
            if (core_.options.port == 0 && sessions_.port() == used) {
              std::string why;
              (void)listen(used, &why);  // the old one serves on where no other is to be had
            }
          }),
      drain_(core_, peers_, rotation_, announcer_) {
  core_.on_directory_back = [this] { reconcile_.soon(); };
}

NodeImpl::~NodeImpl() { grants_.close_all(); }

Status NodeImpl::open(std::string* why) {
  TRY(open_tenants(why));
  TRY(check_rails(why));
  if (core_.options.self_test) TRY(test_rails(why));
  TRY(first_arena(why));
  return listen(0, why);
}

Status NodeImpl::open_tenants(std::string* why) {
  for (TenantOptions& options : core_.options.tenants) {
    core_.tenants.push_back(std::make_unique<Tenant>(core_, std::move(options)));
    Tenant& tenant = *core_.tenants.back();
    const Status opened = tenant.open(core_.environment.rails);
    if (!opened.ok()) {
      return told(why, "tenant '" + tenant.name() + "': " + opened.error().describe(),
                  opened.error());
    }
  }
  core_.options.tenants.clear();
  return {};
}

Status NodeImpl::check_rails(std::string* why) {
  Tenant& tenant = *core_.tenants.front();
  core_.read_max = Length(UINT64_MAX);
  for (std::size_t rail = 0; rail < tenant.rails(); ++rail) {
    const fabric::DomainInfo& info = tenant.domain(rail).info();
    core_.fence_mode = std::max(core_.fence_mode, info.fence_mode);
    if (info.operation_length_max.raw() > 0) {
      core_.read_max = std::min(core_.read_max, info.operation_length_max);
    }
    if (rail == 0) core_.virtual_address = info.virtual_addressing;
    if (info.virtual_addressing != core_.virtual_address) {
      return told(why, "the rails do not agree on virtual addresses: a descriptor has one address",
                  Error::make(Errc::unsupported, "rails"));
    }
  }
  return {};
}

Status NodeImpl::test_rails(std::string* why) {
  Tenant& tenant = *core_.tenants.front();
  for (std::size_t rail = 0; rail < tenant.rails(); ++rail) {
    const fabric::SelfTestReport report =
        fabric::self_test(tenant.domain(rail), core_.environment.clock);
    if (report.passed) continue;
    const fabric::SelfTestStep& step = report.steps.back();
    return told(why,
                "rail " + core_.environment.rails[rail].provider +
                    " failed its self-test: " + step.name + ": " + step.detail,
                Error::make(Errc::unsupported, "self-test"));
  }
  return {};
}

// What the rails do not take in one piece they may take in smaller ones.
Status NodeImpl::first_arena(std::string* why) {
  Tenant& tenant = *core_.tenants.front();
  const std::uint64_t wanted = core_.options.arena_size.raw();
  for (;;) {
    const Status made = tenant.grow();
    tenant.starved = false;
    if (made.ok()) break;
    const std::uint64_t smaller = core_.options.arena_size.raw() / 2;
    if (smaller < kArenaSizeMin || made.code() == Errc::corrupt) {
      return told(why,
                  "not even an arena of " + std::to_string(core_.options.arena_size.raw()) +
                      " bytes can be registered on " + std::to_string(tenant.rails()) +
                      " rail(s): " + made.error().describe() +
                      " (see the card's registration limit, RLIMIT_MEMLOCK and pinned_max)",
                  made.error());
    }
    core_.options.arena_size = Length(smaller);
  }
  if (core_.options.arena_size.raw() != wanted) {
    logf(LogLevel::warning,
         "kv node: arenas are %llu bytes instead of %llu: the rails take no more",
         static_cast<unsigned long long>(core_.options.arena_size.raw()),
         static_cast<unsigned long long>(wanted));
  }
  return {};
}

Status NodeImpl::listen(std::uint16_t avoid, std::string* why) {
  Transport& transport = core_.environment.transport;
  std::vector<std::unique_ptr<LinkListener>> unwanted;  // open, so that the next gets another port
  for (int i = 0; i < kPortTries; ++i) {
    auto made = transport.listen(core_.options.listen_ip, core_.options.port);
    if (!made.ok()) {
      return told(why,
                  "cannot listen on " + core_.options.listen_ip + ": " + made.error().describe(),
                  made.error());
    }
    if (avoid == 0 || (*made)->port() != avoid) {
      sessions_.listen(std::move(made).value());
      return {};
    }
    unwanted.push_back(std::move(made).value());
  }
  return told(why, "no port but the last one", Error::make(Errc::busy, "listen"));
}

bool NodeImpl::step() {
  const GatherSends together(core_.environment);
  bool any = core_.environment.transport.step();
  any = core_.directory().step() || any;
  any = core_.worker->step() || any;
  for (const auto& tenant : core_.tenants) any = tenant->step_engines() || any;
  any = core_.timers.run(core_.now()) || any;
  any = sessions_.step() || any;
  any = pulls_.step() || any;
  any = peers_.step() || any;
  any = announcer_.step() || any;
  any = rotation_.step() || any;
  any = reconcile_.step() || any;
  any = evictor_.step() || any;
  any = drain_.step() || any;
  outcomes_.expire(core_.now());
  return any;
}

std::vector<int> NodeImpl::wait_fds() const {
  std::vector<int> fds;
  for (const int fd : {core_.environment.transport.wait_fd(), core_.directory().wait_fd(),
                       core_.worker->wait_fd()}) {
    if (fd >= 0) fds.push_back(fd);
  }
  for (const auto& tenant : core_.tenants) tenant->add_wait_fds(fds);
  return fds;
}

Instant NodeImpl::next_deadline() const {
  Instant next = std::min({core_.timers.next(), pulls_.next_deadline(), peers_.next_deadline(),
                           announcer_.next_deadline(), rotation_.next_deadline(),
                           reconcile_.next_deadline(), evictor_.next_deadline()});
  for (const auto& tenant : core_.tenants) {
    if (tenant->needs_polling()) next = std::min<Instant>(next, core_.now() + kPollEvery);
  }
  return next;
}

bool NodeImpl::rotate(ArenaId id) {
  Arena* const arena = core_.arena(id);
  if (arena == nullptr || arena->state() == ArenaState::lost) return false;
  rotation_.begin(*arena);
  return true;
}

void NodeImpl::rotate_all() {
  for (const auto& arena : core_.arenas) rotation_.begin(*arena);
}

Outcome NodeImpl::rotate_for(Tenant& tenant, const RotateRequest& request) {
  if (request.all) {
    for (Arena* const arena : tenant.arenas) rotation_.begin(*arena);
    return Outcome::ok;
  }
  Arena* const arena = core_.arena(request.arena);
  if (arena == nullptr || arena->owner() != &tenant || arena->state() == ArenaState::lost) {
    return Outcome::miss;
  }
  rotation_.begin(*arena);
  return Outcome::ok;
}

}  // namespace farlift::kv::node
