// What a segment of a network can trade: time for bytes that it keeps from forward to backward,
// and for bytes that it needs while it runs.
#ifndef MEMONGER_CORE_TRADEOFFS_H_
#define MEMONGER_CORE_TRADEOFFS_H_

#include <cstdint>
#include <vector>

#include "core/random.h"
#include "core/simulator.h"

namespace memonger {

// Decisions on the values of a segment, and what they take.
struct Tradeoff {
  double extra;  // time beyond that of the segment as it is
  int64_t
      kept;  // bytes alive while the rest of the network runs, besides what that reads and makes
  int64_t forward_peak, backward_peak;
  bool nothing_kept;
  std::vector<char> choices;  // of each gap
  std::vector<char> variants;
};

// Descents by single decisions and exchanges of two on `extra + price * kept`, for rising and
// falling prices, with the peak capped lower and lower: the Lagrangian of the segment's own
// planning problem. All plans seen on the way that no other one beats are the answer. The problem
// is a segment with one op between its forward and its backward ops that stands for the rest.
class TradeoffSearch {
 public:
  TradeoffSearch(Simulator* simulator, int middle, uint64_t seed);

  std::vector<Tradeoff> Run(int64_t work_limit);

 private:
  struct Price {
    double per_kept_byte;
    int64_t most_peak;
    bool nothing_kept;
  };
  int Get(int decision) const;
  void Set(int decision, int value);
  void Undo();
  bool Crosses(int decision) const;
  bool Allowed(int decision, int value, const Price& price) const;
  double Evaluate(const Price& price);
  bool Try(const Price& price);
  void Descend(const Price& price);
  void Sweep(int64_t most_peak);
  void Offer(const Tradeoff& found, std::vector<Tradeoff>* archive) const;
  bool Over() const { return simulator_->work() >= work_end_; }

  Simulator* simulator_;
  const int middle_;
  Random random_;
  int num_gaps_;
  std::vector<int> decisions_;  // in order of ops
  std::vector<std::pair<int, int>> undo_;
  int64_t beside_ = 0;    // bytes that the middle op reads and makes
  int64_t gradient_ = 0;  // those that it makes
  double base_ = 0;       // time of the segment as it is
  double forward_ = 0;    // time of its forward ops
  double scale_ = 0;      // that for each byte that they make
  double value_ = 0;      // of the current decisions
  std::vector<int64_t> peaks_;
  std::vector<Tradeoff> some_kept_, nothing_kept_;
  int64_t work_end_ = 0;
};

}  // namespace memonger

#endif  // MEMONGER_CORE_TRADEOFFS_H_
