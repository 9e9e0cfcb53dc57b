"""Correct idioms that a rule once called errors, each beside the fault that must still be found."""

from __future__ import annotations

import pytest

from verispec.static import Level

CALLS = ("SIG101", "SIG102", "SIG103", "SIG104")


def found(judged, sources, core=None, rules=CALLS):
    return [finding for rule in rules for finding in judged(rule, sources, core)]


REBOUND = """
import triton
import triton.language as tl
tune = triton.autotune(configs=[triton.Config({{"BLOCK_M": 16}})], key=["K"])

@triton.jit
def quant(a, K: tl.constexpr, BLOCK_M: tl.constexpr): ...

if triton.__version__:
    quant = {rebound}

def run(a, grid):
    quant[grid](a, 4{more})
"""


@pytest.mark.parametrize("rebound", ["tune(quant)", "wrap(quant)", "wrap()(quant)"])
def test_a_kernel_that_is_rebound(judged, rebound):
    assert found(judged, {"pkg/k.py": REBOUND.format(rebound=rebound, more="")}) == []


def test_a_rebound_kernel_keeps_its_parameters(judged):
    (finding,) = found(judged, {"pkg/k.py": REBOUND.format(rebound="tune(quant)", more=", EXTRA=1")})
    assert (finding.rule, finding.level) == ("SIG101", Level.ERROR)


@pytest.mark.parametrize("value", ["None", "quant"])
def test_a_kernel_that_keeps_what_it_needs(judged, value):
    (finding,) = found(judged, {"pkg/k.py": REBOUND.format(rebound=value, more="")})
    assert finding.rule == "SIG102"


CONFIG = """
import triton
import triton.language as tl

@{decorator}
@triton.jit
def k(x, n, BLOCK: tl.constexpr, num_stages: tl.constexpr{more}): ...

def run(x, grid):
    k[grid](x, 4)
"""
AUTOTUNE = 'triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_stages=2)], key=["n"])'


@pytest.mark.parametrize("decorator", [AUTOTUNE, 'cache_autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])'])
def test_a_config_passes_its_own_fields(judged, decorator):
    assert found(judged, {"pkg/k.py": CONFIG.format(decorator=decorator, more="")}) == []


def test_a_config_passes_nothing_else(judged):
    (finding,) = found(judged, {"pkg/k.py": CONFIG.format(decorator=AUTOTUNE, more=", stride")})
    assert "stride" in finding.message


HOST = {
    "core/k.py": """
        import triton
        import triton.language as tl
        @triton.jit
        def prep(a, BLOCK: tl.constexpr): ...
        def run(a, grid):
            prep[grid](a, BLOCK=4)
        """,
    "core/_version.py": '__version__ = "0.28.0"',
}
ALTERNATIVES = """
import triton
import triton.language as tl
import core.k
if {test}:
    @triton.jit
    def prep_npu(a, BLOCK: tl.constexpr{first}): ...
else:
    @triton.jit
    def prep_npu(a, cp_rank, BLOCK: tl.constexpr{second}): ...
core.k.prep = prep_npu
"""


@pytest.mark.parametrize(
    ("test", "first", "second", "errors"),
    [
        ('core_is("0.28.0")', "", "", 0),
        ('core_is("0.27.0")', "", "", 1),
        ("FAST", "", "", 0),
        ("FAST", ", LEVEL", ", LEVEL", 1),
        ('core_is("0.28.0")', ", LEVEL", "", 1),
        ('not core_is("0.27.0") and core_is("0.28.0")', "", "", 0),
        ('core_is("0.27.0") or core_is("0.28.0")', "", "", 0),
        ('Version(core.__version__) >= Version("0.28.0")', "", "", 0),
        ('Version(core.__version__) < Version("0.28.0")', "", "", 1),
        ('"0.29" > core.__version__', "", "", 0),
    ],
)
def test_a_replacement_with_several_definitions(judged, test, first, second, errors):
    plugin = {"plug/patch.py": ALTERNATIVES.format(test=test, first=first, second=second)}
    assert len(found(judged, plugin, HOST)) == errors


PATCH = """
import triton
import triton.language as tl
import core.k
@triton.jit
def prep_npu(a, cp_rank, BLOCK: tl.constexpr): ...
core.k.prep = prep_npu
"""


@pytest.mark.parametrize(
    ("imports", "errors"),
    [
        ('if not core_is("0.28.0"):\n    import plug.patch', 0),
        ('if core_is("0.27.0"):\n    from plug import patch', 0),
        ('def install():\n    if core_is("0.28.0"):\n        return\n    from plug import patch', 0),
        ('if core_is("0.28.0"):\n    from . import patch', 1),
        ('NEW = not core_is("0.28.0")\nif FAST:\n    if NEW:\n        import plug.patch', 0),
        ('if core_is("0.28.0"):\n    NEW = False\nelse:\n    NEW = True\nif NEW:\n    import plug.patch', 0),
        ('if core_is("0.28.0"):\n    NEW = True\nelse:\n    NEW = False\nif NEW:\n    import plug.patch', 1),
        ('if core_is("0.28.0"):\n    NEW = False\nif NEW:\n    import plug.patch', 0),
        ("import plug.patch", 1),
        ("", 1),
        ('if core_is("0.27.0"):\n    import plug.patch\nelse:\n    import plug.patch', 1),
    ],
)
def test_a_patch_that_is_not_installed_for_this_host(judged, imports, errors):
    assert len(found(judged, {"plug/patch.py": PATCH, "plug/apply.py": imports}, HOST)) == errors


def test_a_patch_that_another_file_installs_too(judged):
    plugin = {"plug/patch.py": PATCH, "plug/apply.py": 'if core_is("0.27.0"):\n    import plug.patch'}
    assert len(found(judged, plugin | {"plug/other.py": "from plug import patch"}, HOST)) == 1


CHANGED = """
import triton
import triton.language as tl

@triton.jit
def k(a, b, c, BLOCK: tl.constexpr): ...

def run(a, b, c, grid, fast):
    args = {args}
    meta = {meta}
    {change}
    k[grid](*args, **meta)
"""


@pytest.mark.parametrize(
    "change",
    [
        "args += [c]",
        "args.append(c)",
        "complete(args)",
        "tools.complete(args, 1)",
        "more = args\n    more.append(c)",
        "if fast: args = [a, b, c]",
        "box = (args, 1)",
        "def add(): args.append(c)",
    ],
)
def test_a_list_that_changes(judged, change):
    assert found(judged, {"pkg/k.py": CHANGED.format(args="[a, b]", meta="{'BLOCK': 1}", change=change)}) == []


@pytest.mark.parametrize(
    "change",
    [
        "meta |= {'BLOCK': 1}",
        "meta.update(BLOCK=1)",
        "complete(meta)",
        "meta['BLOCK'] = 1",
        "more = meta\n    more['BLOCK'] = 1",
        "if fast: meta = {'BLOCK': 1}",
    ],
)
def test_a_dict_that_gains_keys(judged, change):
    assert found(judged, {"pkg/k.py": CHANGED.format(args="(a, b, c)", meta="{}", change=change)}) == []


@pytest.mark.parametrize("change", ["del meta['OLD']", "meta.pop('OLD')", "complete(meta)", "meta.clear()"])
def test_a_dict_that_loses_keys(judged, change):
    sources = CHANGED.format(args="(a, b, c)", meta="{'BLOCK': 1, 'OLD': 2}", change=change)
    assert found(judged, {"pkg/k.py": sources}) == []


@pytest.mark.parametrize(
    ("args", "meta", "change", "rule"),
    [
        ("[a, b]", "{'BLOCK': 1}", "n = len(args)", "SIG102"),
        ("(a, b)", "{'BLOCK': 1}", "complete(args)", "SIG102"),
        ("[a, b, c]", "{}", "keys = list(meta.keys())", "SIG102"),
        ("[a, b, c]", "{'BLOCK': 1, 'OLD': 2}", "print(meta)", "SIG101"),
    ],
)
def test_a_list_or_dict_that_does_not_change(judged, args, meta, change, rule):
    (finding,) = found(judged, {"pkg/k.py": CHANGED.format(args=args, meta=meta, change=change)})
    assert finding.rule == rule


GUARDED = """
import contextlib
import triton
import triton.language as tl

@triton.jit
def k(a, BLOCK: tl.constexpr): ...

def run(a, grid):
{launch}
"""


@pytest.mark.parametrize(
    ("launch", "level"),
    [
        (
            "    try:\n        k[grid](a, BLOCK=1, NEW=2)\n    except TypeError:\n        k[grid](a, BLOCK=1)",
            Level.NOTE,
        ),
        ("    with contextlib.suppress(TypeError):\n        k[grid](a, BLOCK=1, NEW=2)", Level.NOTE),
        ("    if triton.__version__ >= '3.4':\n        k[grid](a, BLOCK=1, NEW=2)", Level.NOTE),
        ("    try:\n        k[grid](a, BLOCK=1, NEW=2)\n    except ValueError:\n        pass", Level.ERROR),
        ("    if grid:\n        k[grid](a, BLOCK=1, NEW=2)", Level.ERROR),
        ("    if triton.__version__ >= '3.4':\n        pass\n    k[grid](a, BLOCK=1, NEW=2)", Level.ERROR),
    ],
)
def test_a_launch_whose_type_error_may_never_be_seen(judged, launch, level):
    (finding,) = found(judged, {"pkg/k.py": GUARDED.format(launch=launch)})
    assert finding.level is level


LOST = {
    "pkg/op.cpp": """
        void fill(at::Tensor& out) { out.fill_(1); }
        TORCH_LIBRARY(tools, m) { m.def("fill(Tensor! out) -> ()", &fill); }
        """
}


@pytest.mark.parametrize(
    ("after", "errors"),
    [
        ("out.copy_(wide)", 0),
        ("out.data.copy_(wide)", 0),
        ("out[:2].copy_(wide[:2])", 0),
        ("torch.Tensor.copy_(out, wide)", 0),
        ("out.data = wide", 0),
        ("copy_back(out, wide)", 0),
        ("return wide", 0),
        ("print(out.shape)", 1),
        ("pass", 1),
    ],
)
def test_a_converted_output_that_is_copied_back(judged, after, errors):
    body = f"    wide = out.to(torch.int64)\n    torch.ops.tools.fill(wide)\n    {after}\n"
    source = f"import torch\ndef run(out):\n{body}"
    assert len(judged("SIG401", {**LOST, "pkg/run.py": source})) == errors


TWO_LAUNCHES = """
import triton
import triton.language as tl

@triton.jit
def small(x, n, BLOCK: tl.constexpr): ...

@triton.jit
def large(x, n, parts, BLOCK: tl.constexpr): ...

@triton.jit
def wide(x, n, BLOCK: tl.constexpr): ...

def run(x, n, grid, fused):
{body}
"""
LEAVES = {
    "return": """
    if fused:
        if n > 4:
            kernel = wide
        else:
            kernel = small
        kernel[grid](x, n, BLOCK=4)
        return
    kernel = large
    kernel[grid](x, n, 2, BLOCK=4)
""",
    "raise": """
    kernel = small
    if fused:
        kernel[grid](x, n, BLOCK=4)
        raise ValueError
    kernel = large
    kernel[grid](x, n, 2, BLOCK=4)
""",
    "continue": """
    for part in range(n):
        if part:
            kernel = small
            kernel[grid](x, n, BLOCK=4)
            continue
        kernel = large
        kernel[grid](x, n, 2, BLOCK=4)
""",
    "overwritten": """
    kernel = small
    kernel[grid](x, n, BLOCK=4)
    kernel = large
    if n:
        kernel[grid](x, n, 2, BLOCK=4)
""",
    "both branches": """
    kernel = small
    kernel[grid](x, n, BLOCK=4)
    if fused:
        kernel = large
    else:
        kernel = large
    with guard():
        kernel[grid](x, n, 2, BLOCK=4)
""",
    "other branch": """
    if fused:
        kernel = small
        kernel[grid](x, n, BLOCK=4)
    else:
        kernel = large
        kernel[grid](x, n, 2, BLOCK=4)
""",
}
STAYS = {
    "no return": """
    if fused:
        kernel = small
    else:
        kernel = large
    kernel[grid](x, n, 2, BLOCK=4)
""",
    "loop": """
    kernel = large
    for part in range(n):
        kernel[grid](x, n, 2, BLOCK=4)
        kernel = small
""",
    "one branch": """
    kernel = small
    if fused:
        kernel = large
    kernel[grid](x, n, 2, BLOCK=4)
""",
    "break": """
    for part in range(n):
        kernel = large
        if fused:
            kernel = small
            break
    kernel[grid](x, n, 2, BLOCK=4)
""",
    "caught": """
    try:
        kernel = small
        raise ValueError
    except ValueError:
        pass
    kernel[grid](x, n, 2, BLOCK=4)
    kernel = large
""",
    "try": """
    kernel = large
    try:
        kernel = small
        return check()
    except ValueError:
        kernel[grid](x, n, 2, BLOCK=4)
""",
    "closure": """
    kernel = large
    def later():
        kernel[grid](x, n, 2, BLOCK=4)
    later()
    kernel = small
    later()
""",
}


@pytest.mark.parametrize("body", LEAVES.values(), ids=LEAVES)
def test_a_variable_has_only_what_reaches_the_launch(judged, body):
    assert found(judged, {"pkg/k.py": TWO_LAUNCHES.format(body=body)}) == []


@pytest.mark.parametrize("body", STAYS.values(), ids=STAYS)
def test_a_variable_has_all_that_reaches_the_launch(judged, body):
    (finding,) = found(judged, {"pkg/k.py": TWO_LAUNCHES.format(body=body)})
    assert (finding.rule, finding.level, finding.symbol) == ("SIG103", Level.ERROR, "pkg.k.small")


IN_CLASS = """
import triton
import triton.language as tl

class Communicator:
    @triton.jit
    def copy(out, source, n, BLOCK: tl.constexpr): ...

    def run(self, out, source, grid):
        self.copy[grid](out=out, source=source, n=4, BLOCK=8{more})
        Communicator.copy[grid](out, source, 4, BLOCK=8{more})
"""


def test_a_kernel_in_a_class_gets_no_instance(judged):
    assert found(judged, {"pkg/k.py": IN_CLASS.format(more="")}) == []
    findings = found(judged, {"pkg/k.py": IN_CLASS.format(more=", EXTRA=1")})
    assert {finding.rule for finding in findings} == {"SIG101"}
    missing = IN_CLASS.format(more="").replace("out=out, ", "")
    assert [finding.rule for finding in found(judged, {"pkg/k.py": missing})] == ["SIG102"]


ANY_META = """
import triton
import triton.language as tl

@triton.jit
def k(x, n, {params}): ...

def run(x, n):
    sizes = {{"BLOCK": 4}}
    grid = lambda meta: (n // meta["BLOCK"],)
    k[grid](x, n, **sizes)
"""


@pytest.mark.parametrize(("params", "rules"), [("**meta", []), ("BLOCK_N: tl.constexpr = 4", ["SIG106"])])
def test_the_grid_of_a_kernel_that_takes_any_keyword(judged, params, rules):
    assert [f.rule for f in found(judged, {"pkg/k.py": ANY_META.format(params=params)}, rules=("SIG106",))] == rules
