// How long a search goes on.
//
// Work is counted in simulated steps, not in seconds, so that a result depends on the problem,
// the seed and the work limit alone, unless the wall clock is behind: once a fifth of the time
// limit is over, the work due is at least that of a machine which needs all of the time.
#ifndef MEMONGER_CORE_SEARCH_EFFORT_H_
#define MEMONGER_CORE_SEARCH_EFFORT_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>

#include "core/search/options.h"
#include "core/simulator.h"

namespace memonger {

class Effort {
 public:
  // `interrupted` is asked about every millisecond.
  Effort(const Simulator* simulator, int64_t work_limit, double time_limit_s,
         std::function<bool()> interrupted);

  // From here on work counts against the limit.
  void Begin() { begin_ = simulator_->work(); }
  // The clock, the caller, or the end of a phase's share of the time says stop.
  bool Stopped();
  // Work so far, or what would be due by the clock on a machine too slow for the work limit.
  int64_t Spent() const { return std::max(simulator_->work(), due_by_clock_); }
  bool OutOf(int64_t work_end) { return Stopped() || Spent() >= work_end; }
  // Stops a phase at a share of the time limit; the next phase resumes.
  void PauseAt(double share) { pause_at_s_ = share * time_limit_s_; }
  void Resume() { paused_ = false; }
  StopReason reason() const {
    return stop_ == StopReason::kFinished && hurried_ ? StopReason::kTimeLimit : stop_;
  }

 private:
  const Simulator* simulator_;
  const int64_t work_limit_;
  const double time_limit_s_;
  std::function<bool()> interrupted_;
  const std::chrono::steady_clock::time_point start_;
  StopReason stop_ = StopReason::kFinished;
  bool paused_ = false;
  double pause_at_s_ = std::numeric_limits<double>::infinity();
  bool hurried_ = false;  // the clock, not the work, decided when a search ended
  int64_t next_poll_ = 0;
  int64_t begin_ = 0, due_by_clock_ = 0;
};

// A stretch of work, and where shares of it end.
class WorkShare {
 public:
  WorkShare(int64_t begin, int64_t end) : begin_(begin), end_(end) {}
  int64_t end() const { return end_; }
  int64_t work() const { return end_ - begin_; }
  int64_t Until(double share) const {
    return begin_ + static_cast<int64_t>(share * static_cast<double>(end_ - begin_));
  }

 private:
  int64_t begin_, end_;
};

}  // namespace memonger

#endif  // MEMONGER_CORE_SEARCH_EFFORT_H_
