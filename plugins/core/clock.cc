// When the steps of the simulator's log run, where there are several streams.
//
// The rules are those of memonger/graph/clock.py: a step starts when its stream is free and what it
// reads is made; one of a stream other than compute also waits for the steps of compute issued
// before it.
#include <algorithm>

#include "core/simulator.h"

namespace memonger {

// The end of the last stream, in ticks.
int64_t Simulator::EndOfLastStream() {
  free_at_.assign(problem_.num_streams, 0);
  ended_at_.resize(run_op_.size());
  int64_t& compute = free_at_[0];
  for (const Stage& log : stages_) {
    if (!log.has_waits) {
      for (int run : log.runs) ended_at_[run] = compute += hot_[run_op_[run]].ticks;
      continue;
    }
    auto read = log.reads.begin();
    for (int place = 0; place < static_cast<int>(log.runs.size()); ++place) {
      const int run = log.runs[place], op = run_op_[run];
      int64_t& own = free_at_[hot_[op].stream];
      int64_t start = std::max(own, compute);  // for one of compute they are the same
      for (; read != log.reads.end() && read->place == place; ++read) {
        start = std::max(start, ended_at_[read->run]);
      }
      ended_at_[run] = own = start + hot_[op].ticks;
    }
  }
  work_ += num_steps_ / 4;
  return *std::max_element(free_at_.begin(), free_at_.end());
}

// The same of steps that are written down, in the graph's unit of time.
double Simulator::EndOfLastStream(const Trace& trace) const {
  std::vector<double> free_at(problem_.num_streams, 0), ended_at;
  for (size_t step = 0; step < trace.ops.size(); ++step) {
    const Implementation& impl = active(trace.ops[step]);
    const int stream = problem_.ops[trace.ops[step]].stream;
    double start = free_at[stream];
    if (stream != 0) start = std::max(start, free_at[0]);
    for (size_t i = 0; i < impl.inputs.size(); ++i) {
      const int source = trace.sources[trace.source_begin[step] + i];
      if (source >= 0 && !impl.ignored[i]) start = std::max(start, ended_at[source]);
    }
    free_at[stream] = start + impl.time;
    ended_at.push_back(free_at[stream]);
  }
  return *std::max_element(free_at.begin(), free_at.end());
}

}  // namespace memonger
