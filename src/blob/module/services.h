// Services: the server's fabric endpoints (spec blob 1.6, 5.2). Each service is one domain with its rails; a binding
// covers all services, each transfer picks one. Under fabric-provider Auto a second, unannounced service over
// libfabric's tcp is opened when the first peer turns up that does not speak ours.
//
// Invariants: zero services is a valid state (inline-only server); rails are stopped before domains go; domains outlive
//             the pool whose segments are registered on them.
// Threads:    open(), start(), admit(), release(), stop() on the main thread; transfer() from any.
// Errors:     open() never fails: what could not be opened is logged and missing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "blob/module/binding.h"
#include "blob/module/counters.h"
#include "blob/module/rail.h"
#include "blob/module/settings.h"
#include "blob/wire/operands.h"
#include "core/base/clock.h"
#include "core/base/prng.h"

namespace farlift::blob {

// One transfer as a command asks for it.
struct TransferAsk {
  JobId id;
  BindingRef binding;
  fabric::OpKind kind = fabric::OpKind::write;
  std::vector<std::span<std::byte>> local;
  std::function<fabric::Registration*(std::size_t pool_rail)> registration;  // of the storage, on a rail of the pool
  std::vector<transfer::RemoteWindow> remote;
  Length length;
  std::shared_ptr<const void> keep;
  std::function<void(JobOutcome)> done;
};

class Services {
 public:
  Services(const Settings& settings, const Clock& clock, Counters& counters);
  ~Services();

  void open();                                   // domains
  std::vector<fabric::Domain*> pool_rails();     // for the pool, in the order of Service::pool_rail
  void start();                                  // rails, after the pool exists
  void stop();

  bool available() const noexcept { return !services_.empty(); }
  wire::AddressForms address_forms() const noexcept;
  bool socket_addresses() const noexcept;
  std::vector<fabric::Address> announced() const;
  std::size_t size() const noexcept { return services_.size(); }
  // What INFO says of the providers in use: "soft", "soft,tcp".
  std::string provider_names() const;

  // Enters the address in every service, or in none.
  Result<BindingRef> bind(const fabric::Address& address);

  void transfer(TransferAsk ask);
  // Small transfers that are run by the caller's thread: false when there is no inline rail for the binding.
  bool transfer_inline(TransferAsk& ask);
  void cancel(JobId id);

 private:
  struct Service {
    std::string name;
    std::unique_ptr<fabric::Domain> domain;
    std::size_t pool_rail = 0;
    bool in_pool = true;
    std::vector<std::unique_ptr<Rail>> rails;
  };
  void open_soft(const std::string& listen_ip);
  void open_ofi(Provider provider);
  bool start_rails(Service& service, std::size_t count);
  void start_inline();
  void release(const Binding& binding);
  Service* fallback();
  Service& pick();
  Rail& pick_rail(Service& service);
  void submit(Service& service, Rail& rail, std::shared_ptr<TransferAsk> ask);
  Job make_job(const Service& service, const std::shared_ptr<TransferAsk>& ask) const;
  void on_done(const std::shared_ptr<TransferAsk>& ask, JobOutcome outcome, bool first_provider);

  const Settings& settings_;
  const Clock& clock_;
  Counters& counters_;
  std::vector<std::unique_ptr<Service>> services_;
  std::unique_ptr<Rail> inline_rail_;
  BindingId next_binding_{1};
  Mutex mutex_;
  Prng prng_ GUARDED_BY(mutex_);
  std::unique_ptr<Service> fallback_ GUARDED_BY(mutex_);
  bool fallback_tried_ GUARDED_BY(mutex_) = false;
  bool stopped_ GUARDED_BY(mutex_) = false;
};

}  // namespace farlift::blob
