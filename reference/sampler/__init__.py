"""Whole samplers: logits and drafts in, tokens out.

`flat` is the flat, request-major family: probabilities and random numbers are tensors. Logits processors, draft
sampling and log-probabilities have modules of their own. Kernels are reached through `ops` alone.
"""
