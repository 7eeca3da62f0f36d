#include "blob/module/vigil.h"

#include "blob/module/api.h"

#include <sys/eventfd.h>
#include <utility>

namespace farlift::blob {

void Vigil::open() { event_ = UniqueFd(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)); }

void Vigil::close() {
  leave();
  event_.reset();
}

void Vigil::begin(Duration extra) {
  if (!event_) return;
  const Duration budget = spin_.budget();
  if (budget.count() == 0) return leave();
  until_ = std::chrono::steady_clock::now() + budget + extra;
  waiting_ = true;
  if (in_loop_) return;
  in_loop_ =
      vk::EventLoopAdd(event_.get(), vk::kEventLoopReadable, &Vigil::on_turn, this) == vk::kOk;
}

void Vigil::end(bool came) {
  if (std::exchange(waiting_, false)) spin_.count(came);
}

void Vigil::leave() {
  waiting_ = false;
  if (std::exchange(in_loop_, false)) vk::EventLoopDel(event_.get(), vk::kEventLoopReadable);
}

void Vigil::on_turn(int, void* self, int) noexcept {
  auto* vigil = static_cast<Vigil*>(self);
  if (vigil->waiting_ && std::chrono::steady_clock::now() < vigil->until_)
    return AdaptiveSpin::breathe();
  vigil->end(false);
  vigil->leave();
}

}  // namespace farlift::blob
