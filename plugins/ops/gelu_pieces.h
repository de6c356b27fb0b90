/*
 * Gelu over pieces of data (cuda/gelu.cu has the mathematics), with AVX-512 or AVX2 where there is
 * (gelu_vectors.h).
 *
 * Without MXNet's headers: compiled once.
 */
#ifndef MEMONGER_OPS_GELU_PIECES_H_
#define MEMONGER_OPS_GELU_PIECES_H_

#include <cstdint>

namespace memonger {
namespace ops {

// 9 * 2^20: adding it rounds what is between -2^20 and 7 * 2^20 to an integer, which is then in the
// last bits, above a multiple of 128.
constexpr float kGeluRound = 9437184.0f;

// y = gelu(x) with the bytes that the derivative needs, for outputs that are stored in numbers of so
// many bits (16, 32 or 64); y may be x.
void GeluForward(const float* x, int64_t length, int bits, float* y, uint8_t* bytes);
void GeluForward(const double* x, int64_t length, int bits, double* y, uint8_t* bytes);

// g times the derivative where the output was y, or that is added; `to` may be g.
void GeluBackward(const float* g, const float* y, const uint8_t* bytes, int64_t length, int bits,
                  bool add, float* to);
void GeluBackward(const double* g, const double* y, const uint8_t* bytes, int64_t length, int bits,
                  bool add, double* to);

// Of floats with the instructions of one kind of processor (cpu.h).
void GeluForwardAvx2(const float* x, int64_t length, int bits, float* y, uint8_t* bytes);
void GeluForwardAvx512(const float* x, int64_t length, int bits, float* y, uint8_t* bytes);
void GeluBackwardAvx2(const float* g, const float* y, const uint8_t* bytes, int64_t length,
                      int bits, bool add, float* to);
void GeluBackwardAvx512(const float* g, const float* y, const uint8_t* bytes, int64_t length,
                        int bits, bool add, float* to);

}  // namespace ops
}  // namespace memonger

#endif  // MEMONGER_OPS_GELU_PIECES_H_
