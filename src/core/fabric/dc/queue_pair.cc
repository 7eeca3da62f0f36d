#include "core/fabric/dc/queue_pair.h"

#include <cerrno>

namespace farlift::fabric::dc {
namespace {

constexpr std::uint8_t kRetries = 7;  // the most the transport knows
constexpr std::uint8_t kMinRnrTimer = 12;

}  // namespace

Result<QueuePair> QueuePair::make(const Card& card, ibv_cq* queue, const Limits& limits) {
  QueuePair pair(card, queue, limits);
  TRY(pair.create());
  TRY(pair.make_ready());
  return pair;
}

Status QueuePair::create() {
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_DRIVER;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = card_->pd();
  attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
  attr.send_cq = queue_;
  attr.recv_cq = queue_;
  attr.cap.max_send_wr = limits_.posted_max;
  attr.cap.max_send_sge = 1;
  mlx5dv_qp_init_attr mlx5{};
  mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  mlx5.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
  const Verbs& verbs = card_->verbs();
  qp_ = card_->own<ibv_qp, &Verbs::destroy_qp>(verbs.create_qp(card_->context(), &attr, &mlx5));
  if (qp_ == nullptr) return Error::from_errno("create a DC initiator");
  post_ = verbs.qp_ex(qp_.get());
  post_dc_ = post_ == nullptr ? nullptr : verbs.mlx5_qp_ex(post_);
  if (post_dc_ == nullptr) return Error::make(Errc::unsupported, "post to a DC initiator");
  return ok_status();
}

// RESET to INIT to RTR to RTS, with exactly the attributes the driver allows a DCI.
Status QueuePair::make_ready() {
  const Verbs& verbs = card_->verbs();
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = card_->options().port;
  int rc = verbs.modify_qp(qp_.get(), &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
  if (rc != 0) return Error::from_errno("DC initiator to INIT", rc);
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = card_->port().active_mtu;
  rc = verbs.modify_qp(qp_.get(), &receive, IBV_QP_STATE | IBV_QP_PATH_MTU);
  if (rc != 0) return Error::from_errno("DC initiator to RTR", rc);
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = limits_.timeout;
  send.retry_cnt = kRetries;
  send.rnr_retry = kRetries;
  send.min_rnr_timer = kMinRnrTimer;
  send.max_rd_atomic = card_->reads_in_flight_max();
  rc = verbs.modify_qp(qp_.get(), &send,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (rc != 0) return Error::from_errno("DC initiator to RTS", rc);
  state_ = State::ready;
  return ok_status();
}

Status QueuePair::post(const Operation& operation, std::uint32_t local_key, std::uint64_t id,
                       ibv_ah* route, std::uint32_t dctn, std::uint32_t dc_key) noexcept {
  ASSERT(state_ == State::ready);
  ibv_wr_start(post_);
  post_->wr_id = id;
  post_->wr_flags = IBV_SEND_SIGNALED;
  const auto rkey = static_cast<std::uint32_t>(operation.key.raw());
  if (operation.kind == OpKind::write) {
    ibv_wr_rdma_write(post_, rkey, operation.addr.raw());
  } else {
    ibv_wr_rdma_read(post_, rkey, operation.addr.raw());
  }
  ibv_wr_set_sge(post_, local_key, reinterpret_cast<std::uintptr_t>(operation.local.data()),
                 static_cast<std::uint32_t>(operation.local.size()));
  mlx5dv_wr_set_dc_addr(post_dc_, route, dctn, dc_key);
  const int rc = ibv_wr_complete(post_);
  if (rc == ENOMEM) return Error::make(Errc::again, "post to a DC initiator", rc);
  if (rc != 0) return Error::from_errno("post to a DC initiator", rc);
  return ok_status();
}

Status QueuePair::stop() {
  if (state_ != State::ready) return ok_status();
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  if (card_->verbs().modify_qp(qp_.get(), &error, IBV_QP_STATE) == 0) {
    state_ = State::stopped;
    return ok_status();
  }
  return close();
}

Status QueuePair::restart() {
  if (state_ == State::ready) return ok_status();
  if (state_ == State::stopped) {
    ibv_qp_attr reset{};
    reset.qp_state = IBV_QPS_RESET;
    if (card_->verbs().modify_qp(qp_.get(), &reset, IBV_QP_STATE) == 0 && make_ready().ok()) {
      return ok_status();
    }
    TRY(close());
  }
  TRY(create());
  return make_ready();
}

Status QueuePair::close() {
  state_ = State::broken;
  ibv_qp* const qp = qp_.release();
  if (qp == nullptr) return ok_status();
  const int rc = card_->verbs().destroy_qp(qp);
  check_destroyed(rc, "DC initiator");
  if (rc != 0) return Error::not_quiet(Errc::io, "destroy a DC initiator", rc);
  return ok_status();
}

}  // namespace farlift::fabric::dc
