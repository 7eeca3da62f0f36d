// FakeVerbs: a card and its libraries that exist only in this process, for tests. It moves bytes
// between registrations as DC queues would, refuses every state change that the kernel's mlx5
// driver refuses (attribute masks included), and counts what is open.
//
// Threads: one. Errors: EINVAL where the driver would say so.
#pragma once

#include "core/fabric/dc/dc.h"
#include "core/fabric/dc/verbs.h"

#include <deque>
#include <map>
#include <string>
#include <vector>

namespace farlift::fabric::dc {

class FakeVerbs final : public Verbs {
 public:
  struct Gid {
    std::array<std::uint8_t, 16> raw{};
    ibv_gid_type type = IBV_GID_TYPE_ROCE_V2;
  };
  // What the card is; set before it is opened.
  std::string name = "mlx5_0";
  bool mlx5 = true;
  bool knows_dc = true;
  bool infiniband = false;
  bool active = true;
  std::vector<Gid> gids;
  // What it does; may change at any time.
  bool hold = false;    // posted operations stay out until run()
  int routes_fail = 0;  // the next so many ibv_create_ah fail
  bool refuse_error_state = false;
  bool refuse_reset = false;
  bool refuse_creation = false;
  int posts_without_room = 0;  // the next so many posts find the card's queue full

  FakeVerbs();
  ~FakeVerbs() override;

  void run();  // executes what was held
  int open_objects() const { return objects_; }
  const std::vector<ibv_ah_attr>& routes() const { return routes_; }
  const std::vector<std::string>& violations() const { return violations_; }
  int queues_made() const { return queues_made_; }

  ibv_device** get_device_list(int* count) const override;
  void free_device_list(ibv_device** list) const override;
  bool is_mlx5(ibv_device* device) const override;
  ibv_context* open_device(ibv_device* device) const override;
  int close_device(ibv_context* context) const override;
  int query_device(ibv_context* context, ibv_device_attr* out) const override;
  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out) const override;
  int query_gid(ibv_context* context, std::uint32_t port, std::uint32_t index,
                ibv_gid_entry* out) const override;
  ibv_pd* alloc_pd(ibv_context* context) const override;
  int dealloc_pd(ibv_pd* pd) const override;
  ibv_mr* reg_mr(ibv_pd* pd, void* addr, std::size_t length, int access) const override;
  int dereg_mr(ibv_mr* mr) const override;
  ibv_comp_channel* create_comp_channel(ibv_context* context) const override;
  int destroy_comp_channel(ibv_comp_channel* channel) const override;
  int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** context) const override;
  void ack_cq_events(ibv_cq* cq, unsigned count) const override;
  ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) const override;
  int destroy_cq(ibv_cq* cq) const override;
  ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) const override;
  int destroy_srq(ibv_srq* srq) const override;
  ibv_qp* create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                    mlx5dv_qp_init_attr* mlx5_attr) const override;
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) const override;
  int destroy_qp(ibv_qp* qp) const override;
  ibv_qp_ex* qp_ex(ibv_qp* qp) const override;
  mlx5dv_qp_ex* mlx5_qp_ex(ibv_qp_ex* qp) const override;
  ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) const override;
  int destroy_ah(ibv_ah* ah) const override;

 private:
  struct Request {
    std::uint64_t id = 0;
    bool write = false;
    bool signalled = false;
    std::uint32_t rkey = 0;
    std::uint64_t remote = 0;
    ibv_sge local{};
    std::uint32_t dctn = 0;
    std::uint64_t dc_key = 0;
    const ibv_ah* route = nullptr;
  };
  struct Region : ibv_mr {
    int access = 0;
  };
  struct Queue;      // a completion queue
  struct QueuePair;  // a DCI or a DCT
  struct Dc : mlx5dv_qp_ex {
    QueuePair* pair = nullptr;
  };

  static int poll(ibv_cq* cq, int count, ibv_wc* out);
  static int arm(ibv_cq* cq, int solicited_only);
  static QueuePair& of(ibv_qp* qp);
  static QueuePair& of(ibv_qp_ex* qp);
  void fill_posting(QueuePair& pair) const;
  bool allowed(const QueuePair& pair, ibv_qp_state to, int mask) const;
  void execute(QueuePair& pair) const;
  ibv_wc_status perform(const QueuePair& pair, const Request& request) const;
  static void report(QueuePair& pair, const Request& request, ibv_wc_status status);
  void violation(std::string text) const { violations_.push_back(std::move(text)); }

  mutable ibv_device device_{};
  mutable int objects_ = 0;
  mutable int queues_made_ = 0;
  mutable int routes_fail_seen_ = 0;
  mutable int without_room_seen_ = 0;
  mutable std::uint32_t next_key_ = 0x1000;
  mutable std::uint32_t next_number_ = 0x7a03;
  mutable std::map<std::uint32_t, Region*> regions_;
  mutable std::map<std::uint32_t, QueuePair*> pairs_;
  mutable std::vector<ibv_ah_attr> routes_;
  mutable std::vector<std::string> violations_;
};

}  // namespace farlift::fabric::dc
