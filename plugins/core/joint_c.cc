/* C calls for the joint model: what memonger/bench/joint_search.py loads. */
#include <cstring>
#include <exception>
#include <memory>

#include "joint_search.h"

#define MEMONGER_API extern "C" __attribute__((visibility("default")))

namespace {

struct Handle {
  memonger::JointModel model;
  memonger::JointPlan plan;
};

}  // namespace

// Returns nullptr when the numbers contradict themselves.
MEMONGER_API void* memonger_joint_create(const int64_t* data, int64_t size) {
  try {
    std::unique_ptr<Handle> handle(new Handle);
    return handle->model.Parse(data, size) ? handle.release() : nullptr;
  } catch (const std::exception&) {
    return nullptr;
  }
}

MEMONGER_API void memonger_joint_free(void* pointer) { delete static_cast<Handle*>(pointer); }

// integers: budget, seed, work limit. results: cost, overflow, evaluations, out of time.
// Returns 0, or -1 when out of memory.
MEMONGER_API int32_t memonger_joint_run(void* pointer, const int64_t* integers,
                                        double time_limit_s, int32_t (*stop)(),
                                        int64_t* results) {
  try {
    Handle* handle = static_cast<Handle*>(pointer);
    handle->model.set_budget(integers[0]);
    memonger::JointOptions options;
    options.seed = static_cast<uint64_t>(integers[1]);
    options.work_limit = integers[2];
    options.time_limit_s = time_limit_s;
    if (stop) options.stop = [stop] { return stop() != 0; };
    memonger::JointSearch search(handle->model, options);
    handle->plan = search.Run();
    results[0] = search.best().cost;
    results[1] = search.best().overflow;
    results[2] = search.evaluations();
    results[3] = search.out_of_time();
    return 0;
  } catch (const std::exception&) {
    return -1;
  }
}

// Of the plan found. held: for each stage and one more, for each forward node whether it is held;
// variants: for each stage; runs: for each stage and forward node 0, 1 or 2 (in place);
// algorithms: for each stage and forward node, then the backward node, an algorithm or -1.
MEMONGER_API void memonger_joint_result(void* pointer, int8_t* held, int8_t* variants,
                                        int8_t* runs, int8_t* algorithms) {
  const Handle* handle = static_cast<Handle*>(pointer);
  const memonger::JointModel& model = handle->model;
  const memonger::JointPlan& plan = handle->plan;
  const int nodes = model.num_forward(), stages = model.num_stages();
  const auto size_of = [&](int t) {
    int64_t size = 0;
    for (int v = 0; v < nodes; ++v) size += plan.held[t].Has(v) ? model.node(v).size : 0;
    return size;
  };
  std::memset(runs, 0, static_cast<size_t>(stages) * nodes);
  std::memset(algorithms, -1, static_cast<size_t>(stages) * (nodes + 1));
  for (int t = 0; t <= stages; ++t) {
    for (int v = 0; v < nodes; ++v) held[t * nodes + v] = plan.held[t].Has(v);
    if (t == stages) break;
    variants[t] = static_cast<int8_t>(plan.variants[t]);
    memonger::StageTrace trace;
    model.Evaluate(t, plan.held[t], size_of(t), plan.held[t + 1], size_of(t + 1),
                   plan.variants[t], nullptr, &trace);
    for (int v : trace.runs) runs[t * nodes + v] = 1;
    for (int v : trace.in_place) runs[t * nodes + v] = 2;
    for (const auto& chosen : trace.algorithms) {
      const int place = chosen.first < nodes ? chosen.first : nodes;
      algorithms[t * (nodes + 1) + place] = static_cast<int8_t>(chosen.second);
    }
  }
}
