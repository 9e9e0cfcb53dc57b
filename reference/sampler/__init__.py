"""Whole samplers: logits and drafts in, tokens out.

`flat` is the flat, request-major family: probabilities and random numbers are tensors. `request_state` is the
request-state family: it reads logits, counts its random numbers and never waits for the device. Logits processors,
draft sampling and log-probabilities have modules of their own. Kernels are reached through `ops` alone.
"""
