/*
 * Element-wise operators whose gradient is the incoming one, let through or scaled down: what
 * backward must know about an element is one bit.
 *
 * A gate G gives, for a type T and the operator's parameters,
 *   M Passes(V x)             which elements pass,
 *   V Value(V x, M passes)    the output,
 *   M Noticed(V x)            which elements are to be reported; none unless it says so,
 *   const WideGate* Wide()    the same in wide_gates.h; null unless it says so,
 * on Lanes<T>; G<Single<T>> is the same gate on single elements.
 */
#ifndef MEMONGER_OPS_GATE_H_
#define MEMONGER_OPS_GATE_H_

#include <atomic>

#include "./cpu.h"
#include "./lanes.h"
#include "./operator.h"
#include "./wide_gates.h"

namespace memonger {
namespace ops {

inline bool GateShape(const NodeAttrs& attrs, ShapeVector* in, ShapeVector* out) {
  if (!SameShape(attrs, in, out)) return false;
  (*out)[1] = Flat(BytesOfBits((*in)[0].Size()));
  return true;
}

inline bool GateType(const NodeAttrs& attrs, TypeVector* in, TypeVector* out) {
  if (!SameRealType(attrs, in, out)) return false;
  (*out)[1] = mshadow::kUint8;
  return true;
}

template <class L>
struct Gate {
  typename L::M Noticed(typename L::V) const { return L::None(); }
  const WideGate* Wide() const { return nullptr; }
};

// Whether any thread noticed an element.
class Noticed {
 public:
  void Add(bool noticed) {
    if (noticed) any_.store(true, std::memory_order_relaxed);
  }
  bool Any() const { return any_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> any_{false};
};

// For float32 alone; false: run the loop that serves all.
template <class T>
bool RunWide(const WideGate*, const T*, int64_t, T*, uint8_t*, Noticed*) { return false; }

inline bool RunWide(const WideGate* gate, const float* x, int64_t bytes, float* y, uint8_t* mask,
                    Noticed* noticed) {
  if (gate == nullptr || !HasAvx2()) return false;
  constexpr int64_t kStretch = 2048;
  ForEach(bytes, kStretch, 8 * bytes >= kParallelFrom, [=](int64_t b) {
    noticed->Add(WideStretch(*gate, x + 8 * b, std::min(kStretch, bytes - b), y + 8 * b, mask + b));
  });
  return true;
}

// y = gate(x), or that is added, and the mask's bits for 8 * `bytes` elements; y may be x. Whether
// an element was noticed.
template <class L, class G, class T>
bool GateStretch(const G& gate, const T* x, int64_t bytes, bool write, bool add, T* y,
                 uint8_t* mask) {
  auto any = L::None();
  for (int64_t b = 0; b < bytes; ++b) {
    unsigned bits = 0;
    for (int lane = 0; lane < 8; lane += L::kWidth) {
      const auto value = L::Load(x + 8 * b + lane);
      const auto passes = gate.Passes(value);
      any = L::Either(any, gate.Noticed(value));
      bits |= L::Bits(passes) << lane;
      if (!write) continue;
      const auto result = gate.Value(value, passes);
      T* to = y + 8 * b + lane;
      L::Put(to, add ? L::Add(L::Load(to), result) : result);
    }
    mask[b] = static_cast<uint8_t>(bits);
  }
  return L::Bits(any) != 0;
}

constexpr int64_t kGateStretch = 64;  // bytes of the mask

// For float16 alone, where floats are made of halves and back; false: run the loop that serves all.
template <template <class> class G, class T, class... Params>
bool RunAsFloats(const T*, int64_t, T*, uint8_t*, Noticed*, Params...) { return false; }

template <template <class> class G, class... Params>
bool RunAsFloats(const half_t* x, int64_t bytes, half_t* y, uint8_t* mask, Noticed* noticed,
                 Params... params) {
  if (!ConvertsHalves()) return false;
  const G<Lanes<float>> gate(params...);
  ForEach(bytes, kGateStretch, 8 * bytes >= kParallelFrom, [=](int64_t b) {
    float values[8 * kGateStretch];
    const int64_t length = std::min(kGateStretch, bytes - b);
    HalvesToFloats(BitsOf(x + 8 * b), 8 * length, values);
    noticed->Add(GateStretch<Lanes<float>>(gate, values, length, true, false, values, mask + b));
    FloatsToHalves(values, 8 * length, BitsOf(y + 8 * b));
  });
  return true;
}

// Whether an element was noticed. The parameters are numbers that T holds.
template <class T, template <class> class G, class... Params>
bool GateForward(const TBlob& data, const Requests& request, const Blobs& out, Params... params) {
  using L = Lanes<T>;
  const G<L> gate(params...);
  const G<Single<T>> single(params...);
  const T* x = data.dptr<T>();
  T* y = out[0].dptr<T>();
  uint8_t* mask = out[1].dptr<uint8_t>();  // written even on kNullOp: backward may still come
  const int64_t count = data.Size(), whole = count / 8;
  const bool add = request[0] == mxnet::kAddTo, write = request[0] != mxnet::kNullOp;
  Noticed noticed;
  const bool done = write && !add &&
                    (RunWide(gate.Wide(), x, whole, y, mask, &noticed) ||
                     RunAsFloats<G>(x, whole, y, mask, &noticed, params...));
  if (!done) {
    ForEach(whole, kGateStretch, count >= kParallelFrom, [=, &noticed](int64_t begin) {
      noticed.Add(GateStretch<L>(gate, x + 8 * begin, std::min(kGateStretch, whole - begin), write,
                                 add, y + 8 * begin, mask + begin));
    });
  }
  unsigned bits = 0;
  for (int64_t i = whole * 8; i < count; ++i) {
    const bool passes = single.Passes(x[i]);
    noticed.Add(single.Noticed(x[i]));
    bits |= static_cast<unsigned>(passes) << (i & 7);
    Store(y + i, request[0], single.Value(x[i], passes));
  }
  if (whole * 8 < count) mask[whole] = static_cast<uint8_t>(bits);
  return noticed.Any();
}

// d = eights(g, bits) for whole eights of elements; one(g, bit) for the rest.
template <class T, class Eights, class One>
void ForEachGate(const TBlob& gradient, const TBlob& mask, OpReqType request, const TBlob& result,
                 Eights eights, One one) {
  if (request == mxnet::kNullOp) return;
  constexpr int64_t kStretch = 4096;
  const T* g = gradient.dptr<T>();
  const uint8_t* bits = mask.dptr<uint8_t>();
  T* d = result.dptr<T>();
  const int64_t count = result.Size(), whole = count / 8 * 8;
  const bool add = request == mxnet::kAddTo;
  ForEach(whole, kStretch, count >= kParallelFrom, [=](int64_t i) {
    eights(g + i, bits + i / 8, std::min(kStretch, whole - i), add, d + i);
  });
  for (int64_t i = whole; i < count; ++i) Store(d + i, request, one(g[i], Bit(bits, i)));
}

// d = g where the bit is set, else g * closed (a product even for 0, see lanes.h).
template <class T>
void GateBackward(const TBlob& gradient, const TBlob& mask, T closed, OpReqType request,
                  const TBlob& result) {
  ForEachGate<T>(gradient, mask, request, result,
                 [closed](const T* g, const uint8_t* bits, int64_t length, bool add, T* d) {
                   GateEights<T>(g, bits, length, T(1), closed, add, d);
                 },
                 [closed](T g, bool open) { return T(g * (open ? T(1) : closed)); });
}

// Everything of a gate's two operators that does not depend on what it computes.
inline Operator RegisterGate(const std::string& name, const std::string& text,
                              mxnet::FCompute forward, mxnet::FCompute backward) {
  const std::string backward_name = "_backward_" + name;
  Operator(backward_name)
      .Inputs(2)
      .Outputs(1)
      .IsBackward()
      .InplaceFirst()
      .Compute(backward);
  return Operator(name)
      .Text(text)
      .Inputs(1)
      .Outputs(2)
      .VisibleOutputs(1)
      .InputNames({"data"})
      .OutputNames({"output", "mask"})
      .InferShape(GateShape)
      .InferType(GateType)
      .InplaceFirst()
      .Compute(forward)
      .Gradient({Output(1)}, 1)
      .Argument("data", "Input.");
}

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_GATE_H_
