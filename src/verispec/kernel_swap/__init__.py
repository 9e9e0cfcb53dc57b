"""Kernel transplant: reference kernels in the place of an engine's, to see whether a fault goes away with them.

`search` decides which kernels to exchange, `trial` runs a command once with some exchanged, and
`graft` exchanges them inside the engine's process, where ``hook/sitecustomize.py`` brings it.
"""
