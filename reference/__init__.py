"""The reference engine: contracts, oracle, CPU and GPU kernels, samplers, proposers and runners.

Always import it as ``verispec.reference``; the source folder ``reference/`` is mapped there.
"""
