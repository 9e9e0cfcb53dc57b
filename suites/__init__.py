"""The suites that judge any engine; run them with ``verispec run``, not with a bare pytest."""
