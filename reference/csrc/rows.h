// Inner loops over rows of logits, compiled once per instruction set (rows.inc) and chosen when the module is loaded.
//
// Every version performs the same operations on the same 16 lanes in the same order, fused multiply-adds included, so
// that all versions give equal bits. Without an instruction for it a fused multiply-add is a call: the baseline of x86
// is right, but slow. Rows are handled in blocks of kBlock logits.

#pragma once

#include <cstdint>

namespace verispec {

constexpr int64_t kLanes = 16;
constexpr int64_t kSubBlock = 128;
constexpr int64_t kBlock = 1024;
constexpr int64_t kSubBlocks = kBlock / kSubBlock;

// The base of weights: the weight of x is 2^((x - shift) * scale - power), at most about 1.
struct Base {
  float shift, power;
  double log;  // shift * scale + power

  // `power` is an integer if products of logits and scale are small enough for it: powers of two then give the
  // weights of a block relative to any other block's. Above kDeepest, the logit that weighs 2^-120 is finite.
  static Base of(float top, float scale) {
    constexpr float kLargest = 1 << 20, kDeepest = -3e38f;
    const float y = top * scale;
    if (!(y >= -kLargest && y <= kLargest && top >= kDeepest)) return {top, 0, static_cast<double>(top) * scale};
    const float power = (y + 12582912.0f) - 12582912.0f;
    return {0, power, power};
  }
};

// A block after one pass. Its mass is relative to 2^log. `above` is the part of its logits of at least the bound.
struct BlockSummary {
  float top, mass, above;
  double log;
};

// The same of many blocks, and the maximum of each sub-block unless `sub` is null.
struct BlockSummaries {
  float *top, *mass, *above;
  double* log;
  float* sub;
};

struct RowFunctions {
  const char* name;
  // The maximum of n logits. NaN is skipped.
  float (*maximum)(const float* x, int64_t n);
  // The maximum of each block of n logits into `top`, and of each sub-block into `sub` (unless null).
  void (*maxima)(const float* x, int64_t n, float* top, float* sub);
  // Summaries of the blocks of n logits; NaN counts as minus infinity. `bound` of minus infinity is none. A block is
  // read twice unless its maximum weighs from 2^-60 to 2^100 relative to the guessed base.
  void (*scan)(const float* x, int64_t n, Base guess, float scale, float bound, const BlockSummaries& out);
  // The weights of any number of logits one by one.
  void (*weights)(const float* x, int64_t n, Base base, float scale, float* out);
  // bfloat16 to float32.
  void (*widen_bfloat16)(const uint16_t* x, int64_t n, float* out);
  // Appends first_id + i for every x[i] >= bound; returns how many. `ids` has room for n + kLanes.
  int64_t (*select)(const float* x, int64_t n, float bound, int32_t first_id, int32_t* ids);
  // Copies those of n logits that lie from `low` to below `high`, in their order, to a list with room for
  // n + kLanes; returns how many. `high` of infinity is no bound. Skips sub-blocks whose maxima (unless null) are
  // below `low`.
  int64_t (*list)(const float* x, int64_t n, const float* sub, float low, float high, float* out);
  // Sum of the weights of logits of at least `bound`.
  double (*weight_above)(const float* x, const float* w, int64_t n, float bound);
  // Copies the entries with logits from `low` to below `high`, in their order; returns how many. In place, or to lists
  // with room for n + kLanes.
  int64_t (*keep)(const float* x, const float* w, int64_t n, float low, float high, float* kept_x, float* kept_w);
};

// The version in use: the widest that the processor has.
const RowFunctions& rows();

}  // namespace verispec
