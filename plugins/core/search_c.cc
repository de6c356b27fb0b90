/* C calls for the fast planner: what memonger/solve/search/native.py loads.
 *
 * A search is an object: create it from the flat problem, run it, read the result, free it.
 */
#include <algorithm>
#include <exception>
#include <memory>
#include <vector>

#include "core/pool.h"
#include "core/search/restarts.h"
#include "core/tradeoffs.h"

#define MEMONGER_API extern "C" __attribute__((visibility("default")))

namespace {

struct Handle {
  memonger::Problem problem;
  std::unique_ptr<memonger::Simulator> simulator;
  std::unique_ptr<memonger::PoolMeter> meter;
  memonger::Trace trace;
  memonger::Outcome outcome;
  int64_t pool = -1;
  std::vector<memonger::Tradeoff> tradeoffs;

  // Writes the steps of the decisions in the simulator down, and measures them where their pool is
  // not known (negative): packing may take as long as a short search.
  void Finish(int64_t known_pool = -1) {
    outcome = simulator->EvaluateInto(&trace);
    pool = meter && outcome.valid ? known_pool : -1;
    if (meter && outcome.valid && pool < 0) pool = meter->Exact(trace);
  }
};

}  // namespace

// storage: -1 the simulator's own peak of live bytes, else memonger::storage::Kind.
// Returns nullptr when the numbers contradict themselves.
MEMONGER_API void* memonger_search_create(const int64_t* data, int64_t size, const double* times,
                                          int64_t num_times, int32_t storage) {
  try {
    std::unique_ptr<Handle> handle(new Handle);
    if (!handle->problem.Parse(data, size, times, num_times)) return nullptr;
    handle->simulator.reset(new memonger::Simulator(handle->problem));
    if (storage >= 0) {
      handle->meter.reset(
          new memonger::PoolMeter(handle->problem, static_cast<memonger::storage::Kind>(storage)));
    }
    return handle.release();
  } catch (const std::exception&) {
    return nullptr;
  }
}

MEMONGER_API void memonger_search_free(void* pointer) { delete static_cast<Handle*>(pointer); }

// The decisions that can be made: op, index, begin, end, trailing for each gap, when `gaps` is not
// null. Returns their number.
MEMONGER_API int64_t memonger_search_gaps(void* pointer, int64_t* gaps) {
  const auto& all = static_cast<Handle*>(pointer)->simulator->gaps();
  for (size_t i = 0; gaps && i < all.size(); ++i) {
    const int64_t row[5] = {all[i].op, all[i].index, all[i].begin, all[i].end, all[i].trailing};
    std::copy(row, row + 5, gaps + 5 * i);
  }
  return static_cast<int64_t>(all.size());
}

// Evaluates given decisions: for each gap one choice and one op from which on the value stays (-1:
// none), one flag for each variant.
MEMONGER_API int32_t memonger_search_evaluate(void* pointer, const int8_t* choices,
                                              const int32_t* advance, const int8_t* variants) {
  Handle* handle = static_cast<Handle*>(pointer);
  memonger::Simulator& simulator = *handle->simulator;
  for (size_t v = 0; v < handle->problem.variants.size(); ++v) {
    simulator.set_variant(static_cast<int>(v), false);
  }
  for (size_t v = 0; v < handle->problem.variants.size(); ++v) {
    if (variants[v]) simulator.set_variant(static_cast<int>(v), true);
  }
  for (size_t gap = 0; gap < simulator.gaps().size(); ++gap) {
    simulator.set_choice(static_cast<int>(gap), static_cast<memonger::Choice>(choices[gap]));
    simulator.set_advance(static_cast<int>(gap), advance[gap]);
  }
  handle->Finish();
  return handle->outcome.valid;
}

// integers: budget of the pool and the bytes outside it, seed, work limit, cross a population of
// plans or not, bits of memonger::Part to leave out, heat in thousandths, the least memory or not.
// warm: decisions to start from, as above. The search ends when `poll` returns something else than
// 0 or `stop` no longer points at 0; both may be null. Another thread may write `stop`: a caller
// whose poll would have to wait for a lock of its own (Python's) has no other way that costs
// nothing. Returns 0 finished, 1 time limit, 2 interrupted, -1 out of memory.
MEMONGER_API int32_t memonger_search_run(void* pointer, const int64_t* integers,
                                         double time_limit_s, const int8_t* warm_choices,
                                         const int32_t* warm_advance, const int8_t* warm_variants,
                                         int32_t (*poll)(double, int64_t), const int32_t* stop,
                                         int32_t* feasible) {
  try {
    Handle* handle = static_cast<Handle*>(pointer);
    memonger::SearchOptions options;
    options.budget_bytes = integers[0];
    options.seed = static_cast<uint64_t>(integers[1]);
    options.work_limit = integers[2];
    options.time_limit_s = time_limit_s;
    options.crossover = integers[3] != 0;
    options.without = integers[4];
    options.heat = static_cast<double>(integers[5]) / 1000;
    options.smallest = integers[6] != 0;
    const size_t gaps = handle->simulator->gaps().size();
    options.warm.known = true;
    options.warm.choices.assign(warm_choices, warm_choices + gaps);
    options.warm.advance.assign(warm_advance, warm_advance + gaps);
    options.warm.variants.assign(warm_variants, warm_variants + handle->problem.variants.size());
    const memonger::Answer answer =
        memonger::RunSearch(handle->simulator.get(), options, handle->meter.get(),
                            [poll, stop](double cost, int64_t bytes) {
                              return (stop && __atomic_load_n(stop, __ATOMIC_RELAXED) != 0) ||
                                     (poll && poll(cost, bytes) != 0);
                            });
    const int64_t pool = answer.best.pool;
    handle->Finish(pool < 0 ? -1 : pool - handle->simulator->bytes_outside_pool());
    *feasible = answer.best.feasible;
    return static_cast<int32_t>(answer.reason);
  } catch (const std::exception&) {
    return -1;
  }
}

// sizes: steps, sources, live peak with the bytes outside the pool, pool (-1: no meter), bytes
// outside it.
MEMONGER_API void memonger_search_sizes(void* pointer, int64_t* sizes, double* cost) {
  const Handle* handle = static_cast<Handle*>(pointer);
  sizes[0] = static_cast<int64_t>(handle->trace.ops.size());
  sizes[1] = static_cast<int64_t>(handle->trace.sources.size());
  sizes[2] = handle->outcome.peak;
  sizes[3] = handle->pool;
  sizes[4] = handle->simulator->bytes_outside_pool();
  sizes[5] = handle->outcome.host_overflow > 0;
  *cost = handle->outcome.cost;
}

// The steps and the decisions that make them.
MEMONGER_API void memonger_search_result(void* pointer, int32_t* ops, int32_t* source_begin,
                                         int32_t* sources, int8_t* choices, int32_t* advance,
                                         int8_t* variants) {
  const Handle* handle = static_cast<Handle*>(pointer);
  const memonger::Trace& trace = handle->trace;
  std::copy(trace.ops.begin(), trace.ops.end(), ops);
  std::copy(trace.source_begin.begin(), trace.source_begin.end(), source_begin);
  std::copy(trace.sources.begin(), trace.sources.end(), sources);
  for (size_t gap = 0; gap < handle->simulator->gaps().size(); ++gap) {
    choices[gap] = handle->simulator->choice(static_cast<int>(gap));
    advance[gap] = handle->simulator->advance(static_cast<int>(gap));
  }
  for (size_t v = 0; v < handle->problem.variants.size(); ++v) {
    variants[v] = handle->simulator->variant_on(static_cast<int>(v));
  }
}

// What the segment whose rest is op `middle` can trade; see tradeoffs.h. Returns the number of
// ways, -1 out of memory.
MEMONGER_API int32_t memonger_search_tradeoffs(void* pointer, int32_t middle, int64_t work,
                                               int64_t seed) {
  try {
    Handle* handle = static_cast<Handle*>(pointer);
    handle->tradeoffs =
        memonger::TradeoffSearch(handle->simulator.get(), middle, static_cast<uint64_t>(seed))
            .Run(work);
    return static_cast<int32_t>(handle->tradeoffs.size());
  } catch (const std::exception&) {
    return -1;
  }
}

// Of each way: time; bytes kept, peaks of forward and backward, and whether nothing is kept;
// decisions.
MEMONGER_API void memonger_search_tradeoffs_found(void* pointer, double* extra, int64_t* sizes,
                                                  int8_t* choices, int8_t* variants) {
  for (const memonger::Tradeoff& one : static_cast<Handle*>(pointer)->tradeoffs) {
    *extra++ = one.extra;
    const int64_t numbers[] = {one.kept, one.forward_peak, one.backward_peak, one.nothing_kept};
    sizes = std::copy(numbers, numbers + 4, sizes);
    choices = std::copy(one.choices.begin(), one.choices.end(), choices);
    variants = std::copy(one.variants.begin(), one.variants.end(), variants);
  }
}
