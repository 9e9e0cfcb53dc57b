"""A run: suites in worker processes, watched by a supervisor, written down line by line.

Nothing here imports torch, pytest or an engine: those live in the workers.
"""
