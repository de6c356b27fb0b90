#include "core/tradeoffs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace memonger {

namespace {

// Prices of a kept byte, in units of the segment's forward time per byte; rising.
const double kPrices[] = {0.15, 0.5, 1.5, 5, 16};
// What a byte above the cap costs, in the same units.
const double kPenalty = 128;
// How far between the smallest and the largest peak seen the caps lie, as shares of the range.
const double kCaps[] = {0.5, 0.15, 0};
// Times that all decisions of a segment are tried, at most.
const int kPasses = 4;
// How far apart two decisions that are changed together are, at most.
const int kReach = 2;
// Plans that differ by less than this share of forward's time count as equal.
const double kSameTime = 0.0005;
// The same for the share of forward's bytes.
const double kSameBytes = 0.001;
// Plans of a segment that are remembered, at most.
const size_t kMostPlans = 400;
// Bytes above any peak: no cap.
const int64_t kNoCap = std::numeric_limits<int64_t>::max() / 4;

}  // namespace

TradeoffSearch::TradeoffSearch(Simulator* simulator, int middle, uint64_t seed)
    : simulator_(simulator),
      middle_(middle),
      random_(seed),
      num_gaps_(static_cast<int>(simulator->gaps().size())) {
  const Problem& problem = simulator->problem();
  const Implementation& rest = problem.ops[middle].implementations[0];
  for (int tensor : rest.outputs) gradient_ += problem.tensor_bytes[tensor];
  beside_ = gradient_;
  for (int tensor : rest.reads) beside_ += problem.tensor_bytes[tensor];
  for (int v = 0; v < static_cast<int>(problem.variants.size()); ++v) {
    decisions_.push_back(num_gaps_ + v);
  }
  for (int gap = 0; gap < num_gaps_; ++gap) {
    const Gap& g = simulator->gaps()[gap];
    // What the rest reads is there when it runs, and values behind their last use in backward are
    // of no use.
    if (g.end == middle || (g.trailing && g.begin >= middle)) continue;
    decisions_.push_back(gap);
  }
}

int TradeoffSearch::Get(int decision) const {
  if (decision < num_gaps_) return simulator_->choice(decision);
  return simulator_->variant_on(decision - num_gaps_) ? 1 : 0;
}

void TradeoffSearch::Set(int decision, int value) {
  const int before = Get(decision);
  if (before == value) return;
  undo_.emplace_back(decision, before);
  if (decision < num_gaps_) {
    simulator_->set_choice(decision, static_cast<Choice>(value));
    return;
  }
  const int variant = decision - num_gaps_;
  if (value) {
    for (int other : simulator_->problem().variants[variant].conflicts) Set(num_gaps_ + other, 0);
  }
  simulator_->set_variant(variant, value != 0);
}

void TradeoffSearch::Undo() {
  std::vector<std::pair<int, int>> steps;
  steps.swap(undo_);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) Set(step->first, step->second);
  undo_.clear();
}

// Whether the decision is about a value that backward needs and forward makes.
bool TradeoffSearch::Crosses(int decision) const {
  if (decision >= num_gaps_) return false;
  const Gap& gap = simulator_->gaps()[decision];
  return gap.begin < middle_ && gap.end > middle_;
}

bool TradeoffSearch::Allowed(int decision, int value, const Price& price) const {
  if (decision >= num_gaps_) return value < 2;
  if (value != kKeep || !Crosses(decision)) return true;
  return !price.nothing_kept && simulator_->problem().pins[simulator_->gaps()[decision].op] != 2;
}

double TradeoffSearch::Evaluate(const Price& price) {
  const Outcome outcome = simulator_->Evaluate();
  if (!outcome.valid) return std::numeric_limits<double>::infinity();
  simulator_->StagePeaks(&peaks_);
  Tradeoff found;
  found.extra = outcome.cost - base_;
  found.kept = std::max<int64_t>(0, peaks_[middle_] - beside_);
  found.forward_peak = found.backward_peak = 0;
  for (int stage = 0; stage < simulator_->num_ops(); ++stage) {
    int64_t& peak = stage < middle_ ? found.forward_peak : found.backward_peak;
    if (stage != middle_) peak = std::max(peak, peaks_[stage]);
  }
  found.nothing_kept = price.nothing_kept;
  Offer(found, price.nothing_kept ? &nothing_kept_ : &some_kept_);
  const int64_t peak = price.nothing_kept
                           ? found.backward_peak
                           : std::max(found.backward_peak, found.forward_peak + gradient_);
  return found.extra + price.per_kept_byte * static_cast<double>(found.kept) +
         kPenalty * scale_ * static_cast<double>(std::max<int64_t>(0, peak - price.most_peak));
}

// Keeps a plan that no other one beats in time, kept bytes and peaks, and drops those that it
// beats.
void TradeoffSearch::Offer(const Tradeoff& found, std::vector<Tradeoff>* archive) const {
  const double time = kSameTime * forward_;
  const int64_t bytes = static_cast<int64_t>(kSameBytes * forward_ / scale_);
  const auto beats = [&](const Tradeoff& a, const Tradeoff& b, double more, int64_t most) {
    return a.extra <= b.extra + more && a.kept <= b.kept + most &&
           a.forward_peak <= b.forward_peak + most && a.backward_peak <= b.backward_peak + most;
  };
  for (const Tradeoff& other : *archive) {
    if (beats(other, found, time, bytes)) return;
  }
  archive->erase(std::remove_if(archive->begin(), archive->end(),
                                [&](const Tradeoff& other) { return beats(found, other, 0, 0); }),
                 archive->end());
  if (archive->size() >= kMostPlans) return;
  archive->push_back(found);
  Tradeoff& kept = archive->back();
  for (int gap = 0; gap < num_gaps_; ++gap) kept.choices.push_back(simulator_->choice(gap));
  for (size_t v = 0; v < simulator_->problem().variants.size(); ++v) {
    kept.variants.push_back(simulator_->variant_on(static_cast<int>(v)));
  }
}

// Evaluates what was set, and takes it back unless it is better.
bool TradeoffSearch::Try(const Price& price) {
  const double next = Evaluate(price);
  const double least = std::isfinite(value_) ? 1e-9 * std::abs(value_) : 0;
  if (next < value_ - least) {
    value_ = next;
    undo_.clear();
    return true;
  }
  Undo();
  return false;
}

void TradeoffSearch::Descend(const Price& price) {
  undo_.clear();
  for (int decision : decisions_) {
    if (!Allowed(decision, Get(decision), price)) Set(decision, kDropThenRetain);
  }
  undo_.clear();
  value_ = Evaluate(price);
  bool better = true;
  for (int pass = 0; pass < kPasses && better && !Over(); ++pass) {
    better = false;
    std::vector<int> order = decisions_;
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[random_.Below(static_cast<int>(i))]);
    }
    for (int decision : order) {
      for (int value = 0; value < 3 && !Over(); ++value) {
        if (value == Get(decision) || !Allowed(decision, value, price)) continue;
        Set(decision, value);
        better |= Try(price);
      }
    }
    // Two that are decided differently change places.
    const int count = static_cast<int>(decisions_.size());
    for (int i = 0; i < count; ++i) {
      for (int j = i + 1; j <= i + kReach && j < count && !Over(); ++j) {
        const int one = decisions_[i], other = decisions_[j], here = Get(one), there = Get(other);
        if (here == there || !Allowed(one, there, price) || !Allowed(other, here, price)) continue;
        Set(one, there);
        Set(other, here);
        better |= Try(price);
      }
    }
  }
}

// From what keeps much to what keeps little, and back from what keeps nothing at all.
void TradeoffSearch::Sweep(int64_t most_peak) {
  for (double price : kPrices) Descend({price * scale_, most_peak, false});
  Descend({0, most_peak, true});
  for (int decision : decisions_) {
    if (decision < num_gaps_) Set(decision, kDropTransient);
  }
  if (!simulator_->Evaluate().valid) Undo();
  Descend({0, most_peak, true});
  for (int i = static_cast<int>(sizeof(kPrices) / sizeof(*kPrices)) - 1; i >= 0; --i) {
    Descend({kPrices[i] * scale_, most_peak, false});
  }
}

std::vector<Tradeoff> TradeoffSearch::Run(int64_t work_limit) {
  const Problem& problem = simulator_->problem();
  base_ = simulator_->Evaluate().cost;
  int64_t bytes = 1;
  for (int op = 0; op < middle_; ++op) {
    forward_ += problem.ops[op].implementations[0].time;
    for (int tensor : problem.ops[op].implementations[0].outputs) {
      bytes += problem.tensor_bytes[tensor];
    }
  }
  scale_ = std::max(forward_, 1e-300) / static_cast<double>(bytes);
  work_end_ = simulator_->work() + work_limit;
  Sweep(kNoCap);
  int64_t least = kNoCap, most = 0;
  for (const std::vector<Tradeoff>* archive : {&some_kept_, &nothing_kept_}) {
    for (const Tradeoff& one : *archive) {
      least = std::min(least, one.backward_peak);
      most = std::max(most, one.backward_peak);
    }
  }
  for (double cap : kCaps) {
    Sweep(least + static_cast<int64_t>(cap * static_cast<double>(most - least)));
  }
  some_kept_.insert(some_kept_.end(), nothing_kept_.begin(), nothing_kept_.end());
  return some_kept_;
}

}  // namespace memonger
