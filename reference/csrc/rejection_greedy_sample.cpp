// rejection_greedy_sample: verify draft tokens of greedy requests by the target's argmax. Clauses RGS-*.

#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

void rejection_greedy_sample(const Tensor& output_token_ids, const Tensor& cu_num_draft_tokens,
                             const Tensor& draft_token_ids, const Tensor& target_argmax, const Tensor& bonus_token_ids,
                             const std::optional<Tensor>& is_greedy, int64_t max_spec_len,
                             const std::optional<Tensor>& uniform_probs,
                             const std::optional<Tensor>& synthetic_conditional_rates, bool synthetic_mode) {
  const Integers output(output_token_ids), drafts(draft_token_ids), argmax(target_argmax), bonus(bonus_token_ids);
  const Segments tokens(cu_num_draft_tokens, drafts.size());

  // Compare in double, which represents float32 exactly; the comparison is false for NaN.
  const auto accepts = [&](int64_t token, int64_t position) {
    const int64_t draft = drafts.get(token);
    if (!synthetic_mode) return draft == argmax.get(token);
    return draft >= 0 && Reals(*uniform_probs).get(token) < Reals(*synthetic_conditional_rates).get(position);
  };

#pragma omp parallel for schedule(static) if (drafts.size() >= kParallelWork)
  for (int64_t b = 0; b < tokens.size(); ++b) {
    if (is_greedy && !Flags(*is_greedy).get(b)) continue;
    const int64_t begin = tokens.begin(b);
    const int64_t count = std::min(tokens.end(b) - begin, max_spec_len);
    int64_t position = 0;
    for (; position < count && accepts(begin + position, position); ++position) {
      output.set(b, position, drafts.get(begin + position));
    }
    output.set(b, position, position < count ? argmax.get(begin + position) : bonus.get(b));
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("rejection_greedy_sample", &rejection_greedy_sample, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
