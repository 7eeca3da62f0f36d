#include "s3/gateway/sweep.h"

#include "core/base/log.h"

#include <thread>

namespace farlift::s3::gateway {

namespace {

constexpr std::size_t kAtATime = 256;

class SweepThread final : public Sweep {
 public:
  SweepThread(Services& services, Duration every)
      : services_(services), every_(every), thread_([this] { run(); }) {}
  ~SweepThread() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    stopped_.notify_all();
    thread_.join();
  }

  void sweep_now() override {
    const MutexLock one_at_a_time(sweep_mutex_);
    while (!is_stopping()) {
      const Result<std::vector<std::string>> garbage = services_.store.garbage(kAtATime);
      if (!garbage.ok() || garbage->empty()) return;
      std::vector<std::string> gone;
      std::vector<std::string> later;
      for (const std::string& fid : *garbage) {
        if (is_stopping()) break;
        (remove(fid) ? gone : later).push_back(fid);
      }
      const Status forgotten = services_.store.forget(gone);
      const Status postponed = services_.store.postpone(later);
      if (!forgotten.ok() || !postponed.ok()) return;
    }
  }

 private:
  bool remove(const std::string& fid) {
    const Result<std::vector<Place>> holders = services_.cluster.holders(fid);
    if (!holders.ok()) return false;
    for (const Place& place : *holders) {
      const Status removed = services_.volumes.remove(place);
      if (!removed.ok()) {
        logf(LogLevel::warning, "cleanup FAILED fid=%s at %s: %s", fid.c_str(), place.host.c_str(),
             removed.error().describe().c_str());
        return false;
      }
    }
    return true;
  }
  bool is_stopping() {
    const MutexLock lock(mutex_);
    return stopping_;
  }
  void run() {
    for (;;) {
      {
        const MutexLock lock(mutex_);
        if (!stopping_) stopped_.wait_for(mutex_, every_);
        if (stopping_) return;
      }
      sweep_now();
    }
  }

  Services& services_;
  const Duration every_;
  Mutex sweep_mutex_;
  Mutex mutex_;
  CondVar stopped_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Sweep> Sweep::start(Services& services, Duration every) {
  return std::make_unique<SweepThread>(services, every);
}

}  // namespace farlift::s3::gateway
