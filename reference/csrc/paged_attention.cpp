// paged_attention: one layer's attention over the paged KV cache, for a ragged batch of tokens. No op with
// a contract: models/attention.py calls it for float32 models on the CPU.
//
// A token's row of `qkv` has its query heads, key heads and value heads. Queries and keys are rotated to their
// positions (Su et al. 2021), keys and values written to the token's slot, and every query mixes the values of its
// own sequence up to its own position, found through the block table: softmax(q k^T * scale) v.

#include <cmath>
#include <limits>
#include <vector>

#include "clones.h"
#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

// out = in, rotated: element d turns with element d + head_dim / 2.
void rotate(float* out, const float* in, const float* cosine, const float* sine, int64_t head_dim, float scale) {
  const int64_t half = head_dim / 2;
  for (int64_t d = 0; d < half; ++d) {
    out[d] = (in[d] * cosine[d] - in[d + half] * sine[d]) * scale;
    out[d + half] = (in[d + half] * cosine[d + half] + in[d] * sine[d + half]) * scale;
  }
}

// e^x for x <= 0 within 2 units in the last place, in operations that become vector instructions: x = n ln 2 + r,
// and e^r by its Taylor series. Below -87 the result would be subnormal; it stays at e^-87, which is as good as zero.
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

// One query over `count` keys. A token's key is at keys + slot * width, its value at values + slot * width.
[[gnu::always_inline]] inline void attend_body(float* out, const float* query, const float* keys, const float* values,
                                               int64_t width, const int64_t* slots, int64_t count, int64_t head_dim,
                                               float* weights) {
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < count; ++j) {
    const float* key = keys + slots[j] * width;
    float score = 0;
#pragma omp simd reduction(+ : score)
    for (int64_t d = 0; d < head_dim; ++d) score += query[d] * key[d];
    weights[j] = score;
    largest = std::max(largest, score);
  }
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t j = 0; j < count; ++j) total += weights[j] = exponential(weights[j] - largest);
  for (int64_t d = 0; d < head_dim; ++d) out[d] = 0;
  for (int64_t j = 0; j < count; ++j) {
    const float weight = weights[j] / total;
    const float* value = values + slots[j] * width;
#pragma omp simd
    for (int64_t d = 0; d < head_dim; ++d) out[d] += weight * value[d];
  }
}

// The usual head size is known to the compiler, so that a query stays in registers.
VERISPEC_CLONES void attend(float* out, const float* query, const float* keys, const float* values, int64_t width,
                            const int64_t* slots, int64_t count, int64_t head_dim, float* weights) {
  if (head_dim == 64) {
    attend_body(out, query, keys, values, width, slots, count, 64, weights);
  } else {
    attend_body(out, query, keys, values, width, slots, count, head_dim, weights);
  }
}

void paged_attention(const Tensor& out, const Tensor& qkv, const Tensor& cache, const Tensor& cosine,
                     const Tensor& sine, const Tensor& position, const Tensor& slot_mapping,
                     const Tensor& query_start_loc, const Tensor& seq_len, const Tensor& block_table,
                     int64_t num_heads, int64_t num_kv_heads, int64_t block_size, double scale) {
  const Integers positions(position), write_slots(slot_mapping), starts(query_start_loc), lens(seq_len),
      blocks(block_table);
  const int64_t width = cache.shape[1], head_dim = width / (2 * num_kv_heads), per_kv = num_heads / num_kv_heads;
  const int64_t capacity = block_table.shape[1] * block_size, num_slots = cache.size(), num_requests = lens.size();
  const auto place = [&](int64_t token) { return std::clamp<int64_t>(positions.get(token), 0, cosine.size() - 1); };

  for (int64_t t = 0; t < qkv.size(); ++t) {
    const int64_t slot = write_slots.get(t);
    if (slot < 0 || slot >= num_slots) continue;
    const float* keys = qkv.at<float>(t, num_heads * head_dim);
    float* stored = cache.at<float>(slot);
    for (int64_t head = 0; head < num_kv_heads; ++head) {
      rotate(stored + head * head_dim, keys + head * head_dim, cosine.at<float>(place(t)), sine.at<float>(place(t)),
             head_dim, 1);
    }
    std::copy_n(keys + num_kv_heads * head_dim, num_kv_heads * head_dim, stored + num_kv_heads * head_dim);
  }

#pragma omp parallel if (qkv.size() * num_heads * capacity >= kParallelWork)
  {
    std::vector<int64_t> slots(capacity);
    std::vector<float> weights(capacity), query(head_dim);
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < num_requests * num_kv_heads; ++task) {
      const int64_t b = task / num_kv_heads, kv_head = task % num_kv_heads;
      const int64_t len = std::clamp<int64_t>(lens.get(b), 1, capacity);
      for (int64_t j = 0; j < len; ++j) {
        slots[j] = std::clamp<int64_t>(blocks.get(b, j / block_size) * block_size + j % block_size, 0, num_slots - 1);
      }
      const float* keys = cache.at<float>(0, kv_head * head_dim);
      for (int64_t t = starts.get(b); t < starts.get(b + 1); ++t) {
        const int64_t count = std::min(place(t) + 1, len);
        for (int64_t head = kv_head * per_kv; head < (kv_head + 1) * per_kv; ++head) {
          rotate(query.data(), qkv.at<float>(t, head * head_dim), cosine.at<float>(place(t)),
                 sine.at<float>(place(t)), head_dim, static_cast<float>(scale));
          attend(out.at<float>(t, head * head_dim), query.data(), keys, keys + width / 2, width, slots.data(), count,
                 head_dim, weights.data());
        }
      }
    }
  }
}

}  // namespace

void bind_paged_attention(nb::module_& m) {
  m.def("paged_attention", &paged_attention, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace verispec
