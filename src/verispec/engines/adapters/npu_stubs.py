"""Values of an NPU's stubs: the attributes that vllm-ascend's samplers read, and nothing that computes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any


class Stream:
    """A stream of an NPU, which orders work and computes nothing."""

    def wait_stream(self, other: object) -> None:
        """Return at once, because everything on the stream `other` is done."""


def _settings() -> SimpleNamespace:
    """Its defaults: no reduced sampling, neither block nor entropy verification."""
    rules = SimpleNamespace(
        enable_block_verify=False, enable_entropy_verify=False, posterior_threshold=0.95, posterior_alpha=0.4
    )
    return SimpleNamespace(enable_reduce_sample=False, enable_async_exponential=False, rejection_sampler_config=rules)


REPLACED: Mapping[str, Mapping[str, Any]] = {
    "vllm_ascend.ascend_config": {"get_ascend_config": _settings},
    "vllm_ascend.utils": {
        "is_310p": lambda: False,
        "AscendDeviceType": SimpleNamespace(A2="A2", A3="A3"),
        # A device without the NPU's own top-k and top-p, so that those in PyTorch run.
        "get_ascend_device_type": lambda: "310P",
        "global_stream": Stream,
        "npu_stream_switch": nullcontext,
    },
    # Later releases ask how they were built, and since 0.30 an A2 takes top-k and top-p in PyTorch too.
    "vllm_ascend._build_info": {"__device_type__": "A2"},
    "vllm_ascend.sample.penalties": {},
    "vllm_ascend.ops.triton.reject_sample": {},
}
"""Modules of vllm-ascend that ask the NPU, with the values that its samplers take from them."""
