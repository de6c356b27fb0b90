/*
 * Loops over short pieces of float16 data with F16C, which converts eight numbers at once; MXNet's
 * half_t converts them one by one in software, to the same bits.
 *
 * Without MXNet's headers: a half is a uint16_t. Each function works on as many elements from the
 * first one as it can and returns how many: whole eights, or none where the processor lacks F16C.
 * The caller's own loop does the rest.
 */
#ifndef MEMONGER_OPS_HALF_PIECES_H_
#define MEMONGER_OPS_HALF_PIECES_H_

#include <cstdint>

#include "./pieces.h"

namespace memonger {
namespace ops {

bool ConvertsHalves();

int64_t HalvesToFloats(const uint16_t* from, int64_t length, float* to);
int64_t FloatsToHalves(const float* from, int64_t length, uint16_t* to);

// As GateEights of lanes.h.
int64_t HalfScale(const uint16_t* from, const uint8_t* bits, int64_t length, float open,
                  float closed, bool add, uint16_t* to);

// As the pieces of these names, but each intermediate result is rounded to float16.
int64_t HalfNormReluOutput(const uint16_t* x, int64_t length, const NormThenRelu<float>& how,
                           uint16_t* y);
int64_t HalfReluTerms(const uint16_t* x, const uint16_t* g, int64_t length,
                      const NormThenRelu<float>& how, float* dz, float* products);
int64_t HalfReluGradient(const uint16_t* x, const uint16_t* g, int64_t length,
                         const NormThenRelu<float>& how, float shift, float slope, float scale,
                         uint16_t* to);

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_HALF_PIECES_H_
