"""End-to-end samplers: logits and draft tokens in, tokens out.

`flat` serves packed batches: probabilities and random samples are tensors. `request_state` serves slot-indexed batches:
it reads logits, uses a counter-based RNG and never waits for the device. Logits processors, draft sampling and
log-probabilities have their own modules. All of them reach kernels through `ops`.
"""
