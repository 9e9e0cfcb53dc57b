"""vLLM: the installed engine, and kernels extracted from any source tree."""
