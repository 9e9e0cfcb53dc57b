"""Kernels and whole samplers: greedy argmax matching, rejection rules, input preparation."""
