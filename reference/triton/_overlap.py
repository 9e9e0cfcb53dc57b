"""Launches whose start overlaps the end of the launch before ("programmatic dependent launch", Hopper and newer)."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl


def overlapping(tensor: Any) -> dict[str, Any]:
    """Return the options of such a launch on the device of `tensor`; none of its effect on other devices.

    A kernel that gets them calls `after_launches_before` first.
    """
    if _can_overlap(tensor.device):
        return {"OVERLAPS": True, "launch_pdl": True}
    return {"OVERLAPS": False}


@cache
def _can_overlap(device: Any) -> bool:
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return bool(torch.cuda.get_device_capability(device) >= (9, 0))


@triton.jit
def after_launches_before(OVERLAPS: tl.constexpr):
    """Wait until all launches before have ended and their results can be read."""
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
