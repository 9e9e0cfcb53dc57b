// rejection_random_sample: verify draft tokens of sampled requests by the ratio p/q. Clauses RRS-*.

#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

void rejection_random_sample(const Tensor& output_token_ids, const Tensor& cu_num_draft_tokens,
                             const Tensor& draft_token_ids, const std::optional<Tensor>& draft_probs,
                             const Tensor& target_probs, const Tensor& bonus_token_ids,
                             const Tensor& recovered_token_ids, const Tensor& uniform_probs, const Tensor& is_greedy,
                             int64_t max_spec_len, int64_t vocab_size,
                             const std::optional<Tensor>& synthetic_conditional_rates, bool no_draft_probs,
                             bool synthetic_mode) {
  const Integers output(output_token_ids), drafts(draft_token_ids), bonus(bonus_token_ids);
  const Integers recovered(recovered_token_ids);
  const Reals target(target_probs), uniform(uniform_probs);
  const Flags greedy(is_greedy);
  const Segments tokens(cu_num_draft_tokens, drafts.size());

  // Widen everything to double, which is exact, so that u keeps its precision. Every comparison with
  // NaN is false and rejects.
  const auto accepts = [&](int64_t token, int64_t position) {
    const int64_t draft = drafts.get(token);
    if (draft < 0 || draft >= vocab_size) return false;
    const double u = uniform.get(token);
    if (synthetic_mode) return u < Reals(*synthetic_conditional_rates).get(position);
    const double q = no_draft_probs ? 1.0 : Reals(*draft_probs).get(token, draft);
    return q > 0.0 && target.get(token, draft) / q >= u;
  };

#pragma omp parallel for schedule(static) if (drafts.size() >= kParallelWork)
  for (int64_t b = 0; b < tokens.size(); ++b) {
    if (greedy.get(b)) continue;
    const int64_t begin = tokens.begin(b);
    const int64_t count = std::min(tokens.end(b) - begin, max_spec_len);
    int64_t position = 0;
    for (; position < count && accepts(begin + position, position); ++position) {
      output.set(b, position, drafts.get(begin + position));
    }
    output.set(b, position, position < count ? recovered.get(begin + position) : bonus.get(b));
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("rejection_random_sample", &rejection_random_sample, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
