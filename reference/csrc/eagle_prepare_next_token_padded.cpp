// eagle_prepare_next_token_padded: the drafter's next input token. Clauses ENT-*.

#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

void eagle_prepare_next_token_padded(const Tensor& sampled_token_ids, const Tensor& discard_request_mask,
                                     const Tensor& backup_next_token_ids, const Tensor& next_token_ids,
                                     const Tensor& valid_sampled_tokens_count, int64_t vocab_size,
                                     int64_t num_sampled_tokens_per_req, int64_t num_reqs,
                                     int64_t /*stride_sampled_token_ids: the tensor's own*/) {
  const Integers sampled(sampled_token_ids), backup(backup_next_token_ids);
  const Integers next(next_token_ids), valid(valid_sampled_tokens_count);
  const Flags discarded(discard_request_mask);

#pragma omp parallel for schedule(static) if (num_reqs * num_sampled_tokens_per_req >= kParallelWork)
  for (int64_t b = 0; b < num_reqs; ++b) {
    int64_t count = 0, last = backup.get(b);
    if (!discarded.get(b)) {
      for (int64_t i = 0; i < num_sampled_tokens_per_req; ++i) {
        const int64_t token = sampled.get(b, i);
        if (token >= 0 && token < vocab_size) {
          ++count;
          last = token;
        }
      }
    }
    next.set(b, last);
    valid.set(b, count);
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("eagle_prepare_next_token_padded", &eagle_prepare_next_token_padded, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
