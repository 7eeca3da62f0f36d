#include "core/fabric/dc/target.h"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace farlift::fabric::dc {

Result<std::unique_ptr<DcTarget>> DcTarget::make(const Card& card) {
  auto target = std::unique_ptr<DcTarget>(new DcTarget(card));
  TRY(target->open());
  TRY(target->start());
  return target;
}

Status DcTarget::open() {
  closing_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!closing_) return Error::from_errno("eventfd");
  const Verbs& verbs = card_.verbs();
  queue_ = card_.own<ibv_cq, &Verbs::destroy_cq>(verbs.create_cq(card_.context(), 1, nullptr));
  if (queue_ == nullptr) return Error::from_errno("ibv_create_cq");
  ibv_srq_init_attr receives{};
  receives.attr.max_wr = 1;
  receives.attr.max_sge = 1;
  receives_ = card_.own<ibv_srq, &Verbs::destroy_srq>(verbs.create_srq(card_.pd(), &receives));
  if (receives_ == nullptr) return Error::from_errno("ibv_create_srq");

  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_DRIVER;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = card_.pd();
  attr.send_cq = queue_.get();
  attr.recv_cq = queue_.get();
  attr.srq = receives_.get();
  mlx5dv_qp_init_attr mlx5{};
  mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  mlx5.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
  mlx5.dc_init_attr.dct_access_key = card_.options().dc_key;
  const MutexLock lock(mutex_);
  target_ = verbs.create_qp(card_.context(), &attr, &mlx5);
  if (target_ == nullptr) return Error::from_errno("create a DC target");
  return ok_status();
}

// The card gives the number when the target becomes ready to receive, not when it is made.
Status DcTarget::start() {
  const MutexLock lock(mutex_);
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = card_.options().port;
  init.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  int rc = card_.verbs().modify_qp(
      target_, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (rc != 0) return Error::from_errno("DC target to INIT", rc);
  ibv_qp_attr ready{};
  ready.qp_state = IBV_QPS_RTR;
  ready.path_mtu = card_.port().active_mtu;
  ready.min_rnr_timer = 12;  // 0.64 ms; nothing here is ever received into a posted buffer
  ready.ah_attr = card_.route(DcAddress{});
  rc = card_.verbs().modify_qp(target_, &ready,
                               IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV);
  if (rc != 0) return Error::from_errno("DC target to RTR", rc);
  TRY_ASSIGN(address_, card_.address(target_->qp_num).to_address());
  return ok_status();
}

Result<bool> DcTarget::progress(int timeout_ms, int fd) {
  pollfd fds[2] = {{fd, POLLIN, 0}, {closing_.get(), POLLIN, 0}};  // poll(2) passes over fd -1
  const int ready = ::poll(fds, 2, timeout_ms);
  if (ready < 0 && errno != EINTR) return Error::from_errno("wait for a DC target");
  if (ready > 0 && fds[1].revents != 0) return Error::make(Errc::closed, "target endpoint");
  return ready > 0 && fds[0].revents != 0;
}

Status DcTarget::add_peer(const Address& peer) {
  TRY(DcAddress::from_address(peer));
  return ok_status();
}

Status DcTarget::close() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto raised = ::write(closing_.get(), &one, sizeof one);
  const MutexLock lock(mutex_);
  if (target_ == nullptr) return ok_status();
  const int rc = card_.verbs().destroy_qp(target_);
  check_destroyed(rc, "DC target");
  if (rc != 0) return Error::not_quiet(Errc::io, "destroy a DC target", rc);
  target_ = nullptr;
  return ok_status();
}

}  // namespace farlift::fabric::dc
