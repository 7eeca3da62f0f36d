// QueuePair: one DC initiator (DCI), its states and its posting.
//
// Invariants: every posted operation is signalled, so every one has an entry in the completion
// queue,
//             success or flushed. A stopped queue takes no operation until restart().
// Threads:    one. Errors: as the library said.
#pragma once

#include "core/fabric/dc/card.h"

namespace farlift::fabric::dc {

class QueuePair {
 public:
  enum class State : std::uint8_t {
    ready,
    stopped,  // the card flushes what was posted; then restart()
    broken,   // destroyed: what was posted is quiet and has no entry to come
  };
  struct Limits {
    std::uint32_t posted_max = 0;
    std::uint8_t timeout = 0;  // 4.096 us * 2^timeout, per try
  };

  static Result<QueuePair> make(const Card& card, ibv_cq* queue, const Limits& limits);

  State state() const noexcept { return state_; }
  // `again`: the card's queue is full. Otherwise the operation was not posted and never will be.
  Status post(const Operation& operation, std::uint32_t local_key, std::uint64_t id, ibv_ah* route,
              std::uint32_t dctn, std::uint32_t dc_key) noexcept;
  // The card stopped it (an entry with an error came).
  void note_stopped() noexcept { state_ = State::stopped; }
  // Has the card stop: what was posted comes back flushed, or done if that was first. Where the
  // card does not obey the queue is destroyed, which is the fence; not quiet when that failed as
  // well.
  Status stop();
  // After the last entry of a stopped queue came, or after it broke: ready again, made anew if need
  // be.
  Status restart();
  // Destroys it. After that no local buffer is touched.
  Status close();

 private:
  QueuePair(const Card& card, ibv_cq* queue, const Limits& limits)
      : card_(&card), queue_(queue), limits_(limits) {}
  Status create();
  Status make_ready();

  const Card* card_;
  ibv_cq* queue_;
  Limits limits_;
  State state_ = State::broken;
  UniqueQp qp_;
  ibv_qp_ex* post_ = nullptr;
  mlx5dv_qp_ex* post_dc_ = nullptr;
};

}  // namespace farlift::fabric::dc
