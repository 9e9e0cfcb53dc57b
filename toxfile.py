"""Skip the environments that need a GPU, with one clear line, on a machine that has no CUDA device."""

from __future__ import annotations

import ctypes
from typing import Any

from tox.plugin import impl
from tox.tox_env.api import ToxEnv
from tox.tox_env.errors import Skip


@impl
def tox_on_install(tox_env: ToxEnv, arguments: Any, section: str, of_type: str) -> None:
    """Raise `Skip` before anything is installed that needs a GPU, unless the CUDA driver reports a device."""
    name = tox_env.conf.name
    if name in ("gpu", "flashinfer") and (reason := why_no_cuda()):
        raise Skip(f"{reason}; the {name} environment needs an NVIDIA GPU and its driver")


def why_no_cuda() -> str:
    """Return why CUDA cannot be used here, or an empty string. Ask the driver, so that torch is not needed."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver (libcuda.so.1) found"
    if status := cuda.cuInit(0):
        return f"the NVIDIA driver reports error {status}"
    count = ctypes.c_int()
    if cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "the NVIDIA driver sees no GPU"
    return ""
