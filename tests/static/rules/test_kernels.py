"""SIG402, SIG403 and SIG404: bodies of kernels, of fallbacks, and host code around launches."""

import pytest

from verispec.static import Level

SAMPLER = """
from engine.compat import triton, tl

@triton.jit
def sample_kernel(out_ptr, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    if WIDE:
        tl.store(out_ptr, n)

def sample(out, n):
    block = {host}
    sample_kernel[(1,)](out, n, BLOCK=block, WIDE=True)
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
PLACEHOLDER = """
class Placeholder:
    def __init__(self):
        self.jit = lambda f: f
        self.Config = None
        self.cdiv = None
"""
FALLBACK = """
class Wrapper:
    def __init__(self, func):
        self.func = func
    def __getitem__(self, grid):
        return self.func

def impl(out, n, BLOCK=None, WIDE=False):
    {body}

kernel = Wrapper(impl)

def install():
    import engine.sampler
    engine.sampler.sample_kernel = kernel
"""


def sources(*, host="16", body="out[:] = n if WIDE else 0", installed=True):
    tree = {
        "engine/sampler.py": SAMPLER.format(host=host),
        "engine/compat.py": COMPAT,
        "engine/placeholder.py": PLACEHOLDER,
    }
    return {**tree, "engine/fallback.py": FALLBACK.format(body=body)} if installed else tree


def test_flag_that_a_fallback_never_reads(judged):
    (finding,) = judged("SIG402", sources(body="out[:] = n"))
    assert finding.level is Level.WARNING
    assert "WIDE" in finding.message and "BLOCK" not in finding.message


@pytest.mark.parametrize("body", ["out[:] = n if WIDE else 0", "assert not WIDE", "run = lambda: WIDE"])
def test_flag_that_a_fallback_reads_or_refuses(judged, body):
    assert judged("SIG402", sources(body=body)) == ()


def test_host_code_that_needs_triton(judged):
    (finding,) = judged("SIG404", sources(host="triton.next_power_of_2(n)"))
    assert finding.level is Level.ERROR
    assert "next_power_of_2" in finding.message
    assert (finding.location.path, finding.location.line) == ("engine/sampler.py", 10)


@pytest.mark.parametrize(
    ("host", "installed"), [("triton.cdiv(n, 2)", True), ("16", True), ("triton.next_power_of_2(n)", False)]
)
def test_host_code_that_the_placeholder_serves_or_nobody_reaches(judged, host, installed):
    assert judged("SIG404", sources(host=host, installed=installed)) == ()


ROWS = """
import triton
import triton.language as tl

@triton.jit
def first_kernel(out_ptr, stride):
    row = tl.program_id(0)
    tl.store(out_ptr + {product}, 0)

@triton.jit
def second_kernel(out_ptr, stride):
    row = tl.program_id(0){promoted}
    tl.store(out_ptr + row, 0)
"""


@pytest.mark.parametrize(
    ("index", "size", "level"),
    [
        ("row", "logits_stride", Level.WARNING),
        ("token_idx", "vocab_size", Level.WARNING),
        ("row", "stride", Level.NOTE),
        ("head", "logits_stride", Level.NOTE),
    ],
)
def test_row_times_stride(judged, index, size, level):
    """The level depends on whether the product can pass 2^31, not on what other kernels of the file do."""
    source = ROWS.format(product="row * stride", promoted="").replace("row", index).replace("stride", size)
    (finding,) = judged("SIG403", {"engine/k.py": source})
    assert finding.level is level
    assert finding.symbol == "engine.k.first_kernel"


def test_row_that_is_promoted_under_its_own_name(judged):
    source = ROWS.format(product="row * stride", promoted="").replace(
        "row = tl.program_id(0)\n", "row = tl.program_id(0)\n    row = row.to(tl.int64)\n"
    )
    assert judged("SIG403", {"engine/k.py": source}) == ()


@pytest.mark.parametrize("product", ["row.to(tl.int64) * stride", "row * 2", "row + stride"])
def test_row_that_is_promoted_or_not_scaled(judged, product):
    assert judged("SIG403", {"engine/k.py": ROWS.format(product=product, promoted="")}) == ()


@pytest.mark.parametrize(
    "products", [("row * logits_stride", "row * 2 * stride"), ("row * stride", "row * logits_stride")]
)
def test_one_of_several_products_may_overflow(judged, products):
    text = ROWS.format(product=f"{products[0]} + {products[1]}", promoted="")
    (finding,) = judged("SIG403", {"engine/k.py": text.replace("out_ptr, stride", "out_ptr, stride, logits_stride")})
    assert finding.level is Level.WARNING
