#include "core/search/effort.h"

#include <utility>

namespace memonger {

namespace {

// Share of the time limit in which the clock decides nothing.
const double kFreeOfClock = 0.2;
// Simulated steps between two looks at the clock: every millisecond or so.
const int64_t kPollEvery = 100000;

}  // namespace

Effort::Effort(const Simulator* simulator, int64_t work_limit, double time_limit_s,
               std::function<bool()> interrupted)
    : simulator_(simulator),
      work_limit_(work_limit),
      time_limit_s_(time_limit_s),
      interrupted_(std::move(interrupted)),
      start_(std::chrono::steady_clock::now()) {}

bool Effort::Stopped() {
  if (stop_ != StopReason::kFinished || paused_) return true;
  if (simulator_->work() < next_poll_) return false;
  next_poll_ = simulator_->work() + kPollEvery;
  const double elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (interrupted_()) {
    stop_ = StopReason::kInterrupted;
  } else if (elapsed > time_limit_s_) {
    stop_ = StopReason::kTimeLimit;
  }
  // All phases are cut short alike, rather than the last ones left out.
  const double late = (elapsed / time_limit_s_ - kFreeOfClock) / (1 - kFreeOfClock);
  const double due = std::min(late, 1.0) * static_cast<double>(work_limit_);
  if (late > 0 && static_cast<double>(begin_) + due > static_cast<double>(simulator_->work())) {
    due_by_clock_ = std::max(due_by_clock_, begin_ + static_cast<int64_t>(due));
    hurried_ = true;
  }
  paused_ = elapsed > pause_at_s_;
  return stop_ != StopReason::kFinished || paused_;
}

}  // namespace memonger
