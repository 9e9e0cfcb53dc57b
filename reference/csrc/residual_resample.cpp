// residual_resample: sample the token after the accepted draft tokens. Clauses RSR-*.

#include "ops.h"
#include "request_state.h"

namespace verispec {
namespace {

// Return log(max(p - q, 0)) without cancellation for small q; minus infinity where q >= p.
double log_residual(double log_p, double log_q) {
  return log_p > log_q ? log_p + std::log1p(-std::exp(log_q - log_p)) : kLowest;
}

void residual_resample(const Tensor& sampled, const Tensor& num_sampled, const Tensor& num_accepted,
                       const Tensor& target_logsumexp, const Tensor& draft_logsumexp,
                       const std::optional<Tensor>& log_prefix_ratio, const Tensor& target_logits,
                       const std::optional<Tensor>& draft_logits, const Tensor& draft_sampled,
                       const Tensor& cu_num_logits, const Tensor& pos, const Tensor& idx_mapping,
                       const Tensor& temperature, const Tensor& seed) {
  const Batch batch{target_logits,           draft_logits, Integers(draft_sampled), Integers(cu_num_logits), Integers(pos),
                    Integers(idx_mapping), Integers(seed), Reals(temperature), seed.size()};
  const Integers out(sampled), counts(num_sampled), accepted(num_accepted);
  const int64_t vocabulary = batch.vocabulary();

#pragma omp parallel if (batch.size() * vocabulary >= kParallelWork)
  {
    std::vector<double> target, weights;
#pragma omp for schedule(dynamic)
    for (int64_t b = 0; b < batch.size(); ++b) {
      const int64_t state = batch.state(b);
      if (state < 0) continue;
      const int64_t step = std::clamp<int64_t>(accepted.get(b), 0, batch.drafts(b)), row = batch.first(b) + step;
      counts.set(b, step + 1);
      const bool is_bonus = step == batch.drafts(b);
      const double scale = batch.temperature.get(state);
      if (scale == 0.0 && !is_bonus) continue;
      read_row(target_logits, row, -1, vocabulary, 1, target);
      if (scale == 0.0) {
        out.set(b, step, argmax(target));
        continue;
      }
      const Numbers numbers(batch.seed.get(state), batch.pos.get(row), step, Draw::target);
      const int64_t token = is_bonus ? -1 : batch.draft_sampled.get(row + 1);
      int64_t winner = -1;
      if (!batch.is_draft(token, step)) {
        winner = gumbel_argmax(target, numbers);
      } else if (draft_logits) {
        const double target_lse = *target_logsumexp.at<float>(b), draft_lse = *draft_logsumexp.at<float>(b);
        const double log_ratio = log_prefix_ratio ? *log_prefix_ratio->at<float>(b) : 0.0;
        read_row(*draft_logits, state, step, vocabulary, scale, weights);
        const auto scaled_log_p = [&](int64_t x) { return log_prob(target[x], target_lse) + log_ratio; };
        winner = gumbel_argmax(vocabulary, numbers, scaled_log_p, [&](int64_t x) {
          return log_residual(scaled_log_p(x), log_prob(weights[x], draft_lse));
        });
      } else {
        weights = target;
        weights[token] = kLowest;
        winner = gumbel_argmax(weights, numbers);
      }
      if (winner < 0) winner = gumbel_argmax(target, numbers);
      out.set(b, step, std::max<int64_t>(winner, 0));
    }
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("residual_resample", &residual_resample, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
