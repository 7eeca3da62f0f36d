#include "core/fabric/dc/fake_verbs.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/eventfd.h>
#include <unistd.h>

namespace farlift::fabric::dc {

struct FakeVerbs::Queue : ibv_cq {
  std::deque<ibv_wc> entries;
  std::size_t entries_max = 0;
  bool armed = false;
  unsigned events = 0;
  unsigned acknowledged = 0;
  bool overrun = false;
};

struct FakeVerbs::QueuePair : ibv_qp_ex {
  const FakeVerbs* owner = nullptr;
  bool initiator = false;
  std::uint64_t dc_key = 0;
  std::uint32_t posted_max = 0;
  Queue* queue = nullptr;
  Dc dc{};
  std::deque<Request> out;
  Request building;
};

namespace {

struct Context : ibv_context {};

}  // namespace

FakeVerbs::FakeVerbs() {
  Gid v1;
  v1.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 5};
  v1.type = IBV_GID_TYPE_ROCE_V1;
  Gid v2 = v1;
  v2.type = IBV_GID_TYPE_ROCE_V2;
  Gid link_local = v2;
  link_local.raw = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
  gids = {link_local, v1, v2};
}

FakeVerbs::~FakeVerbs() = default;

FakeVerbs::QueuePair& FakeVerbs::of(ibv_qp_ex* qp) { return *static_cast<QueuePair*>(qp); }
FakeVerbs::QueuePair& FakeVerbs::of(ibv_qp* qp) {
  return of(reinterpret_cast<ibv_qp_ex*>(qp));  // its first member
}

ibv_device** FakeVerbs::get_device_list(int* count) const {
  std::snprintf(device_.name, sizeof device_.name, "%s", name.c_str());
  ++objects_;
  *count = name.empty() ? 0 : 1;
  return new ibv_device* [2] { &device_, nullptr };
}
void FakeVerbs::free_device_list(ibv_device** list) const {
  --objects_;
  delete[] list;
}
bool FakeVerbs::is_mlx5(ibv_device*) const { return mlx5; }

ibv_context* FakeVerbs::open_device(ibv_device* device) const {
  auto* context = new Context{};
  context->device = device;
  context->ops.poll_cq = &FakeVerbs::poll;
  context->ops.req_notify_cq = &FakeVerbs::arm;
  ++objects_;
  return context;
}
int FakeVerbs::close_device(ibv_context* context) const {
  --objects_;
  delete static_cast<Context*>(context);
  return 0;
}
int FakeVerbs::query_device(ibv_context*, ibv_device_attr* out) const {
  *out = {};
  out->max_qp_init_rd_atom = 16;
  return 0;
}
int FakeVerbs::query_port(ibv_context*, std::uint8_t port, ibv_port_attr* out) const {
  *out = {};
  if (port != 1) return EINVAL;
  out->state = active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  out->active_mtu = IBV_MTU_4096;
  out->max_msg_sz = 1U << 30;
  out->gid_tbl_len = static_cast<int>(gids.size());
  out->lid = 0x17;
  out->link_layer = infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  return 0;
}
int FakeVerbs::query_gid(ibv_context*, std::uint32_t port, std::uint32_t index,
                         ibv_gid_entry* out) const {
  if (port != 1 || index >= gids.size()) return ENODATA;
  *out = {};
  std::copy(gids[index].raw.begin(), gids[index].raw.end(), std::begin(out->gid.raw));
  out->gid_index = index;
  out->gid_type = gids[index].type;
  return 0;
}

ibv_pd* FakeVerbs::alloc_pd(ibv_context* context) const {
  ++objects_;
  auto* pd = new ibv_pd{};
  pd->context = context;
  return pd;
}
int FakeVerbs::dealloc_pd(ibv_pd* pd) const {
  --objects_;
  delete pd;
  return 0;
}

ibv_mr* FakeVerbs::reg_mr(ibv_pd* pd, void* addr, std::size_t length, int access) const {
  if ((access & IBV_ACCESS_REMOTE_WRITE) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    errno = EINVAL;  // as the library refuses it
    return nullptr;
  }
  auto* region = new Region{};
  region->pd = pd;
  region->addr = addr;
  region->length = length;
  region->lkey = region->rkey = next_key_++;
  region->access = access;
  regions_[region->rkey] = region;
  ++objects_;
  return region;
}
int FakeVerbs::dereg_mr(ibv_mr* mr) const {
  regions_.erase(mr->rkey);
  --objects_;
  delete static_cast<Region*>(mr);
  return 0;
}

ibv_comp_channel* FakeVerbs::create_comp_channel(ibv_context* context) const {
  auto* channel = new ibv_comp_channel{};
  channel->context = context;
  channel->fd = ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  ++objects_;
  return channel;
}
int FakeVerbs::destroy_comp_channel(ibv_comp_channel* channel) const {
  if (channel->refcnt != 0) violation("a channel closed before its queue");
  ::close(channel->fd);
  --objects_;
  delete channel;
  return 0;
}
int FakeVerbs::get_cq_event(ibv_comp_channel* channel, ibv_cq**, void**) const {
  std::uint64_t one = 0;
  return ::read(channel->fd, &one, sizeof one) == sizeof one ? 0 : -1;
}
void FakeVerbs::ack_cq_events(ibv_cq* cq, unsigned count) const {
  static_cast<Queue*>(cq)->acknowledged += count;
}

ibv_cq* FakeVerbs::create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) const {
  auto* queue = new Queue{};
  queue->context = context;
  queue->channel = channel;
  queue->entries_max = static_cast<std::size_t>(entries);
  if (channel != nullptr) ++channel->refcnt;
  ++objects_;
  return queue;
}
int FakeVerbs::destroy_cq(ibv_cq* cq) const {
  auto* queue = static_cast<Queue*>(cq);
  if (queue->acknowledged != queue->events)
    violation("events not acknowledged: the library would wait for ever");
  if (queue->overrun) violation("a completion queue overran");
  if (queue->channel != nullptr) --queue->channel->refcnt;
  --objects_;
  delete queue;
  return 0;
}
int FakeVerbs::poll(ibv_cq* cq, int count, ibv_wc* out) {
  auto& queue = *static_cast<Queue*>(cq);
  int taken = 0;
  for (; taken < count && !queue.entries.empty(); ++taken) {
    out[taken] = queue.entries.front();
    queue.entries.pop_front();
  }
  return taken;
}
int FakeVerbs::arm(ibv_cq* cq, int) {
  static_cast<Queue*>(cq)->armed = true;
  return 0;
}

ibv_srq* FakeVerbs::create_srq(ibv_pd* pd, ibv_srq_init_attr*) const {
  auto* srq = new ibv_srq{};
  srq->pd = pd;
  ++objects_;
  return srq;
}
int FakeVerbs::destroy_srq(ibv_srq* srq) const {
  --objects_;
  delete srq;
  return 0;
}

ibv_qp* FakeVerbs::create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                             mlx5dv_qp_init_attr* mlx5_attr) const {
  const bool initiator = mlx5_attr->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCI;
  const bool complete = attr->qp_type == IBV_QPT_DRIVER && attr->pd != nullptr &&
                        (mlx5_attr->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC) != 0 &&
                        (attr->comp_mask & IBV_QP_INIT_ATTR_PD) != 0 &&
                        (initiator || attr->srq != nullptr);
  if (!knows_dc || refuse_creation || !complete) {
    errno = knows_dc ? EINVAL : EOPNOTSUPP;
    return nullptr;
  }
  auto* pair = new QueuePair{};
  pair->owner = this;
  pair->initiator = initiator;
  pair->dc_key = initiator ? 0 : mlx5_attr->dc_init_attr.dct_access_key;
  pair->posted_max = attr->cap.max_send_wr;
  pair->queue = static_cast<Queue*>(attr->send_cq);
  pair->qp_base.context = context;
  pair->qp_base.state = IBV_QPS_RESET;
  pair->dc.pair = pair;
  fill_posting(*pair);
  ++objects_;
  ++queues_made_;
  return &pair->qp_base;
}

// The driver's rules for DC: what each step needs, and what it allows besides.
bool FakeVerbs::allowed(const QueuePair& pair, ibv_qp_state to, int mask) const {
  const ibv_qp_state from = pair.qp_base.state;
  int needed = IBV_QP_STATE;
  int optional = 0;
  if (pair.initiator && to == IBV_QPS_RESET) {
  } else if (pair.initiator && to == IBV_QPS_ERR && from != IBV_QPS_RESET) {
  } else if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) {
    needed |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (!pair.initiator) needed |= IBV_QP_ACCESS_FLAGS;
  } else if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) {
    needed |= IBV_QP_PATH_MTU;
    if (pair.initiator) optional = IBV_QP_PKEY_INDEX | IBV_QP_AV;
    if (!pair.initiator) needed |= IBV_QP_MIN_RNR_TIMER | IBV_QP_AV;
  } else if (pair.initiator && from == IBV_QPS_RTR && to == IBV_QPS_RTS) {
    needed |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
              IBV_QP_SQ_PSN;
    optional = IBV_QP_MIN_RNR_TIMER;
  } else {
    return false;
  }
  return (mask & needed) == needed && (mask & ~(needed | optional)) == 0;
}

int FakeVerbs::modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) const {
  QueuePair& pair = of(qp);
  const ibv_qp_state to = attr->qp_state;
  if (!allowed(pair, to, mask)) {
    violation("state change " + std::to_string(qp->state) + " to " + std::to_string(to) +
              " with mask " + std::to_string(mask));
    return EINVAL;
  }
  if (to == IBV_QPS_ERR && refuse_error_state) return EIO;
  if (to == IBV_QPS_RESET && refuse_reset) return EIO;
  if (to == IBV_QPS_RESET && !pair.out.empty()) violation("reset with operations out");
  qp->state = to;
  if (to == IBV_QPS_ERR) execute(pair);  // flushes
  if (!pair.initiator && to == IBV_QPS_RTR) {
    qp->qp_num = next_number_++;
    pairs_[qp->qp_num] = &pair;
  }
  return 0;
}

int FakeVerbs::destroy_qp(ibv_qp* qp) const {
  QueuePair& pair = of(qp);
  pairs_.erase(qp->qp_num);
  --objects_;
  delete &pair;
  return 0;
}

ibv_qp_ex* FakeVerbs::qp_ex(ibv_qp* qp) const { return &of(qp); }
mlx5dv_qp_ex* FakeVerbs::mlx5_qp_ex(ibv_qp_ex* qp) const { return &of(qp).dc; }

void FakeVerbs::fill_posting(QueuePair& pair) const {
  pair.wr_start = [](ibv_qp_ex* qp) { of(qp).building = {}; };
  pair.wr_rdma_write = [](ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote) {
    Request& r = of(qp).building;
    r = Request{qp->wr_id, true,   (qp->wr_flags & IBV_SEND_SIGNALED) != 0, rkey, remote, {}, 0,
                0,         nullptr};
  };
  pair.wr_rdma_read = [](ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote) {
    Request& r = of(qp).building;
    r = Request{qp->wr_id, false,  (qp->wr_flags & IBV_SEND_SIGNALED) != 0, rkey, remote, {}, 0,
                0,         nullptr};
  };
  pair.wr_set_sge = [](ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t addr,
                       std::uint32_t length) {
    of(qp).building.local = ibv_sge{addr, length, lkey};
  };
  pair.dc.wr_set_dc_addr = [](mlx5dv_qp_ex* dc, ibv_ah* route, std::uint32_t dctn,
                              std::uint64_t key) {
    Request& r = static_cast<Dc*>(dc)->pair->building;
    r.route = route;
    r.dctn = dctn;
    r.dc_key = key;
  };
  pair.wr_complete = [](ibv_qp_ex* qp) {
    QueuePair& made = of(qp);
    const FakeVerbs& owner = *made.owner;
    if (owner.without_room_seen_ < owner.posts_without_room) {
      ++owner.without_room_seen_;
      return ENOMEM;
    }
    if (made.out.size() >= made.posted_max) return ENOMEM;
    if (qp->qp_base.state != IBV_QPS_RTS) owner.violation("posted to a queue that is not ready");
    made.out.push_back(made.building);
    if (!owner.hold) owner.execute(made);
    return 0;
  };
  if (pair.initiator) pairs_[0x80000000U + static_cast<std::uint32_t>(queues_made_)] = &pair;
  pair.qp_base.qp_num = pair.initiator ? 0x80000000U + static_cast<std::uint32_t>(queues_made_) : 0;
}

void FakeVerbs::run() {
  const std::vector<std::pair<std::uint32_t, QueuePair*>> all(pairs_.begin(), pairs_.end());
  for (const auto& [number, pair] : all) {
    if (pair->initiator) execute(*pair);
  }
}

void FakeVerbs::execute(QueuePair& pair) const {
  while (!pair.out.empty()) {
    const Request request = pair.out.front();
    pair.out.pop_front();
    const ibv_wc_status status =
        pair.qp_base.state == IBV_QPS_RTS ? perform(pair, request) : IBV_WC_WR_FLUSH_ERR;
    if (status != IBV_WC_SUCCESS) pair.qp_base.state = IBV_QPS_ERR;
    report(pair, request, status);
  }
}

ibv_wc_status FakeVerbs::perform(const QueuePair&, const Request& request) const {
  const auto local = regions_.find(request.local.lkey);
  if (local == regions_.end()) return IBV_WC_LOC_PROT_ERR;
  const auto inside = [](const Region& region, std::uint64_t addr, std::uint32_t length) {
    const auto base = reinterpret_cast<std::uintptr_t>(region.addr);
    return addr >= base && fits(Offset(addr - base), Length(length), Length(region.length));
  };
  const Region& source = *local->second;
  if (!inside(source, request.local.addr, request.local.length)) return IBV_WC_LOC_PROT_ERR;
  if (!request.write && (source.access & IBV_ACCESS_LOCAL_WRITE) == 0) return IBV_WC_LOC_PROT_ERR;
  const auto target = pairs_.find(request.dctn);
  if (request.route == nullptr || target == pairs_.end() || target->second->initiator ||
      target->second->dc_key != request.dc_key) {
    return IBV_WC_RETRY_EXC_ERR;
  }
  const auto remote = regions_.find(request.rkey);
  const int right = request.write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
  if (remote == regions_.end() || (remote->second->access & right) == 0 ||
      !inside(*remote->second, request.remote, request.local.length)) {
    return IBV_WC_REM_ACCESS_ERR;
  }
  auto* const there = reinterpret_cast<std::byte*>(request.remote);
  auto* const here = reinterpret_cast<std::byte*>(request.local.addr);
  std::memcpy(request.write ? there : here, request.write ? here : there, request.local.length);
  return IBV_WC_SUCCESS;
}

void FakeVerbs::report(QueuePair& pair, const Request& request, ibv_wc_status status) {
  if (status == IBV_WC_SUCCESS && !request.signalled) return;
  ibv_wc entry{};
  entry.wr_id = request.id;
  entry.status = status;
  Queue& queue = *pair.queue;
  if (queue.entries.size() >= queue.entries_max) queue.overrun = true;
  queue.entries.push_back(entry);
  if (!std::exchange(queue.armed, false) || queue.channel == nullptr) return;
  ++queue.events;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto raised = ::write(queue.channel->fd, &one, sizeof one);
}

ibv_ah* FakeVerbs::create_ah(ibv_pd* pd, ibv_ah_attr* attr) const {
  if (routes_fail_seen_ < routes_fail) {
    ++routes_fail_seen_;
    errno = ETIMEDOUT;
    return nullptr;
  }
  routes_.push_back(*attr);
  ++objects_;
  auto* route = new ibv_ah{};
  route->pd = pd;
  return route;
}
int FakeVerbs::destroy_ah(ibv_ah* ah) const {
  --objects_;
  delete ah;
  return 0;
}

}  // namespace farlift::fabric::dc
