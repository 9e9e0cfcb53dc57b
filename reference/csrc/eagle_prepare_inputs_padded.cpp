// eagle_prepare_inputs_padded: the row that the drafter samples from after verification. Clauses EPI-*.

#include <limits>

#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

void eagle_prepare_inputs_padded(const Tensor& cu_num_draft_tokens, const Tensor& valid_sampled_tokens_count,
                                 const Tensor& query_start_loc, const Tensor& token_indices_to_sample,
                                 const Tensor& num_rejected_tokens, int64_t num_reqs) {
  const Integers valid(valid_sampled_tokens_count), starts(query_start_loc);
  const Integers indices(token_indices_to_sample), rejected(num_rejected_tokens);
  // The sums are not used as indices here.
  const Segments drafts(cu_num_draft_tokens, std::numeric_limits<int64_t>::max());

#pragma omp parallel for schedule(static) if (num_reqs >= kParallelWork)
  for (int64_t b = 0; b < num_reqs; ++b) {
    const int64_t count = drafts.end(b) - drafts.begin(b);
    const int64_t lost = count > 0 ? count + 1 - valid.get(b) : 0;
    rejected.set(b, lost);
    indices.set(b, starts.get(b + 1) - 1 - lost);
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("eagle_prepare_inputs_padded", &eagle_prepare_inputs_padded, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
