"""A run: suites judged in child processes, watched by a supervisor, written down line by line.

Nothing here imports torch, pytest or an engine: those live in the child.
"""
