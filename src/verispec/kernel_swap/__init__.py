"""Kernel substitution: run an engine with the reference's kernels and check if a fault disappears.

`search` decides which kernels to exchange, `trial` runs a command once with some exchanged, and
`graft` exchanges them inside the engine's process, where ``hook/sitecustomize.py`` brings it.
"""
