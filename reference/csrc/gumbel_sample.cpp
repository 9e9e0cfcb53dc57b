// gumbel_sample: sample one token per row, and store a drafter's logits for verification. Clauses GUM-*.

#include "ops.h"
#include "request_state.h"

namespace verispec {
namespace {

// Round to nearest, ties to even; NaN stays NaN.
uint16_t round_to_bfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

uint16_t round_to_float16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 2^16 and above
  if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24, rounded by an addition
    float shifted;
    std::memcpy(&shifted, &magnitude, sizeof shifted);
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(shifted * 0x1p24f)));
  }
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
}

// Store a logit and return the stored value.
double store(const Tensor& cache, int64_t state, int64_t step, int64_t token, double logit) {
  const float value = static_cast<float>(logit);
  if (cache.type == Type::float32) {
    *cache.at<float>(state, step, token) = value;
    return value;
  }
  const bool is_bfloat16 = cache.type == Type::bfloat16;
  const uint16_t bits = is_bfloat16 ? round_to_bfloat16(value) : round_to_float16(value);
  *cache.at<uint16_t>(state, step, token) = bits;
  return is_bfloat16 ? widen_bfloat16(bits) : widen_float16(bits);
}

void gumbel_sample(const Tensor& sampled, const Tensor& logits, const Tensor& expanded_idx_mapping,
                   const Tensor& temperature, const Tensor& seed, const Tensor& pos, bool apply_temperature,
                   bool is_drafting, const std::optional<Tensor>& logits_cache,
                   const std::optional<Tensor>& logits_cache_col) {
  const Integers out(sampled), states(expanded_idx_mapping), seeds(seed), positions(pos);
  const Reals values(logits), temperatures(temperature);
  const int64_t vocabulary = logits.shape[1];

#pragma omp parallel if (logits.size() * vocabulary >= kParallelWork)
  {
    std::vector<double> weights(vocabulary);
#pragma omp for schedule(dynamic)
    for (int64_t t = 0; t < logits.size(); ++t) {
      const int64_t state = states.get(t);
      if (state < 0 || state >= seeds.size()) continue;
      const int64_t step = logits_cache_col ? Integers(*logits_cache_col).get(t) : 0;
      const bool is_kept = logits_cache && step >= 0 && step < logits_cache->shape[1];
      const double scale = temperatures.get(state);
      const double divisor = apply_temperature && scale != 0.0 ? scale : 1.0;
      for (int64_t x = 0; x < vocabulary; ++x) {
        double logit = values.get(t, x);
        if (is_kept) logit = store(*logits_cache, state, step, x, logit);
        weights[x] = std::isnan(logit) ? kLowest : logit / divisor;
      }
      const Numbers numbers(seeds.get(state), positions.get(t), is_drafting ? step : 0,
                            is_drafting ? Draw::draft : Draw::target);
      out.set(t, scale == 0.0 ? argmax(weights) : std::max<int64_t>(gumbel_argmax(weights, numbers), 0));
    }
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("gumbel_sample", &gumbel_sample, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
