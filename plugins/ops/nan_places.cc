#include "./nan_places.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace memonger {
namespace ops {
namespace {

struct Table {
  std::mutex mutex;
  std::unordered_map<const void*, std::shared_ptr<const NanPlaces>> of_mask;
  std::atomic<size_t> size{0};  // read without the lock
};

Table& TheTable() {
  static Table* table = new Table;  // never destroyed: operators may still run while others end
  return *table;
}

}  // namespace

void SetNanPlaces(const TBlob& mask, std::shared_ptr<const NanPlaces> places) {
  Table& table = TheTable();
  if (!places && table.size == 0) return;
  std::lock_guard<std::mutex> lock(table.mutex);
  if (places) {
    table.of_mask[mask.dptr_] = std::move(places);
  } else {
    table.of_mask.erase(mask.dptr_);
  }
  table.size = table.of_mask.size();
}

std::shared_ptr<const NanPlaces> GetNanPlaces(const TBlob& mask) {
  Table& table = TheTable();
  if (table.size == 0) return nullptr;
  std::lock_guard<std::mutex> lock(table.mutex);
  const auto found = table.of_mask.find(mask.dptr_);
  return found == table.of_mask.end() ? nullptr : found->second;
}

}  // namespace ops
}  // namespace memonger
