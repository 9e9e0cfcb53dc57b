// Queries and keys are rotated to their positions (Su et al. 2021), keys and values written to the token's slot, and
// every query mixes the values of its own sequence up to its own position: softmax(q k^T * scale) v.

#include <nanobind/nanobind.h>

#include <limits>

#include "clones.h"
#include "layers.h"
#include "ops.h"

namespace verispec {
namespace {

// out = in, rotated: elements d and d + head_dim / 2 rotate together.
VERISPEC_CLONES void rotate(float* out, const float* in, const float* cosine, const float* sine, int64_t head_dim,
                            float scale) {
  const int64_t half = head_dim / 2;
#pragma omp simd
  for (int64_t d = 0; d < half; ++d) {
    const float low = in[d], high = in[d + half];
    out[d] = (low * cosine[d] - high * sine[d]) * scale;
    out[d + half] = (high * cosine[d + half] + low * sine[d + half]) * scale;
  }
}

constexpr int64_t kKeys = 16;   // block of keys or values that stays in a fast cache while queries read it
constexpr int64_t kTokens = 4;  // tokens whose queries read a block together

// Sum 16 floats pairwise: a sequential sum would serialise the additions.
[[gnu::always_inline]] inline float sum(const float (&lanes)[16]) {
  float eight[8], four[4];
#pragma omp simd
  for (int lane = 0; lane < 8; ++lane) eight[lane] = lanes[lane] + lanes[lane + 8];
#pragma omp simd
  for (int lane = 0; lane < 4; ++lane) four[lane] = eight[lane] + eight[lane + 4];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// scores[j] = query times key j; keys are `width` floats apart, at the given slots.
[[gnu::always_inline]] inline void score_body(float* scores, const float* query, const float* keys, int64_t width,
                                              const int64_t* slots, int64_t num_keys, int64_t head_dim) {
  for (int64_t j = 0; j < num_keys; ++j) {
    const float* key = keys + slots[j] * width;
    float lanes[16] = {}, rest = 0;
    int64_t d = 0;
    for (; d + 16 <= head_dim; d += 16) {
#pragma omp simd
      for (int lane = 0; lane < 16; ++lane) lanes[lane] += query[d + lane] * key[d + lane];
    }
    for (; d < head_dim; ++d) rest += query[d] * key[d];
    scores[j] = sum(lanes) + rest;
  }
}

// The compiler knows the usual head sizes, so that lanes stay in registers.
VERISPEC_CLONES void score(float* scores, const float* query, const float* keys, int64_t width, const int64_t* slots,
                           int64_t num_keys, int64_t head_dim) {
  switch (head_dim) {
    case 32:
      return score_body(scores, query, keys, width, slots, num_keys, 32);
    case 64:
      return score_body(scores, query, keys, width, slots, num_keys, 64);
    case 128:
      return score_body(scores, query, keys, width, slots, num_keys, 128);
    default:
      return score_body(scores, query, keys, width, slots, num_keys, head_dim);
  }
}

// out += weights[j] * value j for `vectors` times 16 columns, few enough that their sums stay in registers.
template <int vectors>
[[gnu::always_inline]] inline void mix_columns(float* out, const float* weights, const float* values, int64_t width,
                                               const int64_t* slots, int64_t num_keys) {
  float sums[vectors][16];
  std::memcpy(sums, out, sizeof sums);
  for (int64_t j = 0; j < num_keys; ++j) {
    const float weight = weights[j], *value = values + slots[j] * width;
    for (int v = 0; v < vectors; ++v) {
#pragma omp simd
      for (int lane = 0; lane < 16; ++lane) sums[v][lane] += weight * value[16 * v + lane];
    }
  }
  std::memcpy(out, sums, sizeof sums);
}

VERISPEC_CLONES void mix(float* out, const float* weights, const float* values, int64_t width, const int64_t* slots,
                         int64_t num_keys, int64_t head_dim) {
  int64_t d = 0;
  for (; d + 64 <= head_dim; d += 64) mix_columns<4>(out + d, weights, values + d, width, slots, num_keys);
  for (; d + 32 <= head_dim; d += 32) mix_columns<2>(out + d, weights, values + d, width, slots, num_keys);
  for (; d + 16 <= head_dim; d += 16) mix_columns<1>(out + d, weights, values + d, width, slots, num_keys);
  for (; d < head_dim; ++d) {
    for (int64_t j = 0; j < num_keys; ++j) out[d] += weights[j] * values[slots[j] * width + d];
  }
}

VERISPEC_CLONES void softmax(float* weights, int64_t count) {
  const float largest = *std::max_element(weights, weights + count);
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t j = 0; j < count; ++j) total += weights[j] = exponential(weights[j] - largest);
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) weights[j] /= total;
}

}  // namespace

PagedBatch::PagedBatch(uintptr_t position, uintptr_t slot_mapping, int64_t rows, uintptr_t query_start_loc,
                       uintptr_t seq_len, int64_t requests, uintptr_t block_table, int64_t blocks, int64_t block_size,
                       int64_t num_slots, uintptr_t branch_position, uintptr_t root, uintptr_t visible, int64_t count)
    : nodes(count), first_slot{0} {
  const auto* tokens = reinterpret_cast<const int64_t*>(position);
  const auto* places = reinterpret_cast<const int64_t*>(slot_mapping);
  const auto* starts = reinterpret_cast<const int32_t*>(query_start_loc);
  const auto* lens = reinterpret_cast<const int32_t*>(seq_len);
  positions.assign(tokens, tokens + rows);
  rotations = positions;
  if (nodes) {
    const auto* depths = reinterpret_cast<const int64_t*>(branch_position);
    const auto* places_of_roots = reinterpret_cast<const int64_t*>(root);
    const auto* seen = reinterpret_cast<const bool*>(visible);
    rotations.assign(depths, depths + rows);
    roots.assign(places_of_roots, places_of_roots + requests);
    sees.assign(seen, seen + nodes * nodes);
  }
  for (int64_t t = 0; t < rows; ++t) new_slots.push_back(places[t] < num_slots ? places[t] : -1);
  for (int64_t b = 0; b <= requests; ++b) first_row.push_back(std::clamp<int64_t>(starts[b], 0, rows));
  for (int64_t b = 0; b < requests; ++b) {
    const auto* table = reinterpret_cast<const int32_t*>(block_table) + b * blocks;
    const int64_t len = std::clamp<int64_t>(lens[b], 1, blocks * block_size);
    for (int64_t j = 0; j < len; ++j) {
      const int64_t slot = table[j / block_size] * block_size + j % block_size;
      slots.push_back(std::clamp<int64_t>(slot, 0, num_slots - 1));
    }
    first_slot.push_back(static_cast<int64_t>(slots.size()));
  }
}

void PagedAttention::operator()(float* out, const float* qkv, const PagedBatch& batch, float* cache) const {
  const int64_t width = 2 * num_kv_heads * head_dim, row_size = num_heads * head_dim + width;
  const int64_t per_kv = num_heads / num_kv_heads;
  const auto turn = [&](float* to, const float* from, int64_t t, float by) {
    const int64_t position = std::clamp<int64_t>(batch.rotations[t], 0, num_positions - 1);
    rotate(to, from, cosine + position * head_dim, sine + position * head_dim, head_dim, by);
  };

  for (int64_t t = 0; t < batch.rows(); ++t) {
    if (batch.new_slots[t] < 0) continue;
    const float* keys = qkv + t * row_size + num_heads * head_dim;
    float* stored = cache + batch.new_slots[t] * width;
    for (int64_t head = 0; head < num_kv_heads; ++head) turn(stored + head * head_dim, keys + head * head_dim, t, 1);
    std::copy_n(keys + width / 2, width / 2, stored + width / 2);
  }

  const int64_t work = batch.rows() * num_heads * static_cast<int64_t>(batch.slots.size()) / batch.requests();
#pragma omp parallel for schedule(dynamic) if (work >= kParallelWork)
  for (int64_t b = 0; b < batch.requests(); ++b) {
    const int64_t* slots = batch.slots.data() + batch.first_slot[b];
    const int64_t len = batch.first_slot[b + 1] - batch.first_slot[b];
    std::vector<float> queries(kTokens * num_heads * head_dim), weights(kTokens * num_heads * len);
    for (int64_t first = batch.first_row[b]; first < batch.first_row[b + 1]; first += kTokens) {
      const int64_t tokens = std::min(kTokens, batch.first_row[b + 1] - first);
      // Queries are in the order of heads, then tokens. `visit` calls for each of them and each block of keys. Slots
      // lie anywhere, so that the block after it is fetched meanwhile: after the last keys, the first values.
      const auto place = [&](int64_t q) { return std::max<int64_t>(batch.positions[first + q % tokens], 0); };
      const auto count = [&](int64_t q) { return std::min(place(q) + 1, len); };
      const auto set_other_branches = [&](int64_t q, float weight) {
        const int64_t root = batch.roots.empty() ? -1 : batch.roots[b];
        if (root < 0) return;
        for (int64_t j = root; j < count(q); ++j) {
          if (!batch.is_seen(place(q) - root, j - root)) weights[q * len + j] = weight;
        }
      };
      const auto fetch = [&](int64_t j, int64_t part) {
        for (const int64_t* slot = slots + j; slot < slots + std::min(len, j + kKeys); ++slot) {
          const float* row = cache + *slot * width + part * width / 2;
          for (int64_t d = 0; d < width / 2; d += 16) __builtin_prefetch(row + d, 0, 2);
        }
      };
      const auto visit = [&](int64_t part, auto&& function) {
        for (int64_t j = 0; j < len; j += kKeys) {
          if (j + kKeys < len) {
            fetch(j + kKeys, part);
          } else if (part == 0) {
            fetch(0, 1);
          }
          for (int64_t q = 0; q < num_heads * tokens; ++q) {
            const int64_t keys = std::min(kKeys, count(q) - j);
            if (keys > 0) function(q, cache + q / tokens / per_kv * head_dim, j, keys);
          }
        }
      };
      const auto result = [&](int64_t q) { return out + ((first + q % tokens) * num_heads + q / tokens) * head_dim; };
      fetch(0, 0);
      for (int64_t q = 0; q < num_heads * tokens; ++q) {
        const int64_t t = first + q % tokens;
        turn(queries.data() + q * head_dim, qkv + t * row_size + q / tokens * head_dim, t, scale);
        std::fill_n(result(q), head_dim, 0.0f);
      }
      visit(0, [&](int64_t q, const float* keys, int64_t j, int64_t n) {
        score(weights.data() + q * len + j, queries.data() + q * head_dim, keys, width, slots + j, n, head_dim);
      });
      for (int64_t q = 0; q < num_heads * tokens; ++q) {
        set_other_branches(q, std::numeric_limits<float>::lowest());
        softmax(weights.data() + q * len, count(q));
        set_other_branches(q, 0);
      }
      visit(1, [&](int64_t q, const float* keys, int64_t j, int64_t n) {
        mix(result(q), weights.data() + q * len + j, keys + width / 2, width, slots + j, n, head_dim);
      });
    }
  }
}

const Registration registration([](nb::module_& m) {
  nb::class_<PagedBatch>(m, "PagedBatch")
      .def(nb::init<uintptr_t, uintptr_t, int64_t, uintptr_t, uintptr_t, int64_t, uintptr_t, int64_t, int64_t, int64_t,
                    uintptr_t, uintptr_t, uintptr_t, int64_t>(),
           nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
           nb::arg() = 0, nb::arg() = 0, nb::arg() = 0, nb::arg() = 0);
});

}  // namespace verispec
