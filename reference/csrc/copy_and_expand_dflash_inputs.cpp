// copy_and_expand_dflash_inputs: place target tokens as context, and next and mask tokens as queries. Clauses CDI-*.

#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

void copy_and_expand_dflash_inputs(const Tensor& next_token_ids, const Tensor& target_positions,
                                   const Tensor& out_input_ids, const Tensor& out_context_positions,
                                   const Tensor& out_query_positions, const Tensor& out_context_slot_mapping,
                                   const Tensor& out_query_slot_mapping, const Tensor& out_token_indices,
                                   const Tensor& block_table, int64_t /*block_table_stride: the tensor's own*/,
                                   const Tensor& query_start_loc, const std::optional<Tensor>& num_rejected_tokens,
                                   int64_t parallel_drafting_token_id, int64_t block_size, int64_t num_query_per_req,
                                   int64_t num_speculative_tokens, int64_t total_input_tokens,
                                   bool has_num_rejected) {
  const Integers next(next_token_ids), target_position(target_positions), blocks(block_table);
  const Integers ids(out_input_ids), query_positions(out_query_positions), query_slots(out_query_slot_mapping);
  const Integers context_positions(out_context_positions), context_slots(out_context_slot_mapping);
  const Integers indices(out_token_indices), starts(query_start_loc);
  const int64_t requests = next.size(), columns = block_table.shape[1];

  const auto slot_of = [&](int64_t request, int64_t position) {
    const int64_t column = std::min(std::max<int64_t>(position / block_size, 0), columns - 1);
    const int64_t block = column < 0 ? 0 : blocks.get(request, column);  // a table without columns has no block
    return block * block_size + position % block_size;
  };

#pragma omp parallel for schedule(static) if (total_input_tokens + requests * num_query_per_req >= kParallelWork)
  for (int64_t b = 0; b < requests; ++b) {
    const int64_t begin = std::clamp<int64_t>(starts.get(b), 0, total_input_tokens);
    const int64_t end = std::clamp<int64_t>(starts.get(b + 1), begin, total_input_tokens);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t position = target_position.get(i);
      context_positions.set(i, position);
      context_slots.set(i, slot_of(b, position));
    }

    const int64_t rejected = has_num_rejected ? Integers(*num_rejected_tokens).get(b) : 0;
    int64_t before = -1;
    if (begin < end) before = target_position.get(std::clamp<int64_t>(end - 1 - rejected, begin, end - 1));
    const int64_t first_query = b * num_query_per_req;
    for (int64_t j = 0; j < num_query_per_req; ++j) {
      const int64_t position = before + 1 + j;
      ids.set(first_query + j, j == 0 ? next.get(b) : parallel_drafting_token_id);
      query_positions.set(first_query + j, position);
      query_slots.set(first_query + j, slot_of(b, position));
    }
    for (int64_t j = 0; j < num_speculative_tokens; ++j) {
      indices.set(b * num_speculative_tokens + j, first_query + 1 + j);
    }
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("copy_and_expand_dflash_inputs", &copy_and_expand_dflash_inputs, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
