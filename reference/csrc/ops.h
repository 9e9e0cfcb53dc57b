// One function per op, defined in the file of its name. Parameters are the contract's, in its order,
// without tuning parameters; each function is called without the GIL.

#pragma once

#include <nanobind/nanobind.h>

namespace verispec {

void bind_apply_top_k_top_p(nanobind::module_& m);
void bind_block_verification(nanobind::module_& m);
void bind_compute_slot_mapping(nanobind::module_& m);
void bind_copy_and_expand_eagle_inputs(nanobind::module_& m);
void bind_decoder_layer(nanobind::module_& m);
void bind_eagle_prepare_inputs_padded(nanobind::module_& m);
void bind_eagle_prepare_next_token_padded(nanobind::module_& m);
void bind_eagle_step_slot_mapping_metadata(nanobind::module_& m);
void bind_expand_batch_to_tokens(nanobind::module_& m);
void bind_flatten_sampled(nanobind::module_& m);
void bind_gather_draft_logits_and_target_argmax(nanobind::module_& m);
void bind_gumbel_sample(nanobind::module_& m);
void bind_linear(nanobind::module_& m);
void bind_paged_attention(nanobind::module_& m);
void bind_philox(nanobind::module_& m);
void bind_probabilistic_rejection(nanobind::module_& m);
void bind_rejection_greedy_sample(nanobind::module_& m);
void bind_rejection_random_sample(nanobind::module_& m);
void bind_residual_resample(nanobind::module_& m);
void bind_rms_norm(nanobind::module_& m);
void bind_rows(nanobind::module_& m);
void bind_sample_recovered_tokens(nanobind::module_& m);
void bind_synthetic_rejection(nanobind::module_& m);
void bind_verify_draft_logits(nanobind::module_& m);
void bind_verify_greedy(nanobind::module_& m);
void bind_verify_one_hot(nanobind::module_& m);

}  // namespace verispec
