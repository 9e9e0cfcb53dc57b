// block_verification: accept the longest prefix of draft tokens that passes its test. Clauses BLK-*.

#include "ops.h"
#include "request_state.h"

namespace verispec {
namespace {

// One draft row: its normalisers, and the joint ratio of the prefix that ends with its draft token.
struct Step {
  double target_lse, draft_lse, log_ratio;
};

void block_verification(const Tensor& sampled, const Tensor& num_accepted, const Tensor& target_logsumexp,
                        const Tensor& draft_logsumexp, const Tensor& log_prefix_ratio, const Tensor& target_logits,
                        const std::optional<Tensor>& draft_logits, const Tensor& draft_sampled,
                        const Tensor& cu_num_logits, const Tensor& pos, const Tensor& idx_mapping,
                        const Tensor& /*expanded_idx_mapping*/, const Tensor& /*expanded_local_pos*/,
                        const Tensor& temperature, const Tensor& seed) {
  const Batch batch{target_logits,           draft_logits, Integers(draft_sampled), Integers(cu_num_logits), Integers(pos),
                    Integers(idx_mapping), Integers(seed), Reals(temperature), seed.size()};
  const Integers out(sampled), accepted(num_accepted);
  const int64_t vocabulary = batch.vocabulary();

#pragma omp parallel if (target_logits.size() * vocabulary >= kParallelWork)
  {
    std::vector<double> target, draft_row;
    std::vector<Step> steps;
#pragma omp for schedule(dynamic)
    for (int64_t b = 0; b < batch.size(); ++b) {
      const int64_t state = batch.state(b);
      if (state < 0) continue;
      const double scale = batch.temperature.get(state);
      if (scale == 0.0) {
        accepted.set(b, batch.accept_while_argmax(b, out, target));
        continue;
      }
      // Test the prefix that ends before step i when row i is read, since its mass is a sum over that row.
      steps.clear();
      int64_t longest = 0;
      double ratio = 1, log_ratio = 0, u = 1;
      for (int64_t i = 0; i < batch.drafts(b); ++i) {
        const int64_t row = batch.first(b) + i, token = batch.draft_sampled.get(row + 1);
        if (!batch.is_draft(token, i)) break;
        read_row(target_logits, row, -1, vocabulary, 1, target);
        const double target_lse = logsumexp(target), log_p = log_prob(target[token], target_lse);
        double draft_lse = 0, log_q = 0, mass = ratio * (1 - std::exp(log_p));
        if (draft_logits) {
          read_row(*draft_logits, state, i, vocabulary, scale, draft_row);
          draft_lse = logsumexp(draft_row);
          log_q = log_prob(draft_row[token], draft_lse);
          mass = 0;
          for (int64_t x = 0; x < vocabulary; ++x) {
            const double p = std::exp(log_prob(target[x], target_lse)), q = std::exp(log_prob(draft_row[x], draft_lse));
            mass += std::max(ratio * p - q, 0.0);
          }
        }
        const double rest = mass + 1 - ratio;
        if (i > 0 && u <= (rest > 0 ? mass / rest : 1.0)) longest = i;
        // Zero stays zero, even if q is zero.
        const bool is_zero = log_p == kLowest || log_ratio == kLowest;
        log_ratio = is_zero ? kLowest : std::min(log_ratio + log_p - log_q, 0.0);
        ratio = std::exp(log_ratio);
        u = batch.uniform(state, row, i);
        steps.push_back({target_lse, draft_lse, log_ratio});
      }
      const int64_t length = static_cast<int64_t>(steps.size());
      if (length > 0 && u <= ratio) longest = length;

      for (int64_t i = 0; i < longest; ++i) out.set(b, i, batch.draft_sampled.get(batch.first(b) + i + 1));
      accepted.set(b, longest);
      if (longest < length) {
        *target_logsumexp.at<float>(b) = static_cast<float>(steps[longest].target_lse);
        *draft_logsumexp.at<float>(b) = static_cast<float>(steps[longest].draft_lse);
        *log_prefix_ratio.at<float>(b) = longest > 0 ? static_cast<float>(steps[longest - 1].log_ratio) : 0.0f;
      }
    }
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("block_verification", &block_verification, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
