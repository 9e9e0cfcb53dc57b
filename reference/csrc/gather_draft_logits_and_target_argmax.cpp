// gather_draft_logits_and_target_argmax: collect what verification reads, by target row. Clauses GDL-*.

#include "ops.h"
#include "request_state.h"

namespace verispec {
namespace {

void copy(const Tensor& from, int64_t state, int64_t step, const Tensor& to, int64_t row, int64_t count) {
  for (int64_t x = 0; x < count; ++x) {
    if (to.type == Type::float32) {
      *to.at<float>(row, x) = *from.at<float>(state, step, x);
    } else {
      *to.at<uint16_t>(row, x) = *from.at<uint16_t>(state, step, x);
    }
  }
}

void gather_draft_logits_and_target_argmax(const Tensor& local_max, const Tensor& local_argmax,
                                           const std::optional<Tensor>& gathered_draft_logits,
                                           const Tensor& target_logits, const std::optional<Tensor>& draft_logits,
                                           const Tensor& expanded_idx_mapping, const Tensor& expanded_local_pos,
                                           const Tensor& temperature, int64_t block_size) {
  const Integers argmaxes(local_argmax), states(expanded_idx_mapping), steps(expanded_local_pos);
  const Reals temperatures(temperature);
  const int64_t rows = target_logits.size();
  const int64_t vocabulary =
      draft_logits ? std::min(target_logits.shape[1], draft_logits->shape[2]) : target_logits.shape[1];

#pragma omp parallel if (rows * vocabulary >= kParallelWork)
  {
    std::vector<double> logits;
#pragma omp for schedule(dynamic)
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t state = states.get(row), step = steps.get(row);
      const bool is_last = row + 1 == rows || states.get(row + 1) < 0 || steps.get(row + 1) == 0;
      if (state < 0 || state >= temperature.size() || is_last) continue;
      if (temperatures.get(state) == 0.0) {
        read_row(target_logits, row, -1, vocabulary, 1, logits);
        for (int64_t g = 0; g < local_max.shape[1] && g * block_size < vocabulary; ++g) {
          const auto begin = logits.begin() + g * block_size;
          const auto end = logits.begin() + std::min((g + 1) * block_size, vocabulary);
          const auto best = std::max_element(begin, end);
          *local_max.at<float>(row, g) = static_cast<float>(*best);
          argmaxes.set(row, g, best - logits.begin());
        }
      } else if (gathered_draft_logits && draft_logits && step >= 0 && step < draft_logits->shape[1]) {
        copy(*draft_logits, state, step, *gathered_draft_logits, row,
             std::min(vocabulary, gathered_draft_logits->shape[1]));
      }
    }
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("gather_draft_logits_and_target_argmax", &gather_draft_logits_and_target_argmax,
        nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
