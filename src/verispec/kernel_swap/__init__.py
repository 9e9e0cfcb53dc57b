"""Kernel substitution: run an engine with the reference's kernels and check if a fault disappears.

`search` decides which kernels to exchange, and `run_command` runs a command once with some exchanged. `patch_vllm` and
`patch_sites` exchange them inside the engine's process, where ``hook/sitecustomize.py`` loads them.
"""
