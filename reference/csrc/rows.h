// Inner loops over rows of logits, compiled once per instruction set (rows.inc) and chosen when the module is loaded.
//
// Every version performs the same operations on the same 16 lanes in the same order, without fused multiply-adds, so
// all versions give equal bits. Rows are handled in blocks of kBlock logits, which stay in the first-level cache
// between the maximum and the sum.

#pragma once

#include <cstdint>

namespace verispec {

constexpr int64_t kLanes = 16;
constexpr int64_t kSubBlock = 128;
constexpr int64_t kBlock = 1024;

struct RowFunctions {
  const char* name;
  // Maximum of each kSubBlock of n <= kBlock logits into `sub` (unless null); returns the block's. NaN is skipped.
  float (*maximum)(const float* x, int64_t n, float* sub);
  // Sum of 2^((x - top) * scale) over n <= kBlock logits, none above `top`; NaN counts as minus infinity.
  float (*mass)(const float* x, int64_t n, float top, float scale);
  // The same weights one by one, of any number of logits.
  void (*weights)(const float* x, int64_t n, float top, float scale, float* out);
  // bfloat16 to float32.
  void (*widen_bfloat16)(const uint16_t* x, int64_t n, float* out);
  // Appends first_id + i for every x[i] >= bound; returns how many. `ids` has room for n + kLanes.
  int64_t (*select)(const float* x, int64_t n, float bound, int32_t first_id, int32_t* ids);
};

// The version in use: the widest that the processor has.
const RowFunctions& rows();

}  // namespace verispec
