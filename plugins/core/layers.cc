#include "core/layers.h"

#include <algorithm>
#include <cmath>

namespace memonger {

LayerMeter::LayerMeter(const Problem& problem) : two_pools_(problem.two_pools) {
  std::vector<int64_t> sizes;
  for (int64_t bytes : problem.tensor_bytes) {
    if (bytes > 0) sizes.push_back(bytes);
  }
  std::sort(sizes.rbegin(), sizes.rend());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  // With a pool for forward and one for backward, each has half of the lanes.
  const size_t most = two_pools_ ? kLayers / 2 : kLayers;
  // Merge the two neighbours that are closest; a class is as large as its largest block. The
  // smallest are not worth a class of their own.
  const int64_t largest = sizes.empty() ? 0 : sizes.front();
  while (sizes.size() > most) {
    size_t closest = 1;
    double least = INFINITY;
    for (size_t i = 1; i < sizes.size(); ++i) {
      const double lost = static_cast<double>(sizes[i - 1] - sizes[i]) /
                          (static_cast<double>(sizes[i]) + 1e-3 * static_cast<double>(largest));
      if (lost < least) {
        least = lost;
        closest = i;
      }
    }
    sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(closest));
  }
  num_layers_ = static_cast<int>(sizes.size());
  for (int64_t bytes : problem.tensor_bytes) {
    // The last class that is at least as large.
    int layer = -1;
    while (bytes > 0 && layer + 1 < num_layers_ && sizes[layer + 1] >= bytes) ++layer;
    layer_of_tensor_.push_back(layer);
  }
  for (int i = 0; i < num_layers_; ++i) {
    const int64_t below = i + 1 < num_layers_ ? sizes[i + 1] : 0;
    thickness_.push_back(static_cast<double>(sizes[i] - below));
  }
  for (int i = 0; i < kLayers; ++i) {
    for (int lane = 0; lane < kLayers; ++lane) {
      const bool same_pool = !two_pools_ || (lane < kLayers / 2) == (i < kLayers / 2);
      from_[i][lane] = lane >= i && same_pool;
    }
  }
}

const LayerMeter::Estimate& LayerMeter::Measure(Simulator* simulator) {
  const int steps = simulator->num_steps();
  const Lanes zero = {};
  change_.assign(steps + 2, Row{zero});
  simulator->ListValues(&values_);
  for (const Simulator::Value& value : values_) {
    if (value.bytes == 0) continue;
    int layer = layer_of_tensor_[value.tensor];
    if (two_pools_ && value.in_second_pool) layer += kLayers / 2;
    change_[value.step].lanes += from_[layer];
    change_[value.last + 1].lanes -= from_[layer];
  }
  Lanes live = zero, most = zero, count = zero;
  for (int step = 0; step < steps; ++step) {
    live += change_[step].lanes;
    change_[step].lanes = live;
    most = live > most ? live : most;
  }
  // Steps at the highest count; no lane counts beyond what it can hold.
  const Lanes ceiling = zero + static_cast<int16_t>(32000);
  for (int step = 0; step < steps; ++step) {
    count -= (change_[step].lanes == most) & (count < ceiling);  // a comparison gives -1 where true
  }
  most_ = most;
  num_steps_ = steps;
  estimate_ = Estimate();
  const double scale = 1.0 / std::max(1, steps);
  for (int lane = 0; lane < kLayers; ++lane) {
    if (!Used(lane)) continue;
    const double bytes = thickness_[two_pools_ ? lane % (kLayers / 2) : lane];
    estimate_.bytes += bytes * most[lane];
    estimate_.crowding += bytes * std::sqrt(count[lane] * scale);
  }
  return estimate_;
}

bool LayerMeter::Used(int lane) const {
  return (two_pools_ ? lane % (kLayers / 2) : lane) < num_layers_ && most_[lane] > 0;
}

int LayerMeter::CrowdedStep(Random* random) const {
  std::vector<int> used;
  for (int lane = 0; lane < kLayers; ++lane) {
    if (Used(lane)) used.push_back(lane);
  }
  if (used.empty()) return 0;
  const int lane = used[random->Below(static_cast<int>(used.size()))];
  const int from = random->Below(num_steps_);
  for (int i = 0; i < num_steps_; ++i) {
    const int step = (from + i) % num_steps_;
    if (change_[step].lanes[lane] == most_[lane]) return step;
  }
  return 0;
}

}  // namespace memonger
