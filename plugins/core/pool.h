// What a storage assignment takes for a schedule: the bridge from Trace to storage.h.
#ifndef MEMONGER_CORE_POOL_H_
#define MEMONGER_CORE_POOL_H_

#include <cstdint>

#include "core/memory/storage.h"
#include "core/problem.h"
#include "core/simulator.h"

namespace memonger {

enum class StorageKind { kLive = 0, kStock = 1, kBest = 2, kArena = 3 };

class PoolMeter {
 public:
  PoolMeter(const Problem& problem, StorageKind kind);
  StorageKind kind() const { return kind_; }
  // Bytes of the pool as memonger/memory/storage.py counts them; or more, but no more than
  // `wanted`, where that saves time.
  int64_t Exact(const Trace& trace, int64_t wanted = 0);

 private:
  void Fill(const Trace& trace);

  const Problem& problem_;
  StorageKind kind_;
  storage::Model model_;
  storage::Program program_;
  storage::Blocks blocks_;
  storage::Assignment assignment_;
  storage::Packer packer_;
};

}  // namespace memonger

#endif  // MEMONGER_CORE_POOL_H_
