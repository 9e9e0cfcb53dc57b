// synthetic_rejection: accept draft tokens by rate. Clauses SYN-*.

#include "ops.h"
#include "philox.h"
#include "tensor.h"

namespace verispec {
namespace {

void synthetic_rejection(const Tensor& sampled, const Tensor& num_sampled, const Tensor& target_sampled,
                         const Tensor& draft_sampled, const Tensor& cu_num_logits, const Tensor& pos,
                         const Tensor& idx_mapping, const Tensor& seed, const Tensor& acceptance_rates) {
  const Integers out(sampled), counts(num_sampled), target(target_sampled), draft_tokens(draft_sampled),
      rows(cu_num_logits), positions(pos), states(idx_mapping), seeds(seed);
  const Reals rates(acceptance_rates);
  for (int64_t b = 0; b < states.size(); ++b) {
    const int64_t state = states.get(b), first = rows.get(b), drafts = rows.get(b + 1) - first - 1;
    if (state < 0 || state >= seeds.size() || drafts < 0) continue;
    int64_t step = 0;
    for (; step < drafts; ++step) {
      const int64_t draft = draft_tokens.get(first + step + 1);
      const double rate = step < acceptance_rates.size() ? rates.get(step) : 0.0;
      const double u = Numbers(seeds.get(state), positions.get(first + step), step, Draw::accept).uniform();
      if (draft < 0 || !(u < rate)) break;
      out.set(b, step, draft);
    }
    out.set(b, step, target.get(first + step));
    counts.set(b, step + 1);
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("synthetic_rejection", &synthetic_rejection, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
