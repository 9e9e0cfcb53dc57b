// flatten_sampled: concatenate ragged rows of tokens. Clauses FLS-*.

#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

void flatten_sampled(const Tensor& flat_sampled, const Tensor& sampled, const Tensor& num_sampled,
                     const Tensor& cu_num_logits) {
  const Integers flat(flat_sampled), tokens(sampled), counts(num_sampled), rows(cu_num_logits);
  for (int64_t b = 0; b < counts.size(); ++b) {
    const int64_t first = rows.get(b);
    const int64_t count = std::min({counts.get(b), rows.get(b + 1) - first, sampled.shape[1]});
    for (int64_t i = 0; i < count; ++i) flat.set(first + i, tokens.get(b, i));
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("flatten_sampled", &flatten_sampled, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
