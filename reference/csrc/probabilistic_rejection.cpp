// probabilistic_rejection: accept draft tokens while log p > log u + log q. Clauses PRJ-*.

#include "ops.h"
#include "request_state.h"

namespace verispec {
namespace {

void probabilistic_rejection(const Tensor& sampled, const Tensor& num_accepted, const Tensor& target_logsumexp,
                             const Tensor& draft_logsumexp, const Tensor& target_logits,
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
#pragma omp for schedule(dynamic)
    for (int64_t b = 0; b < batch.size(); ++b) {
      const int64_t state = batch.state(b);
      if (state < 0) continue;
      const double scale = batch.temperature.get(state);
      if (scale == 0.0) {
        accepted.set(b, batch.accept_while_argmax(b, out, target));
        continue;
      }
      int64_t step = 0;
      for (; step < batch.drafts(b); ++step) {
        const int64_t row = batch.first(b) + step, token = batch.draft_sampled.get(row + 1);
        if (!batch.is_draft(token, step)) break;
        read_row(target_logits, row, -1, vocabulary, 1, target);
        const double target_lse = logsumexp(target);
        double draft_lse = 0, log_q = 0;
        if (draft_logits) {
          read_row(*draft_logits, state, step, vocabulary, scale, draft_row);
          draft_lse = logsumexp(draft_row);
          log_q = log_prob(draft_row[token], draft_lse);
        }
        if (!(log_prob(target[token], target_lse) > std::log(batch.uniform(state, row, step)) + log_q)) {
          *target_logsumexp.at<float>(b) = static_cast<float>(target_lse);
          *draft_logsumexp.at<float>(b) = static_cast<float>(draft_lse);
          break;
        }
        out.set(b, step, token);
      }
      accepted.set(b, step);
    }
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("probabilistic_rejection", &probabilistic_rejection, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
