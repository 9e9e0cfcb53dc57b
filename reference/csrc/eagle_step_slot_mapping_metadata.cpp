// eagle_step_slot_mapping_metadata: advance every request by one draft token. Clauses ESM-*.

#include "ops.h"
#include "tensor.h"

namespace verispec {
namespace {

void eagle_step_slot_mapping_metadata(const Tensor& positions, const Tensor& block_table,
                                      int64_t /*block_table_stride: the tensor's own*/, const Tensor& seq_lens,
                                      const Tensor& out_clamped_positions, const Tensor& out_slot_mapping,
                                      int64_t block_size, int64_t max_model_len, int64_t n_blocks_per_req,
                                      int64_t pad_id, int64_t batch_size) {
  // `clamped` may share the memory of `position`: read each row before writing it.
  const Integers position(positions), blocks(block_table), lengths(seq_lens);
  const Integers clamped(out_clamped_positions), slots(out_slot_mapping);

#pragma omp parallel for schedule(static) if (slots.size() >= kParallelWork)
  for (int64_t b = 0; b < slots.size(); ++b) {
    if (b >= batch_size) {
      slots.set(b, pad_id);
      continue;
    }
    const int64_t next = position.get(b) + 1;
    const bool fits = next >= 0 && next < max_model_len;
    if (fits) {
      const int64_t block = std::min(next / block_size, n_blocks_per_req - 1);
      slots.set(b, blocks.get(b, block) * block_size + next % block_size);
    } else {
      slots.set(b, pad_id);
    }
    clamped.set(b, fits ? next : 0);
    lengths.set(b, fits ? std::min(lengths.get(b) + 1, max_model_len) : 1);
  }
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.def("eagle_step_slot_mapping_metadata", &eagle_step_slot_mapping_metadata,
        nb::call_guard<nb::gil_scoped_release>());
});

}  // namespace verispec
