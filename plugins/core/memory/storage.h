/* How MXNet's static memory planner shares memory, and how to share it better.
 *
 * Three stages, each of which can be used alone:
 *   Replay      tensors -> blocks. A block is a set of tensors that share memory through
 *               in-place options; it lives from one step to another. Repeats the reference
 *               counting of MXNet 1.9.1's MXPlanMemory.
 *   Stock       blocks -> buffers, as MXPlanMemory's allocator does it, byte for byte.
 *   Packer      blocks -> buffers, better, by a bounded search.
 *   Arena       blocks -> offsets in one buffer, which comes close to the peak of live bytes.
 * For all but Arena a buffer ("storage id" in MXNet) is used from its first byte, so it is as
 * large as the largest block in it and the pool is the sum over all buffers.
 *
 * tests/reference/liveness.py is a slow, readable reference. Only the standard library is
 * used, and only plain structs and vectors cross this header: it is compiled into the MXNet plugin
 * (with its ABI shim) and into libmemonger_core.so alike.
 */
#ifndef MEMONGER_CORE_MEMORY_STORAGE_H_
#define MEMONGER_CORE_MEMORY_STORAGE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace memonger {
namespace storage {

struct Inplace {
  int32_t input;     // position among the step's inputs
  int32_t output;    // position among its outputs
  uint8_t identity;  // the op only renames its input
};

// One order of execution, in flat arrays. Values ("entries") carry any ids from 0 on; step s makes
// outputs[output_begin[s] .. output_begin[s + 1]) and reads inputs[input_begin[s] .. ), in the
// op's order. An input of -1 is a value from before the step, whose memory is the caller's.
struct Program {
  std::vector<int32_t> output_begin{0}, outputs;
  std::vector<int32_t> input_begin{0}, inputs;
  std::vector<uint8_t> ignored;  // per input: its value is never read (FIgnoreInputs)
  std::vector<int32_t> inplace_begin{0};
  std::vector<Inplace> inplace;   // in the op's order
  std::vector<int32_t> device;    // per step
  std::vector<int32_t> pool;      // per step; values of another pool are external to a step
  // Per step: the second input may be added to the first one, where the sum lies, when it is made.
  std::vector<uint8_t> adds_into_first;
  // Per entry.
  std::vector<int64_t> elements;    // number of elements
  std::vector<int64_t> bytes;       // elements times item_bytes
  std::vector<int32_t> dtype;       // a number for each dtype
  std::vector<int32_t> item_bytes;  // of one element
  std::vector<uint8_t> external;    // memory is the caller's: variables, gradient arrays
  std::vector<int32_t> held;        // how often it is an output of the whole graph
  std::vector<uint8_t> own_buffer;  // must have a buffer of its own in an arena; empty: none must
  // Empty: counted from inputs and held. Else MXNet's graph attribute "ref_count".
  std::vector<int32_t> references;

  int32_t num_steps() const { return static_cast<int32_t>(output_begin.size()) - 1; }
  int32_t num_entries() const { return static_cast<int32_t>(elements.size()); }
  void Clear();
};

// Ways to count memory, numbered as in memonger/memory/storage.py.
enum class Kind {
  kArena = 0,  // Smallest
  kBest = 1,   // Packer
  kStock = 2,  // Stock
  kLive = 3,   // PeakLive: nothing is assigned
};

struct Model {
  uint8_t count_ignored = 0;  // CachedOp counts ignored inputs too, so they never release
  int32_t rounding = 4;       // buffers are multiples of this: executor 4, CachedOp 1
  int32_t effort = 400;       // most tries of Packer's search; ten times as many of Arena's
  int32_t alignment = 64;     // Arena: offsets are multiples of this
};

struct Block {
  int32_t start;  // step that makes the first value
  int32_t end;    // last step that uses it, inclusive; num_steps: never released
  int64_t bytes;  // largest value in it, by real dtype; 0 when it is added to another
  int64_t elements;
  int32_t device;
  int32_t pool;
  uint8_t own_buffer;  // some value in it must not lie in an arena
};

struct Blocks {
  int32_t num_steps = 0;
  std::vector<Block> blocks;      // in the order in which MXNet requests them
  std::vector<int32_t> released;  // block ids in the order in which MXNet releases them
  std::vector<int32_t> block_of;  // per entry; -1: no block
  // Per entry, as MXNet's storage_inplace_index: input position, -1 none, -2 never read.
  std::vector<int32_t> inplace_index;
};

struct Assignment {
  std::vector<int32_t> buffer_of;     // per block
  std::vector<int64_t> offset_of;     // per block, from Arena only
  std::vector<int64_t> buffer_bytes;  // per buffer, real bytes, rounded up
  int64_t pool_bytes = 0;             // sum of buffer_bytes
  int64_t printed_bytes = 0;          // 4 bytes an element: debug_str, storage_allocated_bytes
  int64_t placed = 0;                 // how many times a search laid a block down
};

struct Peak {
  int64_t bytes = 0;
  int32_t step = -1;  // first step at which it is reached; -1 when nothing is ever alive
};

inline int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Time: linear in steps, inputs and outputs. `blocks` is overwritten; its memory is reused.
void Replay(const Program& program, const Model& model, Blocks* blocks);

// Bytes alive at the worst step. No assignment of the same blocks can take less.
Peak PeakLive(const Blocks& blocks);

// No assignment of whole buffers can take less than this ("shared-object bound"): the sum over k
// of the largest k-th largest block that is ever alive; for each device and pool.
int64_t LowerBound(const Blocks& blocks, const Model& model);

// MXNet's own assignment (MXGraphAllocator with NNVM_EXEC_MATCH_RANGE at its default). O(n log n).
void Stock(const Blocks& blocks, const Model& model, Assignment* result);

// One buffer for each device and pool, its blocks at offsets; values that outlive the step (outputs
// of the network) and those marked `own_buffer` get buffers of their own. Ends early once the pool
// is no larger than `wanted`. O(tries * n^2).
void Arena(const Blocks& blocks, const Model& model, Assignment* result, int64_t wanted = 0);

// The arena, or what Packer::Best finds where that is no larger (then offset_of is empty).
void Smallest(const Blocks& blocks, const Model& model, Assignment* result, int64_t wanted = 0);

// Recomputes buffer_bytes, pool_bytes and printed_bytes from buffer_of.
void Measure(const Blocks& blocks, const Model& model, Assignment* result);

// Assigns blocks to buffers, deterministically. One object may serve many calls; it keeps its
// working memory. Not for two threads at once.
class Packer {
 public:
  // Stock, four greedy orders, then changes of the order until LowerBound is reached or the
  // tries are used up. Never more bytes than Stock, device by device and pool by pool.
  void Best(const Blocks& blocks, const Model& model, Assignment* result);

 private:
  void Groups(const Blocks& blocks);
  void Load(const Blocks& blocks, const Model& model, size_t group);
  void SortByBytes();
  uint64_t BusyBuffers(size_t chunk, int32_t first, int32_t last) const;
  void Occupy(int32_t buffer, int32_t first, int32_t last);
  int64_t Greedy(const std::vector<int32_t>& order, int64_t limit, bool falling);
  void ImproveGroup(const Model& model, int64_t bound);

  // Blocks of each (device, pool), by block id.
  std::vector<int32_t> group_begin_, members_;
  // The group at hand: sizes and first and last instants, where instants are the starts.
  std::vector<int32_t> member_;
  std::vector<int64_t> bytes_;
  std::vector<int32_t> first_, last_, rank_;
  std::vector<int32_t> order_, trial_, object_, best_object_;
  std::vector<int64_t> buffers_, key_;  // sizes of the buffers; sorting keys
  std::vector<uint64_t> tree_;          // see BusyBuffers; 4 * leaves_ words for 64 buffers
  size_t leaves_ = 0;
  int64_t best_ = 0, placed_ = 0;
};

}  // namespace storage
}  // namespace memonger

#endif  // MEMONGER_CORE_MEMORY_STORAGE_H_
