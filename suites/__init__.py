"""The suites that test any engine; run them with ``verispec run``, not with plain pytest."""
