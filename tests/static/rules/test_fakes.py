"""SIG304 and SIG305: fake implementations of ops, and mutates_args; SIG302 for ops that Python registers."""

import pytest

from verispec.static import Level

DIRECT = """
import torch
from engine.utils import direct_register_custom_op

def resize(out, n, *, scale=1.0): ...
def resize_fake({fake}): ...

direct_register_custom_op({arguments})
"""
NAMED = 'op_name="resize", op_func=resize, mutates_args=["out"], fake_impl=resize_fake'
PLACED = '"resize", resize, ["out"], resize_fake'


@pytest.mark.parametrize("arguments", [NAMED, PLACED])
@pytest.mark.parametrize(
    ("fake", "expected"),
    [
        ("out, n, *, scale=1.0", 0),
        ("out, m, scale=1.0", 0),  # positionals may be renamed
        ("*args, **kwargs", 0),
        ("out, n, extra=None, *, scale=1.0", 0),
        ("out, *, scale=1.0", 1),
        ("out, n, extra, *, scale=1.0", 1),
        ("n, out, *, scale=1.0", 1),
        ("out, n", 1),  # fails with a scale that is not the default
    ],
)
def test_a_fake_beside_its_op(judged, arguments, fake, expected):
    found = judged("SIG304", {"engine/a.py": DIRECT.format(fake=fake, arguments=arguments)})
    assert [(finding.level, finding.level_if_new) for finding in found] == [(Level.WARNING, Level.ERROR)] * expected


@pytest.mark.parametrize("arguments", ["**options", "op_name=name, op_func=resize, fake_impl=resize_fake", "*options"])
def test_a_registration_that_cannot_be_followed(judged, arguments):
    assert judged("SIG304", {"engine/a.py": DIRECT.format(fake="", arguments=arguments)}) == ()


KEEP = """
from engine.utils import direct_register_custom_op
def keep(out): ...
direct_register_custom_op("keep", keep)
"""
"""A second op of the same library: its name is that by which several are called."""

DECORATED = """
import torch

@torch.library.custom_op("demo::fill", mutates_args=({mutates}))
def fill(out: torch.Tensor, value: int) -> None: ...

@{fake}
def _({params}): ...
"""


@pytest.mark.parametrize("fake", ["fill.register_fake", 'torch.library.register_fake("demo::fill")'])
def test_a_decorated_fake(judged, fake):
    for params, expected in (("out, value", 0), ("out", 1)):
        tree = {"engine/a.py": DECORATED.format(fake=fake, params=params, mutates='"out",')}
        assert len(judged("SIG304", tree)) == expected


@pytest.mark.parametrize(("mutates", "expected"), [('"out",', 0), ('"output",', 1), ("", 0)])
def test_mutates_args(judged, mutates, expected):
    tree = {"engine/a.py": DECORATED.format(fake="fill.register_fake", params="out, value", mutates=mutates)}
    assert len(judged("SIG305", tree)) == expected


def test_a_renamed_parameter_in_mutates_args(judged):
    text = DIRECT.format(fake="out, n, *, scale=1.0", arguments=NAMED)
    assert judged("SIG305", {"engine/a.py": text}) == ()
    (finding,) = judged("SIG305", {"engine/a.py": text.replace("def resize(out", "def resize(output")})
    assert (finding.level, finding.level_if_new, finding.symbol) == (Level.WARNING, Level.ERROR, "resize")


def test_a_registration_by_decorator(judged):
    text = """
    import torch
    from engine.utils import register_custom_op

    def _fake(x{more}): ...

    @register_custom_op({name}mutates_args=["out"], fake_impl=_fake)
    def fill({out}, x): ...

    def run(out, x):
        torch.ops.demo.{called}(out, {argument})
        torch.ops.demo.keep(out)
    """
    for name, called in (("", "fill"), ('op_name="paint", ', "paint")):
        good = {"name": name, "called": called, "out": "out", "more": ", y", "argument": "x"}
        for change, rule in (
            ({}, ""),
            ({"more": ""}, "SIG304"),
            ({"out": "o"}, "SIG305"),
            ({"argument": ""}, "SIG302"),
        ):
            tree = {"engine/a.py": text.format(**good | change), "engine/keep.py": KEEP}
            found = [r for r in ("SIG302", "SIG304", "SIG305") if judged(r, tree)]
            assert found == ([rule] if rule else [])


def test_an_op_of_another_library_with_the_same_name(judged):
    """SGLang registers a layernorm, and calls that of another package."""
    caller = "import torch\ndef run(out):\n    torch.ops.other.resize(out)\n    torch.ops.demo.keep(out)\n"
    tree = {"engine/a.py": DIRECT.format(fake="out, n, *, scale=1.0", arguments=NAMED), "engine/b.py": caller}
    assert judged("SIG302", tree) == ()
    assert judged("SIG302", {**tree, "engine/keep.py": KEEP}) == ()


CPP = """
TORCH_LIBRARY(demo, m) {
#ifdef USE_ROCM
  m.def("pack(Tensor x, int rows) -> Tensor");
#else
  m.def("pack(Tensor x, int rows, int columns) -> Tensor");
#endif
}
"""
FAKE = """
import torch
from torch.library import register_fake

@register_fake("demo::pack")
def _pack({params}):
    return x
"""


@pytest.mark.parametrize(("params", "expected"), [("x, rows", 0), ("x, rows, columns", 0), ("x", 1), ("x, a, b, c", 1)])
def test_a_fake_of_an_op_in_cpp(judged, params, expected):
    assert len(judged("SIG304", {"csrc/ops.cpp": CPP, "engine/a.py": FAKE.format(params=params)})) == expected


def test_an_op_of_another_namespace(judged):
    text = FAKE.format(params="x").replace("demo::", "other::")
    assert judged("SIG304", {"csrc/ops.cpp": CPP, "engine/a.py": text}) == ()


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("out, 3", 0),
        ("out, n=3, scale=2.0", 0),
        ("*both", 0),
        ("out", 1),
        ("out, rows=3", 2),
        ("out, 3, 1.0", 1),
    ],
)
def test_a_call_of_an_op_that_python_registers(judged, call, expected):
    caller = f"import torch\ndef run(out, both):\n    torch.ops.demo.resize({call})\n    torch.ops.demo.keep(out)\n"
    tree = {
        "engine/a.py": DIRECT.format(fake="out, n, *, scale=1.0", arguments=NAMED),
        "engine/b.py": caller,
        "engine/keep.py": KEEP,
    }
    found = judged("SIG302", tree)
    assert len(found) == expected
    assert all(finding.level is Level.ERROR for finding in found)


def test_a_platform_whose_ops_python_registers(judged):
    """An op that only a platform's C++ defines may be built elsewhere; one that this tree registers is not."""
    caller = "import torch\ndef run(out):\n    torch.ops.demo.resize(out)\n    torch.ops.demo.keep(out)\n"
    tree = {"engine/xpu/a.py": DIRECT.format(fake="out, n, *, scale=1.0", arguments=NAMED), "engine/xpu/b.py": caller}
    tree["engine/keep.py"] = KEEP
    (finding,) = judged("SIG302", tree)
    assert finding.level is Level.ERROR


def test_a_name_that_two_libraries_register(judged):
    caller = "import torch\ndef run(out):\n    torch.ops.demo.resize(out)\n    torch.ops.demo.keep(out)\n"
    other = "from engine.utils import direct_register_custom_op\ndef small(out): ...\n"
    other += 'direct_register_custom_op("resize", small)\n'
    tree = {"engine/a.py": DIRECT.format(fake="out, n, *, scale=1.0", arguments=NAMED), "engine/b.py": caller}
    tree["engine/keep.py"] = KEEP
    assert len(judged("SIG302", tree)) == 1
    assert judged("SIG302", {**tree, "engine/c.py": other}) == ()


def test_a_faulty_fake_after_a_good_one(judged):
    good, bad = (DIRECT.format(fake=fake, arguments=NAMED) for fake in ("out, n, *, scale=1.0", "out, *, scale=1.0"))
    (finding,) = judged("SIG304", {"engine/a.py": good, "engine/b.py": bad.replace("resize", "shrink")})
    assert finding.symbol == "shrink"
