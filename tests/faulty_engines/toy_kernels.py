"""Small trees with a kernel and its caller, right and wrong, for tests of the gate's sources, outputs and bisection."""

from __future__ import annotations

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def draft_kernel(out_ptr, n, BLOCK: tl.constexpr):
    tl.store(out_ptr, n)
"""

CALL = """\
from pkg.kernels import draft_kernel


def launch(out, n):
    draft_kernel[(n,)](out, n, BLOCK=128)
"""

BAD_CALL = CALL.replace("BLOCK=128", "BLOCK=128, SYNTHETIC_MODE=True")
"""Passes what the kernel does not take: one error of rule SIG101."""

OTHER_BAD_CALL = CALL.replace("(out, n, BLOCK=128)", "(out, BLOCK=128)")
"""Leaves out what the kernel needs: one error of another rule."""

GOOD_TREE = {"pkg/__init__.py": "", "pkg/kernels.py": KERNEL, "pkg/caller.py": CALL}
BAD_TREE = {**GOOD_TREE, "pkg/caller.py": BAD_CALL}
