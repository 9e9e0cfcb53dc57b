"""Exit codes of every command, chosen so that ``git bisect run verispec ...`` works as it stands."""

GOOD = 0
BAD = 1
CANNOT_TELL = 125
USAGE = 2
