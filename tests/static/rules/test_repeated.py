"""A tree that is checked again gives the same findings, with names that stay from release to release."""

from __future__ import annotations

import pytest

TIMES = 25
"""A state that a check leaves behind may need some checks to fill."""
KERNELS = """
import triton
import triton.language as tl

@triton.jit
def offset(row, stride):
    return row * stride

@triton.jit
def accept(out, n, stride, WIDE: tl.constexpr):
    if WIDE:
        offset(n)

def launch(*args, **kwargs):
    accept[(1,)](*args, **kwargs)

def run(out, n):
    block = triton.next_power_of_2(n)
    accept[(block,)](out, n, 1, WIDE=2, SIZE=3)
    launch(out, n, WIDE=True)
"""
FALLBACK = """
import engine.k

class Launcher:
    def __init__(self, fn):
        self.fn = fn

    def __getitem__(self, grid):
        return self.fn

def accept(out, n, stride, WIDE=False):
    out[:] = n

engine.k.accept = Launcher(accept)
"""
DEEP = FALLBACK.replace("return self.fn", "return self.fn.inner")
"""Its launcher holds something that the checker cannot follow."""
PLACEHOLDER = """
class Placeholder:
    def __init__(self):
        self.jit = lambda f: f
        self.Config = None
"""
COMPAT = """
try:
    import triton
    import triton.language as tl
except ImportError:
    from engine.placeholder import Placeholder
    triton = Placeholder()
    tl = None
"""
HOST = """
from engine.compat import triton, tl

@triton.jit
def accept(out, n, stride, WIDE: tl.constexpr): ...

def run(out, n):
    block = triton.next_power_of_2(n)
    accept[(1,)](out, n, block, WIDE=True)
"""
NO_TRITON = KERNELS.replace("import triton\nimport triton.language as tl", "from engine.compat import triton, tl")
ENGINE = {
    "engine/k.py": NO_TRITON,
    "engine/compat.py": COMPAT,
    "engine/placeholder.py": PLACEHOLDER,
    "engine/fallback.py": FALLBACK,
}
CORE = {
    "core/ops.py": "def topk(logits, n, ids=None, state=None):\n    return logits\n",
    "core/sampler.py": "from core.ops import topk\n\ndef sample(x, st):\n    return topk(x, 1, state=st)\n",
}
PATCH = {
    "plug/patch.py": """
import core.ops
import core.sampler

def topk_npu(logits, ids):
    return logits

if hasattr(core.sampler, "topk") and ready:
    core.sampler.topk = topk_npu
    core.sampler.top = core.ops.topk_fast
if hasattr(core.sampler, "asked"):
    core.sampler.asked = topk_npu

def install():
    name = "topk"
    name = "named"
    setattr(core.sampler, name, topk_npu)
"""
}
OPS = {
    "csrc/a.cpp": """
int64_t width(const at::Tensor& x, bool b) { return 1; }
TORCH_LIBRARY(demo, m) { m.def("width(Tensor x) -> int"); }
TORCH_LIBRARY_IMPL(demo, CPU, m) { m.impl("width", TORCH_FN(width)); }
""",
    "engine/ops.py": """
import torch
from engine.utils import direct_register_custom_op

def resize(out, n, *, scale=1.0): ...
def resize_fake(out, *, scale=1.0): ...

direct_register_custom_op("resize", resize, ["out"], resize_fake)

def run(x):
    torch.ops.demo.width(x, 1)
""",
}
KERNELS_ALONE = {"engine/k.py": KERNELS}
NAMES: dict[str, tuple[dict[str, str], dict[str, str], list[str]]] = {
    "SIG101": (KERNELS_ALONE, {}, ["5a5b93db9c45512d"]),
    "SIG102": (KERNELS_ALONE, {}, ["3ffef67f0db82514"]),
    "SIG105": (KERNELS_ALONE, {}, ["e38518436a85b139"]),
    "SIG203": (PATCH, CORE, ["78673ac2f1caa933"]),
    "SIG204": (PATCH, CORE, ["63a6e85624cb1b54"]),
    "SIG205": (PATCH, CORE, ["73fbf91d01934d2f"]),
    "SIG207": (PATCH, CORE, ["a5213127183d00ad"]),
    "SIG301": (OPS, {}, ["07aabade093367ab"]),
    "SIG302": (OPS, {}, ["e9e28b2ee788074a"]),
    "SIG304": (OPS, {}, ["351cfec1767bac07"]),
    "SIG402": (ENGINE, {}, ["5420644bd65700b2"]),
    "SIG402 not": (ENGINE | {"engine/fallback.py": DEEP}, {}, []),
    "SIG404": (ENGINE | {"engine/k.py": HOST}, {}, ["a7f066287d6ba996"]),
}
"""Trees by rule, and the names of their findings, which users keep in baselines."""


@pytest.mark.parametrize("rule", NAMES)
def test_a_tree_that_is_checked_again(judged, rule: str) -> None:
    sources, core, names = NAMES[rule]
    rule = rule.removesuffix(" not")
    first = judged(rule, sources, core)
    assert [finding.fingerprint for finding in first] == names
    for _ in range(TIMES):
        assert judged(rule, sources, core) == first
