// Parts of a decoder layer, without contracts. Only models/fused_cpu.py calls them, with addresses of dense float32
// CPU tensors, and it keeps the weights alive. Rows are tokens, in order.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "tensor.h"

namespace verispec {

// Divide each row by its root mean square and multiply by a weight (Zhang and Sennrich 2019).
class RMSNorm {
 public:
  RMSNorm(uintptr_t weight, int64_t width, double epsilon);

  // `out` may be `x`. Rows of `out` start `stride` floats apart.
  void operator()(float* out, const float* x, int64_t rows, int64_t stride) const;
  void operator()(float* out, const float* x, int64_t rows) const { (*this)(out, x, rows, width_); }

 private:
  const float* weight_;
  int64_t width_;
  float epsilon_;
};

// x W^T + b, for all projections that read one input at once.
//
// Output columns are cut into panels of kPanel. A panel stores the weights of its columns for the first input, then
// for the second, and so on, so that they are read in order. The last panel is padded. If gated, a panel's first half
// are columns of the gate and its second half the same columns of the other projection. Both give one output:
// silu(gate) * other (Shazeer 2020).
class Linear {
 public:
  static constexpr int64_t kPanel = 32;

  Linear(uintptr_t panels, std::optional<uintptr_t> bias, int64_t inputs, int64_t outputs, bool gated);

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }

  // `residual`, if not null, is added; it may be `out`.
  void operator()(float* out, const float* x, int64_t rows, const float* residual = nullptr) const;

 private:
  const float* panels_;
  const float* bias_;  // in the order of the panels' columns, or null
  int64_t inputs_, outputs_;
  bool gated_;
};

// The batch of a forward pass, the same for every layer.
struct PagedBatch {
  // `position` and `slot_mapping` have one entry per token. `query_start_loc` (with the end of the last request),
  // `seq_len` and the rows of `block_table` have one per request. No slot outside `num_slots` is accessed.
  //
  // With draft trees, `position` is the place of a node after its request's root, and `branch_position` that of its
  // depth. `root` has the place of each request's root, negative without a tree. A node attends to the nodes that its
  // row of `sees` [nodes, nodes] names.
  PagedBatch(uintptr_t position, uintptr_t slot_mapping, int64_t rows, uintptr_t query_start_loc, uintptr_t seq_len,
             int64_t requests, uintptr_t block_table, int64_t blocks, int64_t block_size, int64_t num_slots,
             uintptr_t branch_position, uintptr_t root, uintptr_t sees, int64_t nodes);

  int64_t rows() const { return static_cast<int64_t>(positions.size()); }
  int64_t requests() const { return static_cast<int64_t>(first_slot.size()) - 1; }

  // True if the query of node `query` of a tree attends to the key of node `key`, both counted from the root.
  bool is_seen(int64_t query, int64_t key) const {
    return sees[std::min(query, nodes - 1) * nodes + std::min(key, nodes - 1)];
  }

  std::vector<int64_t> positions;   // of each token: how many keys it may see
  std::vector<int64_t> rotations;   // positions that queries and keys rotate to
  std::vector<int64_t> roots;       // per request; empty without trees
  std::vector<bool> sees;
  int64_t nodes;
  std::vector<int64_t> new_slots;   // slot of each token's keys and values; none if negative
  std::vector<int64_t> first_row;   // per request, and the end of the last one
  std::vector<int64_t> first_slot;  // in `slots`, per request, and the end of the last one
  std::vector<int64_t> slots;       // of every position of every sequence
};

// Softmax attention over the paged KV cache, for a ragged batch of tokens.
struct PagedAttention {
  int64_t num_heads, num_kv_heads, head_dim;
  float scale;
  const float *cosine, *sine;  // [num_positions, head_dim] of the rotary embedding
  int64_t num_positions;

  // A row of `qkv` is a token's query, key and value heads; a row of `cache` is a slot's key and value heads.
  void operator()(float* out, const float* qkv, const PagedBatch& batch, float* cache) const;
};

// e^x for x <= 0 within 2 units in the last place, in operations that vectorise: x = n ln 2 + r, and e^r by its Taylor
// series. Below -87 the result would be subnormal; return e^-87 instead, which is negligible.
inline float exponential(float x) {
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  x = std::max(x, -87.0f);
  const float n = (x * 1.44269504f + kRounder) - kRounder;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  const float series =
      1 + r * (1 + r * (1.0f / 2 + r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720))))));
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return series * power;
}

}  // namespace verispec
