/*
 * The rows of the windows of a line: where they lie, and how their elements are numbered.
 */
#ifndef MEMONGER_OPS_WINDOW_ROWS_H_
#define MEMONGER_OPS_WINDOW_ROWS_H_

#include <vector>

#include "./windows.h"

namespace memonger {
namespace ops {

class WindowRows {
 public:
  struct Row {
    int64_t offset;  // from the beginning of a window
    int number;      // of its first element
  };

  explicit WindowRows(const Windows& windows) : windows_(windows) {}

  // Those of the line that are inside the map. Windows of most lines are alike.
  void Find(const Line& line) {
    bool same = true;
    for (int axis = 0; axis < 2; ++axis) {
      const int begin = line.begin[axis] - line.start[axis];
      const int end = line.end[axis] - line.start[axis];
      same = same && begin == from_[axis] && end == to_[axis];
      from_[axis] = begin;
      to_[axis] = end;
    }
    if (same) return;
    rows_.clear();
    for (int d = from_[0]; d < to_[0]; ++d) {
      for (int h = from_[1]; h < to_[1]; ++h) {
        rows_.push_back({(int64_t{d} * windows_.Size()[1] + h) * windows_.Size()[2],
                         (d * windows_.Kernel()[1] + h) * windows_.Kernel()[2]});
      }
    }
  }

  const std::vector<Row>& Found() const { return rows_; }

 private:
  const Windows& windows_;
  int from_[2] = {-1, -1}, to_[2] = {-1, -1};
  std::vector<Row> rows_;
};

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_WINDOW_ROWS_H_
