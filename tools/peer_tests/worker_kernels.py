"""Pytest plugin: give vLLM's unit tests the kernels that its CPU worker has.

vLLM registers the CPU implementations of its Triton kernels when a worker starts. Unit tests start no
worker, so on the CPU every kernel launch in them would have no effect.
"""

from __future__ import annotations

from verispec.engines.adapters.vllm.installed import fallbacks


def pytest_configure() -> None:
    """Install the kernels before the tests are collected."""
    with fallbacks.quiet():
        from vllm.platforms import current_platform

        fallbacks.install(current_platform)
