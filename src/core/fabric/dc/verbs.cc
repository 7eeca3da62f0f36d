#include "core/fabric/dc/verbs.h"

#include "core/base/log.h"
#include "core/fabric/dc/dc.h"

#include <atomic>
#include <dlfcn.h>

// A macro of the same name stands for an inline function that may call the library by linkage.
#undef ibv_reg_mr
#undef ibv_query_port

namespace farlift::fabric::dc {
namespace {

std::atomic<std::uint64_t> destroys_failed{0};

constexpr const char* kVerbsLibrary = "libibverbs.so.1";
constexpr const char* kMlx5Library = "libmlx5.so.1";

void say(std::string* why, std::string text) {
  if (why != nullptr) *why = std::move(text);
}

class LoadedVerbs final : public Verbs {
 public:
  Status load(std::string* why);

  ibv_device** get_device_list(int* count) const override { return get_device_list_(count); }
  void free_device_list(ibv_device** list) const override { free_device_list_(list); }
  bool is_mlx5(ibv_device* device) const override { return is_supported_(device); }
  ibv_context* open_device(ibv_device* device) const override { return open_device_(device); }
  int close_device(ibv_context* context) const override { return close_device_(context); }
  int query_device(ibv_context* context, ibv_device_attr* out) const override {
    return query_device_(context, out);
  }
  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out) const override {
    // The exported function fills the older, shorter form of the structure: the rest stays 0.
    *out = {};
    return query_port_(context, port, reinterpret_cast<_compat_ibv_port_attr*>(out));
  }
  int query_gid(ibv_context* context, std::uint32_t port, std::uint32_t index,
                ibv_gid_entry* out) const override {
    return query_gid_(context, port, index, out, 0, sizeof(*out));
  }
  ibv_pd* alloc_pd(ibv_context* context) const override { return alloc_pd_(context); }
  int dealloc_pd(ibv_pd* pd) const override { return dealloc_pd_(pd); }
  ibv_mr* reg_mr(ibv_pd* pd, void* addr, std::size_t length, int access) const override {
    return reg_mr_(pd, addr, length, access);
  }
  int dereg_mr(ibv_mr* mr) const override { return dereg_mr_(mr); }
  ibv_comp_channel* create_comp_channel(ibv_context* context) const override {
    return create_comp_channel_(context);
  }
  int destroy_comp_channel(ibv_comp_channel* channel) const override {
    return destroy_comp_channel_(channel);
  }
  int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** context) const override {
    return get_cq_event_(channel, cq, context);
  }
  void ack_cq_events(ibv_cq* cq, unsigned count) const override { ack_cq_events_(cq, count); }
  ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) const override {
    return create_cq_(context, entries, nullptr, channel, 0);
  }
  int destroy_cq(ibv_cq* cq) const override { return destroy_cq_(cq); }
  ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) const override {
    return create_srq_(pd, attr);
  }
  int destroy_srq(ibv_srq* srq) const override { return destroy_srq_(srq); }
  ibv_qp* create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                    mlx5dv_qp_init_attr* mlx5_attr) const override {
    return create_qp_(context, attr, mlx5_attr);
  }
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) const override {
    return modify_qp_(qp, attr, mask);
  }
  int destroy_qp(ibv_qp* qp) const override { return destroy_qp_(qp); }
  ibv_qp_ex* qp_ex(ibv_qp* qp) const override { return qp_to_qp_ex_(qp); }
  mlx5dv_qp_ex* mlx5_qp_ex(ibv_qp_ex* qp) const override { return mlx5_qp_ex_(qp); }
  ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) const override { return create_ah_(pd, attr); }
  int destroy_ah(ibv_ah* ah) const override { return destroy_ah_(ah); }

 private:
  decltype(&::ibv_get_device_list) get_device_list_ = nullptr;
  decltype(&::ibv_free_device_list) free_device_list_ = nullptr;
  decltype(&::ibv_open_device) open_device_ = nullptr;
  decltype(&::ibv_close_device) close_device_ = nullptr;
  decltype(&::ibv_query_device) query_device_ = nullptr;
  decltype(&::ibv_query_port) query_port_ = nullptr;
  decltype(&::_ibv_query_gid_ex) query_gid_ = nullptr;
  decltype(&::ibv_alloc_pd) alloc_pd_ = nullptr;
  decltype(&::ibv_dealloc_pd) dealloc_pd_ = nullptr;
  decltype(&::ibv_reg_mr) reg_mr_ = nullptr;
  decltype(&::ibv_dereg_mr) dereg_mr_ = nullptr;
  decltype(&::ibv_create_comp_channel) create_comp_channel_ = nullptr;
  decltype(&::ibv_destroy_comp_channel) destroy_comp_channel_ = nullptr;
  decltype(&::ibv_get_cq_event) get_cq_event_ = nullptr;
  decltype(&::ibv_ack_cq_events) ack_cq_events_ = nullptr;
  decltype(&::ibv_create_cq) create_cq_ = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq_ = nullptr;
  decltype(&::ibv_create_srq) create_srq_ = nullptr;
  decltype(&::ibv_destroy_srq) destroy_srq_ = nullptr;
  decltype(&::ibv_modify_qp) modify_qp_ = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp_ = nullptr;
  decltype(&::ibv_qp_to_qp_ex) qp_to_qp_ex_ = nullptr;
  decltype(&::ibv_create_ah) create_ah_ = nullptr;
  decltype(&::ibv_destroy_ah) destroy_ah_ = nullptr;
  decltype(&::mlx5dv_is_supported) is_supported_ = nullptr;
  decltype(&::mlx5dv_create_qp) create_qp_ = nullptr;
  decltype(&::mlx5dv_qp_ex_from_ibv_qp_ex) mlx5_qp_ex_ = nullptr;
};

template <class F>
bool resolve(void* handle, const char* name, F*& out) noexcept {
  out =
      reinterpret_cast<F*>(::dlsym(handle, name));  // the symbol's default, that is newest, version
  return out != nullptr;
}

void* open_library(const char* name, const char* package, std::string* why) {
  void* handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    say(why, std::string(name) + " cannot be loaded (" + (reason != nullptr ? reason : "unknown") +
                 "); install " + package + " for mlx5 cards");
  }
  return handle;
}

Status LoadedVerbs::load(std::string* why) {
  void* const verbs = open_library(kVerbsLibrary, "libibverbs1", why);
  if (verbs == nullptr) return Error::make(Errc::unsupported, "load libibverbs");
  void* const mlx5 = open_library(kMlx5Library, "ibverbs-providers", why);
  if (mlx5 == nullptr) return Error::make(Errc::unsupported, "load libmlx5");
  const bool complete =
      resolve(verbs, "ibv_get_device_list", get_device_list_) &&
      resolve(verbs, "ibv_free_device_list", free_device_list_) &&
      resolve(verbs, "ibv_open_device", open_device_) &&
      resolve(verbs, "ibv_close_device", close_device_) &&
      resolve(verbs, "ibv_query_device", query_device_) &&
      resolve(verbs, "ibv_query_port", query_port_) &&
      resolve(verbs, "_ibv_query_gid_ex", query_gid_) &&
      resolve(verbs, "ibv_alloc_pd", alloc_pd_) && resolve(verbs, "ibv_dealloc_pd", dealloc_pd_) &&
      resolve(verbs, "ibv_reg_mr", reg_mr_) && resolve(verbs, "ibv_dereg_mr", dereg_mr_) &&
      resolve(verbs, "ibv_create_comp_channel", create_comp_channel_) &&
      resolve(verbs, "ibv_destroy_comp_channel", destroy_comp_channel_) &&
      resolve(verbs, "ibv_get_cq_event", get_cq_event_) &&
      resolve(verbs, "ibv_ack_cq_events", ack_cq_events_) &&
      resolve(verbs, "ibv_create_cq", create_cq_) &&
      resolve(verbs, "ibv_destroy_cq", destroy_cq_) &&
      resolve(verbs, "ibv_create_srq", create_srq_) &&
      resolve(verbs, "ibv_destroy_srq", destroy_srq_) &&
      resolve(verbs, "ibv_modify_qp", modify_qp_) &&
      resolve(verbs, "ibv_destroy_qp", destroy_qp_) &&
      resolve(verbs, "ibv_qp_to_qp_ex", qp_to_qp_ex_) &&
      resolve(verbs, "ibv_create_ah", create_ah_) &&
      resolve(verbs, "ibv_destroy_ah", destroy_ah_) &&
      resolve(mlx5, "mlx5dv_is_supported", is_supported_) &&
      resolve(mlx5, "mlx5dv_create_qp", create_qp_) &&
      resolve(mlx5, "mlx5dv_qp_ex_from_ibv_qp_ex", mlx5_qp_ex_);
  if (!complete) {
    say(why, "libibverbs or libmlx5 lacks a function; rdma-core 44 or newer is needed");
    return Error::make(Errc::unsupported, "rdma-core version");
  }
  return ok_status();
}

}  // namespace

Result<std::shared_ptr<const Verbs>> load_verbs(std::string* why) {
  auto verbs = std::make_shared<LoadedVerbs>();
  TRY(verbs->load(why));
  return std::shared_ptr<const Verbs>(std::move(verbs));
}

void check_destroyed(int rc, const char* what) noexcept {
  if (rc == 0) return;
  destroys_failed.fetch_add(1, std::memory_order_relaxed);
  logf(LogLevel::error, "fabric dc: destroying a verbs %s failed with %d", what, rc);
  DCHECK(rc == 0);
}

std::uint64_t failed_destroys() noexcept { return destroys_failed.load(std::memory_order_relaxed); }

}  // namespace farlift::fabric::dc
