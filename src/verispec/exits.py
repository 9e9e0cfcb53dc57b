"""Exit codes of every command, compatible with ``git bisect run verispec ...``."""

GOOD = 0
BAD = 1
CANNOT_TELL = 125
USAGE = 2
