#include "blob/module/module.h"

#include "blob/module/commands.h"
#include "blob/module/info.h"
#include "blob/module/value_type.h"
#include "blob/wire/names.h"
#include "core/base/log.h"

#include <cstdio>
#include <string>

namespace farlift::blob {
namespace {

constexpr int kModuleVersion = 1;
constexpr int kServerVersionMin = 0x00080000;  // 8.0.0

Module* the_module = nullptr;

void log_to_server(LogLevel level, std::string_view line) noexcept {
  const char* name = "notice";
  if (level == LogLevel::debug) name = "debug";
  if (level == LogLevel::warning || level == LogLevel::error) name = "warning";
  vk::Log(nullptr, name, "<%s> %.*s", wire::kModuleName, static_cast<int>(line.size()),
          line.data());
}

void on_client_change(vk::Ctx*, vk::Event, std::uint64_t subevent, void* data) noexcept {
  if (subevent != vk::kClientDisconnected) return;
  module().sessions().drop(static_cast<const vk::ClientInfo*>(data)->id);
}

void on_fork(vk::Ctx*, vk::Event, std::uint64_t subevent, void*) noexcept {
  if (subevent == vk::kForkBorn) module().store().child_born();
  if (subevent == vk::kForkDied) module().store().child_died();
}

void on_event_loop(vk::Ctx*, vk::Event, std::uint64_t subevent, void*) noexcept {
  if (subevent == vk::kEventLoopBeforeSleep) module().store().settle();
}

void on_shutdown(vk::Ctx*, vk::Event, std::uint64_t, void*) noexcept { module().stop(); }

}  // namespace

Module& module() noexcept { return *the_module; }

int Module::load(vk::Ctx* ctx, std::span<const std::string_view> words) {
  if (const char* missing = vk::load_api(ctx)) {
    std::fprintf(stderr,
                 "farlift: this server has no module function %s; Valkey 8.0 or newer is needed\n",
                 missing);
    return vk::kErr;
  }
  if (vk::IsModuleNameBusy(wire::kModuleName) != 0) return vk::kErr;
  vk::SetModuleAttribs(ctx, wire::kModuleName, kModuleVersion, vk::kApiVersion);
  set_log_sink(log_to_server);
  if (vk::GetServerVersion() < kServerVersionMin) {
    log(LogLevel::warning, "this server is too old: Valkey 8.0 or newer is needed");
    return vk::kErr;
  }
  the_module = new Module();  // never freed: values of our type refer to it until the process ends
  if (the_module->start(ctx, words)) return vk::kOk;
  the_module->stop();
  return vk::kErr;
}

bool Module::start(vk::Ctx* ctx, std::span<const std::string_view> words) {
  const auto refuse = [](const std::string& why) {
    logf(LogLevel::warning, "load refused: %s", why.c_str());
    return false;
  };
  if (const auto error = settings_.load(ctx, words)) return refuse(*error);
  if (settings_.mode() == OperatingMode::tiered) {
    return refuse("operating-mode Tiered is not implemented yet; use Dram");
  }
  type_ = register_value_type(ctx);
  if (type_ == nullptr) return refuse("the server refused the value type");
  if (const char* name = register_commands(ctx))
    return refuse(std::string("the server refused ") + name);
  if (vk::RegisterInfoFunc(ctx, write_info) != vk::kOk)
    return refuse("the server refused the INFO callback");
  vk::SetModuleOptions(ctx, vk::kOptionHandleIoErrors | vk::kOptionNoImplicitSignalModified);
  if (!subscribe(ctx)) return refuse("the server refused an event subscription");

  services_.open();
  auto store = BlobStore::create(services_.pool_rails(), settings_);
  if (!store.ok()) return refuse("no memory for the first segment: " + store.error().describe());
  store_ = std::move(store).value();
  copiers_ = std::make_unique<CopyPool>(static_cast<std::size_t>(settings_.get().worker_threads));
  services_.start();
  detached_ = vk::GetDetachedThreadSafeContext(ctx);
  reclaimer_ = std::make_unique<Reclaimer>(settings_, *store_, clock_);
  reclaimer_->start(ctx);
  logf(LogLevel::info, "ready: %zu fabric services (%s), segments of %llu bytes", services_.size(),
       services_.provider_names().c_str(),
       static_cast<unsigned long long>(store_->segment_size().raw()));
  return true;
}

bool Module::subscribe(vk::Ctx* ctx) {
  return vk::SubscribeToServerEvent(ctx, vk::kEventClientChange, on_client_change) == vk::kOk &&
         vk::SubscribeToServerEvent(ctx, vk::kEventForkChild, on_fork) == vk::kOk &&
         vk::SubscribeToServerEvent(ctx, vk::kEventEventLoop, on_event_loop) == vk::kOk &&
         vk::SubscribeToServerEvent(ctx, vk::kEventShutdown, on_shutdown) == vk::kOk;
}

void Module::stop() {
  if (stopping_) return;
  stopping_ = true;
  services_.stop();
  if (copiers_) copiers_->stop();
}

}  // namespace farlift::blob
