"""Kernels and end-to-end samplers: greedy argmax matching, rejection rules, input preparation."""
