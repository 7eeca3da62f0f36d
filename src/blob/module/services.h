// Services: the server's fabric endpoints (spec blob 1.6, 5.2). Each service is one domain with its
// rails; a binding covers all services, each transfer picks one. Under fabric-provider Auto a
// second, unannounced service over libfabric's tcp is opened when the first peer turns up that does
// not speak ours.
//
// Invariants: zero services is a valid state (inline-only server); rails are stopped before domains
//             go; domains outlive the pool whose segments are registered on them.
// Threads:    open(), start(), admit(), release(), stop() on the main thread; transfer() from any.
// Errors:     open() never fails: what could not be opened is logged and missing.
#pragma once

#include "blob/module/binding.h"
#include "blob/module/copy_pool.h"
#include "blob/module/counters.h"
#include "blob/module/settings.h"
#include "blob/module/vigil.h"
#include "blob/wire/operands.h"
#include "core/base/adaptive_spin.h"
#include "core/base/clock.h"
#include "core/base/prng.h"
#include "core/transfer/crc_pool.h"
#include "core/transfer/runner.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace farlift::blob {

using JobId = StrongInt<struct JobIdTag, std::uint64_t>;

// One transfer as a command asks for it.
struct TransferAsk {
  JobId id;
  BindingRef binding;
  fabric::OpKind kind = fabric::OpKind::write;
  std::vector<std::span<std::byte>> local;
  std::function<fabric::Registration*(std::size_t pool_rail)>
      registration;  // of the storage, on a rail of the pool
  std::vector<transfer::RemoteWindow> remote;
  Length length;
  std::shared_ptr<const void>
      keep;  // owns what `local` points into; dropped when nobody can touch it any more
  std::function<void(const transfer::TransferOutcome&)> done;
};

class Services {
 public:
  // The main thread polls at most this long, and the time the bytes take at kLingerBytesPerUsec,
  // for the end of the one small transfer it has under way: sleeping, being woken and unblocking
  // the client cost several times as much. A peer that keeps being later is not waited for, and
  // while commands of several peers come in turn, they are served instead.
  static constexpr Duration kLingerLongest = std::chrono::microseconds(50);
  static constexpr std::uint64_t kLingerBytesPerUsec = 2000;
  static constexpr Length kLingerLengthMax{2u << 20};  // longer ones are left to events
  // After a small transfer of another peer than the one before, so many go by without lingering.
  static constexpr std::uint32_t kCrowdTransfers = 32;

  Services(const Settings& settings, const Clock& clock, Counters& counters);
  ~Services();

  void open();                                // domains
  std::vector<fabric::Domain*> pool_rails();  // for the pool, in the order of Service::pool_rail
  void start();                               // rails, after the pool exists
  void stop();                                // every transfer has been reported when it returns

  bool available() const noexcept { return !services_.empty(); }
  wire::AddressForms address_forms() const noexcept;
  const std::vector<fabric::Address>& announced() const noexcept { return announced_; }
  std::size_t size() const noexcept { return services_.size(); }
  // What INFO says of the providers in use: "soft", "soft,tcp".
  std::string provider_names();

  // Enters the address in every service, or in none.
  Result<BindingRef> bind(const fabric::Address& address);

  // Runs on a rail's thread; done() too.
  void transfer(TransferAsk ask);
  // Small transfers, run by the main thread: done() may be called before it returns. False when
  // there is no inline rail for the binding; `ask` is then as it was.
  bool transfer_inline(TransferAsk& ask);
  // Stops posting; the transfer still ends with done(). Unknown ids are of transfers that have
  // ended.
  void cancel(JobId id);

 private:
  struct Service {
    std::string name;
    std::unique_ptr<fabric::Domain> domain;
    std::size_t pool_rail = 0;
    bool in_pool =
        true;  // its domain holds registrations of the pool's segments; false: the fallback
    std::vector<std::unique_ptr<transfer::Runner>> rails;
    std::uint64_t load() const;
  };
  struct Flight {                      // where a transfer runs now
    transfer::Runner* rail = nullptr;  // nullptr: the inline engine, or on its way to the fallback
    transfer::TransferId id;
    bool on_the_way = false;
    bool cancelled = false;  // while on the way
  };
  using SharedAsk = std::shared_ptr<TransferAsk>;

  void open_soft(const std::string& listen_ip);
  void open_ofi(Provider provider);
  bool start_rails(Service& service, std::size_t count);
  void start_inline();
  void stop_inline();
  void linger(Length length);
  bool crowded(const TransferAsk& ask);
  void release(const Binding& binding);
  Service* fallback();       // nullptr while it is not open
  Service* open_fallback();  // opens it on first use; takes its time
  void hand_over(const SharedAsk& ask, const transfer::TransferOutcome& outcome);
  Service& pick();
  static transfer::Runner& pick_rail(Service& service);
  transfer::EngineOptions engine_options(std::size_t rails) const;
  static transfer::Job make_job(const Service& service, const TransferAsk& ask);
  std::unique_ptr<transfer::Lender> make_lender(SharedAsk ask, bool first_provider);
  void submit(Service& service, const SharedAsk& ask);
  void on_done(const SharedAsk& ask, const transfer::TransferOutcome& outcome, bool first_provider);

  const Settings& settings_;
  const Clock& clock_;
  Counters& counters_;
  std::unique_ptr<transfer::CrcPool> crc_pool_;
  std::vector<std::unique_ptr<Service>> services_;
  std::vector<fabric::Address> announced_;
  std::unique_ptr<transfer::Engine> inline_engine_;
  AdaptiveSpin spin_{kLingerLongest};  // of the main thread over a small transfer
  Vigil vigil_;                        // for the command after it
  const void* last_peer_ = nullptr;    // its Binding; compared, never followed
  std::uint32_t crowd_ = 0;            // transfers until the main thread lingers again
  CopyPool handing_over_{1};           // opening libfabric would hold up a rail, or the server
  Mutex mutex_;
  Prng prng_ GUARDED_BY(mutex_);
  std::unique_ptr<Service> fallback_ GUARDED_BY(mutex_);
  bool fallback_tried_ GUARDED_BY(mutex_) = false;
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::unordered_map<std::uint64_t, Flight> flights_ GUARDED_BY(mutex_);  // by JobId
};

}  // namespace farlift::blob
