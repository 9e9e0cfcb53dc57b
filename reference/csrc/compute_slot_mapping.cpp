// compute_slot_mapping: the KV slot of every scheduled token. Clauses CSM-*.

#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

void compute_slot_mapping(int64_t num_tokens, int64_t max_num_tokens, const Tensor& query_start_loc,
                          const Tensor& positions, const Tensor& block_table,
                          int64_t /*block_table_stride: the tensor's own*/, const Tensor& slot_mapping,
                          int64_t kv_cache_block_size, int64_t total_cp_world_size, int64_t total_cp_rank,
                          int64_t cp_kv_cache_interleave_size, int64_t pad_id) {
  const Integers starts(query_start_loc), position(positions), blocks(block_table), slots(slot_mapping);
  const int64_t columns = block_table.shape[1];
  const int64_t entry = kv_cache_block_size * total_cp_world_size;  // positions of one table entry, on all ranks

  const auto slot_of = [&](int64_t request, int64_t place) {
    if (place < 0 || place / entry >= columns) return pad_id;
    const int64_t run = place % entry / cp_kv_cache_interleave_size;
    if (run % total_cp_world_size != total_cp_rank) return pad_id;
    const int64_t local = run / total_cp_world_size * cp_kv_cache_interleave_size +
                          place % entry % cp_kv_cache_interleave_size;
    return blocks.get(request, place / entry) * kv_cache_block_size + local;
  };

#pragma omp parallel for schedule(static) if (num_tokens >= kParallelWork)
  for (int64_t b = 0; b < starts.size() - 1; ++b) {
    const int64_t end = std::min(starts.get(b + 1), num_tokens);
    for (int64_t i = std::max<int64_t>(starts.get(b), 0); i < end; ++i) slots.set(i, slot_of(b, position.get(i)));
  }
  for (int64_t i = num_tokens; i < max_num_tokens; ++i) slots.set(i, pad_id);
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("compute_slot_mapping", &compute_slot_mapping, nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
