// What a storage assignment takes for a schedule: the bridge from Trace to storage.h.
#ifndef MEMONGER_CORE_POOL_H_
#define MEMONGER_CORE_POOL_H_

#include <cstdint>
#include <vector>

#include "core/memory/storage.h"
#include "core/problem.h"
#include "core/simulator.h"

namespace memonger {

class PoolMeter {
 public:
  PoolMeter(const Problem& problem, storage::Kind kind);
  storage::Kind kind() const { return kind_; }
  // Bytes of the pool as memonger/memory/storage.py counts them; or more, but no more than
  // `wanted`, where that saves time.
  int64_t Exact(const Trace& trace, int64_t wanted = 0);

 private:
  void Fill(const Trace& trace);
  void LeaveOutUnreadViews();

  const Problem& problem_;
  storage::Kind kind_;
  storage::Model model_;
  storage::Program program_;
  std::vector<char> is_view_;  // per entry
  storage::Blocks blocks_;
  storage::Assignment assignment_;
  storage::Packer packer_;
};

}  // namespace memonger

#endif  // MEMONGER_CORE_POOL_H_
