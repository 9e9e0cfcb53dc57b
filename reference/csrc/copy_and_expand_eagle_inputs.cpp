// copy_and_expand_eagle_inputs: turn the target's tokens into the drafter's. Clauses CEE-*.

#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

void copy_and_expand_eagle_inputs(const Tensor& target_token_ids, const Tensor& target_positions,
                                  const Tensor& next_token_ids, const Tensor& out_input_ids,
                                  const Tensor& out_positions, const Tensor& out_is_rejected_token_mask,
                                  const Tensor& out_is_masked_token_mask, const Tensor& out_new_token_indices,
                                  const Tensor& out_hidden_state_mapping, const Tensor& query_start_loc,
                                  const Tensor& query_end_loc, int64_t padding_token_id,
                                  int64_t parallel_drafting_token_id, int64_t total_input_tokens,
                                  int64_t num_padding_slots_per_request, bool shift_input_ids) {
  const Integers target_ids(target_token_ids), target_position(target_positions), bonus(next_token_ids);
  const Integers ids(out_input_ids), positions(out_positions);
  const Integers new_tokens(out_new_token_indices), mapping(out_hidden_state_mapping);
  const Integers starts(query_start_loc), ends(query_end_loc);
  const Flags rejected(out_is_rejected_token_mask), masked(out_is_masked_token_mask);
  const int64_t dropped = shift_input_ids ? 1 : 0;
  const int64_t added = num_padding_slots_per_request;

#pragma omp parallel for schedule(static) if (total_input_tokens >= kParallelWork)
  for (int64_t b = 0; b < ends.size(); ++b) {
    // The check ensures 0 <= begin <= last < end <= total_input_tokens. Clamp them anyway, since they are indices.
    const int64_t begin = std::clamp<int64_t>(starts.get(b), 0, total_input_tokens);
    const int64_t end = std::clamp<int64_t>(starts.get(b + 1), begin, total_input_tokens);
    if (begin == end) continue;
    const int64_t last = std::clamp<int64_t>(ends.get(b), begin, end - 1);
    const int64_t first_slot = begin + b * (added - dropped);
    const int64_t first_new = last + 1 - begin - dropped;  // slots before it hold valid target tokens
    const int64_t first_rejected = first_new + added;
    const int64_t count = end - begin + added - dropped;

    for (int64_t j = 0; j < count; ++j) {
      const int64_t slot = first_slot + j;
      const bool is_rejected = j >= first_rejected;
      const bool is_mask = j > first_new && !is_rejected;
      ids.set(slot, j < first_new    ? target_ids.get(begin + dropped + j)
                    : j == first_new ? bonus.get(b)
                    : is_mask        ? parallel_drafting_token_id
                                     : padding_token_id);
      positions.set(slot, is_rejected ? 0 : target_position.get(begin) + j);
      rejected.set(slot, is_rejected);
      masked.set(slot, is_mask);
    }
    for (int64_t i = 0; i < added; ++i) new_tokens.set(b * added + i, first_slot + first_new + i);
    if (shift_input_ids) {
      for (int64_t j = 0; j < end - begin; ++j) mapping.set(begin + j, first_slot + j);
    }
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("copy_and_expand_eagle_inputs", &copy_and_expand_eagle_inputs, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
