"""verispec: a conformance and regression test harness for speculative decoding."""

__version__ = "0.1.0"
