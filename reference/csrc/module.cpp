// The extension module verispec.reference._csrc. It is private: verispec.reference.cpu validates every call
// and passes addresses.

#include "ops.h"

NB_MODULE(_csrc, m) {
  // The callables live as long as the process; do not report them as leaks at exit.
  nanobind::set_leak_warnings(false);
  m.doc() = "CPU kernels of the reference engine; call them through verispec.reference.cpu.";
  verispec::bind_apply_top_k_top_p(m);
  verispec::bind_block_verification(m);
  verispec::bind_compute_slot_mapping(m);
  verispec::bind_copy_and_expand_eagle_inputs(m);
  verispec::bind_decoder_layer(m);
  verispec::bind_eagle_prepare_inputs_padded(m);
  verispec::bind_eagle_prepare_next_token_padded(m);
  verispec::bind_eagle_step_slot_mapping_metadata(m);
  verispec::bind_expand_batch_to_tokens(m);
  verispec::bind_flatten_sampled(m);
  verispec::bind_gather_draft_logits_and_target_argmax(m);
  verispec::bind_gumbel_sample(m);
  verispec::bind_linear(m);
  verispec::bind_paged_attention(m);
  verispec::bind_philox(m);
  verispec::bind_probabilistic_rejection(m);
  verispec::bind_rejection_greedy_sample(m);
  verispec::bind_rejection_random_sample(m);
  verispec::bind_residual_resample(m);
  verispec::bind_rms_norm(m);
  verispec::bind_rows(m);
  verispec::bind_sample_recovered_tokens(m);
  verispec::bind_synthetic_rejection(m);
  verispec::bind_verify_draft_logits(m);
  verispec::bind_verify_greedy(m);
  verispec::bind_verify_one_hot(m);
}
