/*
 * CUDA kernels on a CPU: included before a kernel source, it makes a C++ file of it.
 *
 * The threads of a block are fibers that take turns at __syncthreads(). A barrier that some threads
 * of a block reach and others do not ends the process. Blocks run one by one, in either order.
 * Fibers are switched for x86-64, the only processor that MXNet's wheel is for.
 */
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __shared__
#define __forceinline__ inline
#define HOST_EMULATION 1

using std::fabs;
using std::sqrt;

// 1: blocks, and threads between barriers, run last to first. Results must not depend on it.
extern "C" {
int emulation_backwards = 0;
// Blocks before this one are left out.
unsigned emulation_first_block = 0;
}

struct Dimensions {
  unsigned x, y, z;
};
static Dimensions gridDim, blockDim, blockIdx, threadIdx;

template <class A, class B>
inline auto min(A a, B b) -> decltype(a + b) { return b < a ? b : a; }
template <class A, class B>
inline auto max(A a, B b) -> decltype(a + b) { return a < b ? b : a; }

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t(a) * b) >> 32); }

template <class To, class From>
inline To emulation_bits(From from) {
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}
inline int __float_as_int(float value) { return emulation_bits<int>(value); }
inline float __int_as_float(int bits) { return emulation_bits<float>(bits); }
inline long long __double_as_longlong(double value) { return emulation_bits<long long>(value); }
inline double __longlong_as_double(long long bits) { return emulation_bits<double>(bits); }

// ------------------------------------------------------------------ half precision
inline float float_of_half(unsigned short bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float sign = bits >> 15 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction ? std::numeric_limits<float>::quiet_NaN() : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024.0f + fraction, exponent - 25)
                          : std::ldexp(float(fraction), -24));
}

inline unsigned short half_of_float(float value) {  // to nearest, ties to even
  const unsigned short sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (size != size) return 0x7fff;
  if (size >= 65520.0f) return sign | 0x7c00;
  if (size < 6.103515625e-05f) {
    return sign | (unsigned short)std::nearbyint(std::ldexp(size, 24));
  }
  int exponent;
  const float fraction = std::frexp(size, &exponent);  // in [1/2, 1)
  const int rounded = (int)std::nearbyint(std::ldexp(fraction, 11));  // 1024 to 2048
  return sign | (unsigned short)(((exponent + 14) << 10) + (rounded - 1024));
}

// ------------------------------------------------------------------ threads of a block
namespace emulation {

constexpr size_t kStack = 64 << 10;

struct Fiber {
  void* top;  // of its stack, while it waits
  std::vector<char> stack;
  bool done;
};

// Saves the registers that calls keep on the stack, leaves its top in *from and goes on at `to`.
extern "C" void emulation_switch(void** from, void* to);
asm(R"(
  .text
  .type emulation_switch, @function
emulation_switch:
  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
  ret
  .size emulation_switch, . - emulation_switch
)");

static std::vector<Fiber> fibers(1024);
static void* scheduler;
static int running = -1;  // a fiber, or -1: no barrier may come
static void (*body)(void*);
static void* body_arguments;

inline void fail(const char* what) {
  std::fprintf(stderr, "emulated kernel: %s (block %u, thread %u)\n", what, blockIdx.x,
               threadIdx.x);
  std::abort();
}

inline void barrier() {
  if (running < 0) fail("a barrier that the first thread did not reach");
  const int me = running;
  emulation_switch(&fibers[me].top, scheduler);
}

static void start() {
  body(body_arguments);
  fibers[running].done = true;
  emulation_switch(&fibers[running].top, scheduler);
}

inline void resume(int i) {
  running = i;
  threadIdx.x = i;
  emulation_switch(&scheduler, fibers[i].top);
  running = -1;
}

inline void prepare(int i) {
  Fiber& fiber = fibers[i];
  fiber.stack.resize(kStack);
  fiber.done = false;
  // As if emulation_switch had been called by `start` at its beginning, on an aligned stack.
  uintptr_t* top = reinterpret_cast<uintptr_t*>(
      reinterpret_cast<uintptr_t>(fiber.stack.data() + kStack) / 16 * 16);
  *--top = 0;  // start never returns
  *--top = reinterpret_cast<uintptr_t>(&start);
  for (int i = 0; i < 6; ++i) *--top = 0;
  fiber.top = top;
}

// Thread number i of those that run one after the other.
inline int turn(int i) { return emulation_backwards ? blockDim.x - 1 - i : i; }

inline void run_block() {
  const int threads = blockDim.x;
  prepare(turn(0));
  resume(turn(0));
  if (fibers[turn(0)].done) {  // no barrier: the other threads need no fibers
    for (int i = 1; i < threads; ++i) {
      threadIdx.x = turn(i);
      body(body_arguments);
    }
    return;
  }
  for (int i = 1; i < threads; ++i) {
    prepare(turn(i));
    resume(turn(i));
  }
  while (true) {
    int done = 0;
    for (int i = 0; i < threads; ++i) done += fibers[i].done;
    if (done == threads) return;
    if (done) fail("a barrier that only some threads reach");
    for (int i = 0; i < threads; ++i) resume(turn(i));
  }
}

template <class... P>
struct Call {
  void (*kernel)(P...);
  void** arguments;
  template <size_t... I>
  void make(std::index_sequence<I...>) {
    kernel(*static_cast<typename std::decay<P>::type*>(arguments[I])...);
  }
  static void run(void* self) {
    static_cast<Call*>(self)->make(std::index_sequence_for<P...>());
  }
};

// Arguments as the driver takes them: a pointer to each.
template <class... P>
inline void launch(void (*kernel)(P...), void** arguments, unsigned blocks, unsigned threads,
                   unsigned shared_bytes) {
  Call<P...> call{kernel, arguments};
  body = &Call<P...>::run;
  body_arguments = &call;
  gridDim = {blocks, 1, 1};
  blockDim = {threads, 1, 1};
  if (shared_bytes) fail("no kernel of ours has shared memory");
  const unsigned first = emulation_first_block;
  for (unsigned b = first; b < blocks; ++b) {
    blockIdx = {emulation_backwards ? blocks - 1 - (b - first) : b, 0, 0};
    run_block();
  }
}

}  // namespace emulation

inline void __syncthreads() { emulation::barrier(); }
