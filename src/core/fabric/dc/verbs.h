// Verbs: the calls of libibverbs and libmlx5 that this folder makes, one virtual function each, so
// that a stand-in can take their place in tests. Nothing is decided here.
//
// Calls that verbs.h defines inline over pointers inside a library object (posting, polling) are
// not listed: they work on whatever made the object.
//
// Threads:    any; the libraries are thread-safe.
// Errors:     as the library: null with errno, or an errno value.
#pragma once

#include "core/base/result.h"

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <memory>
#include <string>

namespace farlift::fabric::dc {

class Verbs {
 public:
  virtual ~Verbs() = default;
  virtual ibv_device** get_device_list(int* count) const = 0;
  virtual void free_device_list(ibv_device** list) const = 0;
  virtual bool is_mlx5(ibv_device* device) const = 0;
  virtual ibv_context* open_device(ibv_device* device) const = 0;
  virtual int close_device(ibv_context* context) const = 0;
  virtual int query_device(ibv_context* context, ibv_device_attr* out) const = 0;
  virtual int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out) const = 0;
  virtual int query_gid(ibv_context* context, std::uint32_t port, std::uint32_t index,
                        ibv_gid_entry* out) const = 0;
  virtual ibv_pd* alloc_pd(ibv_context* context) const = 0;
  virtual int dealloc_pd(ibv_pd* pd) const = 0;
  virtual ibv_mr* reg_mr(ibv_pd* pd, void* addr, std::size_t length, int access) const = 0;
  virtual int dereg_mr(ibv_mr* mr) const = 0;
  virtual ibv_comp_channel* create_comp_channel(ibv_context* context) const = 0;
  virtual int destroy_comp_channel(ibv_comp_channel* channel) const = 0;
  virtual int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** context) const = 0;
  virtual void ack_cq_events(ibv_cq* cq, unsigned count) const = 0;
  virtual ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) const = 0;
  virtual int destroy_cq(ibv_cq* cq) const = 0;
  virtual ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) const = 0;
  virtual int destroy_srq(ibv_srq* srq) const = 0;
  virtual ibv_qp* create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                            mlx5dv_qp_init_attr* mlx5_attr) const = 0;
  virtual int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) const = 0;
  virtual int destroy_qp(ibv_qp* qp) const = 0;
  virtual ibv_qp_ex* qp_ex(ibv_qp* qp) const = 0;
  virtual mlx5dv_qp_ex* mlx5_qp_ex(ibv_qp_ex* qp) const = 0;
  virtual ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) const = 0;
  virtual int destroy_ah(ibv_ah* ah) const = 0;
};

// Counts and logs a destroy call that failed: something of ours is still in use. A debug build
// stops.
void check_destroyed(int rc, const char* what) noexcept;
std::uint64_t failed_destroys() noexcept;

template <class T, int (Verbs::*destroy)(T*) const>
struct VerbsCloser {
  const Verbs* verbs = nullptr;
  void operator()(T* object) const noexcept {
    check_destroyed((verbs->*destroy)(object), "object");
  }
};
template <class T, int (Verbs::*destroy)(T*) const>
using UniqueVerbs = std::unique_ptr<T, VerbsCloser<T, destroy>>;

using UniqueContext = UniqueVerbs<ibv_context, &Verbs::close_device>;
using UniquePd = UniqueVerbs<ibv_pd, &Verbs::dealloc_pd>;
using UniqueChannel = UniqueVerbs<ibv_comp_channel, &Verbs::destroy_comp_channel>;
using UniqueCq = UniqueVerbs<ibv_cq, &Verbs::destroy_cq>;
using UniqueSrq = UniqueVerbs<ibv_srq, &Verbs::destroy_srq>;
using UniqueQp = UniqueVerbs<ibv_qp, &Verbs::destroy_qp>;
using UniqueAh = UniqueVerbs<ibv_ah, &Verbs::destroy_ah>;

}  // namespace farlift::fabric::dc
