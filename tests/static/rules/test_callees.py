"""Launches through partials, tables, results, ``kernel.run``, and the names that their grids read."""

import pytest

from verispec.static import Level

KERNELS = """
import functools
from functools import partial

import torch
import triton
import triton.language as tl

@triton.jit
def greedy(out, n, stride, BLOCK: tl.constexpr, FLAG: tl.constexpr = False): ...

@triton.jit
def random(out, n, stride, BLOCK: tl.constexpr, FLAG: tl.constexpr = False): ...

@triton.jit
def wide(out, n, stride, rows, BLOCK: tl.constexpr): ...

"""
ARGUMENTS = {"out, n, 1, BLOCK=16": 0, "out, n, BLOCK=16": 1, "out, n, 1, BLOCK=16, FLAGS=1": 1}
FORMS = {
    "run": "def run(out, n, g):\n    greedy.run({}, grid=g, warmup=False)",
    "warmup": "def run(out, n, g):\n    greedy.warmup({}, grid=g)",
    "launcher": "def run(out, n, g):\n    launch = greedy[g]\n    launch({})",
    "launcher of a module": "launch = greedy[(1,)]\ndef run(out, n):\n    launch({})",
    "partial of run": "def run(out, n, g):\n    launch = partial(greedy.run, grid=g, warmup=False)\n    launch({})",
    "partial of a launcher": "launch = functools.partial(greedy[(1,)])\ndef run(out, n):\n    launch({})",
    "asynchronous": "async def run(out, n, g):\n    greedy[g]({})",
    "asynchronous method": "class A:\n    async def run(self, out, n, g):\n        greedy[g]({})",
    "lambda": "run = lambda out, n, g: greedy[g]({})",
    "nested lambda": "def make(g):\n    return lambda out, n: greedy[g]({})",
    "choice in place": "def run(out, n, g, m):\n    (greedy if m else greedy)[g]({})",
    "named in place": "def run(out, n, g):\n    (k := greedy)[g]({})",
    "getattr": "import pkg.k\ndef run(out, n, g):\n    getattr(pkg.k, 'greedy')[g]({})",
    "wrapped": "def run(out, n, g):\n    torch.library.wrap_triton(greedy)[g]({})",
    "result": "def pick():\n    return greedy\ndef run(out, n, g):\n    pick()[g]({})",
    "cached result": (
        "@functools.cache\ndef pick():\n    return greedy\ndef run(out, n, g):\n    k = pick()\n    k[g]({})"
    ),
    "result of a method": (
        "class A:\n    def pick(self):\n        return greedy\n"
        "    def run(self, out, n, g):\n        self.pick()[g]({})"
    ),
    "property": (
        "class A:\n    @property\n    def kernel(self):\n        return greedy\n"
        "    def run(self, out, n, g):\n        self.kernel[g]({})"
    ),
    "instance": (
        "class A:\n    def __init__(self):\n        self.kernel = None\n        self.kernel = greedy\n"
        "def run(out, n, g):\n    a = A()\n    a.kernel[g]({})"
    ),
    "import that may fail": (
        "def run(out, n, g):\n    try:\n        from pkg.k import greedy as k\n    except ImportError:\n"
        "        k = None\n    k[g]({})"
    ),
    "method that hands on": (
        "class A:\n    def launch(self, *args, **kwargs):\n        greedy[(1,)](*args, **kwargs)\n"
        "    def run(self, out, n):\n        self.launch({})"
    ),
    "launcher of an instance": (
        "class A:\n    def run(self, out, n):\n        self.launch({})\n"
        "    def __init__(self, g):\n        self.launch = greedy[g]"
    ),
    "partial of an instance": (
        "class A:\n    def __init__(self, g):\n        self.launch = partial(greedy.run, grid=g, warmup=False)\n"
        "    def run(self, out, n):\n        self.launch({})"
    ),
    "kernel as an argument": (
        "def launch(kernel, grid, *args, **kwargs):\n    kernel[grid](*args, **kwargs)\n"
        "def run(out, n, g):\n    launch(greedy, g, {})"
    ),
    "kernel as the second argument": (
        "def launch(grid, kernel, *args, **kwargs):\n    kernel[grid](*args, **kwargs)\n"
        "def run(out, n, g):\n    launch(g, greedy, {})"
    ),
    "kernel as an argument of a method": (
        "class A:\n    def launch(self, kernel, *args, **kwargs):\n        kernel[(1,)](*args, **kwargs)\n"
        "    def run(self, out, n):\n        self.launch(greedy, {})"
    ),
}
SEVERAL = {
    "loop": "def run(out, n, g):\n    for k in (greedy, random):\n        k[g]({})",
    "table.get": "TABLE = {{'a': greedy, 'b': random}}\ndef run(out, n, g, m):\n    TABLE.get(m)[g]({})",
    "list": "TABLE = [greedy, random]\ndef run(out, n, g, m):\n    TABLE[m][g]({})",
    "table of an instance": (
        "class A:\n    def __init__(self):\n        self.table = {{'a': greedy, 'b': random}}\n"
        "    def run(self, out, n, g, m):\n        self.table[m][g]({})"
    ),
    "table of a class": (
        "class A:\n    table = {{'a': greedy, 'b': random}}\n"
        "    def run(self, out, n, g, m):\n        self.table[m][g]({})"
    ),
    "result": (
        "def pick(m):\n    if m:\n        return greedy\n    return random\n"
        "def run(out, n, g, m):\n    k = pick(m)\n    k[g]({})"
    ),
}


def errors(judged, text, more=None):
    sources = {"pkg/k.py": KERNELS + text, **(more or {})}
    return [f for rule in ("SIG101", "SIG102") for f in judged(rule, sources) if f.level is Level.ERROR]


@pytest.mark.parametrize(("given", "expected"), ARGUMENTS.items())
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_launch_of_one_kernel(judged, form, given, expected):
    assert len(errors(judged, form.format(given))) == expected


@pytest.mark.parametrize(("given", "expected"), ARGUMENTS.items())
@pytest.mark.parametrize("form", SEVERAL.values(), ids=SEVERAL)
def test_a_launch_of_several_kernels(judged, form, given, expected):
    assert len(errors(judged, form.format(given))) == expected * 2


@pytest.mark.parametrize("form", SEVERAL.values(), ids=SEVERAL)
def test_a_launch_that_fits_one_of_several(judged, form):
    text = form.replace("random", "wide").format("out, n, 1, BLOCK=16")
    assert errors(judged, text) == []


@pytest.mark.parametrize(
    "change",
    [
        "launch = load()",
        "launch = greedy[(2,)]",
        "global launch\n    launch = greedy[(2,)]",
        "for launch in n: pass",
        "with n as launch: pass",
    ],
)
def test_a_launcher_that_changes(judged, change):
    text = f"def run(out, n, g):\n    launch = greedy[g]\n    {change}\n    launch(out)"
    assert errors(judged, text.replace(change, "pass")) != []
    assert errors(judged, text) == []


HELD = """
class A:
    def __init__(self, g):
        self.launch = greedy[g]
    def run(self, out, n):
        self.launch(out)
"""


@pytest.mark.parametrize(
    "change",
    [
        "    def again(self, g):\n        self.launch = wide[g]",
        "def again(a, g):\n    a.launch = wide[g]",
        "def again(a, g):\n    setattr(a, 'launch', wide[g])",
        "    def again(self, n):\n        for self.launch in n: pass",
    ],
)
def test_a_launcher_of_an_instance_that_changes(judged, change):
    assert errors(judged, HELD) != []
    assert errors(judged, HELD + change) == []


@pytest.mark.parametrize(
    "other",
    [
        "    def other(self, b, out):\n        b.launch(out)",
        "def run(self, out):\n    self.launch(out)",
        "class B:\n    def run(self, out):\n        self.launch(out)",
        "class B:\n    def run(self, out):\n        out().launch(out)",
        "def run(a, out):\n    a.launch(out)",
    ],
)
def test_only_the_class_itself_holds_its_launcher(judged, other):
    good = HELD.replace("self.launch(out)", "self.launch(out, n, 1, BLOCK=16)")
    assert errors(judged, good + other) == []


def test_a_class_inside_a_method_has_launchers_of_its_own(judged):
    inner = (
        "    def inner(self, g):\n        class B:\n            def __init__(self):\n"
        "                self.other = wide[g]\n"
        "    def later(self, out, n):\n        self.launch(out)\n        self.other(out)\n"
    )
    found = errors(judged, HELD.replace("self.launch(out)", "pass") + inner)
    assert {(f.scope, f.symbol) for f in found} == {("pkg.k.A.later", "pkg.k.greedy")}


LAUNCHER = """
def second(grid, kernel, *args, **kwargs):
    kernel[grid](*args, **kwargs)
def launch(kernel, *args, **kwargs):
    {before}
    kernel[(1,)](*args, **kwargs)
def run(out, n, more, {param}):
    {call}
"""


@pytest.mark.parametrize(
    ("before", "param", "call", "expected"),
    [
        ("pass", "m", "launch(greedy, out)", 1),
        ("kernel = more(kernel)", "m", "launch(greedy, out)", 0),
        ("args = args[1:]", "m", "launch(greedy, out)", 0),
        ("pass", "greedy", "launch(greedy, out)", 0),
        ("pass", "m", "launch(kernel=greedy)", 0),
        ("pass", "m", "launch(*more, greedy)", 0),
        ("pass", "m", "launch(more(greedy), out)", 0),
        ("pass", "m", "launch(greedy if m else wide, out)", 0),
        ("pass", "m", "second(n, greedy, out)", 1),
        ("pass", "m", "second(*(n, wide), greedy, out)", 0),
    ],
)
def test_a_function_that_launches_what_it_is_given(judged, before, param, call, expected):
    text = LAUNCHER.format(before=before, param=param, call=call)
    assert len({f.location.line for f in errors(judged, text)}) == expected


@pytest.mark.parametrize(
    "use",
    [
        "    meta = {'BLOCK': 16}\n    meta['FLAGS'] = 1\n    del meta['FLAGS']\n    greedy[g](out, n, 1, **meta)",
        "    meta = {'FLAG': 1}\n    meta['BLOCK'] = 16\n    greedy[g](out, n, 1, **meta)",
        (
            "    meta = {'BLOCK': 16}\n    if more:\n        meta['rows'] = 1\n    kernel = wide if more else greedy\n"
            "    kernel[g](out, n, 1, **meta)"
        ),
        "    table = {'a': greedy}\n    table['b'] = wide\n    table[n](out, n, 1, 2, BLOCK=16)",
    ],
)
def test_a_key_that_is_set_later(judged, use):
    assert errors(judged, f"def run(out, n, g, more):\n{use}") == []


@pytest.mark.parametrize(
    "change",
    [
        "TABLE['c'] = load()",
        "TABLE.update(load())",
        "def grow():\n    TABLE['c'] = load()",
        "TABLE = load()",
    ],
)
def test_a_table_of_another_module(judged, change):
    table = "TABLE = {'a': greedy, 'b': random}\n"
    user = {"pkg/u.py": "from pkg.k import TABLE\ndef run(out, n, g, m):\n    TABLE[m][g](out, n, BLOCK=16)\n"}
    assert len(errors(judged, table, user)) == 2
    assert errors(judged, table + change, user) == []


@pytest.mark.parametrize(
    "pick",
    [
        "def pick(m):\n    return greedy if m else load()",
        "@load\ndef pick(m):\n    return greedy",
        "def pick(m):\n    if m:\n        return load()\n    return greedy",
        "pick = load()",
    ],
)
def test_a_result_that_is_not_known(judged, pick):
    assert errors(judged, f"{pick}\ndef run(out, n, g):\n    pick(n)[g](out)") == []


@pytest.mark.parametrize("given", ["out", "out, n, 1, BLOCK=16"])
def test_a_partial_that_has_arguments(judged, given):
    text = f"def run(out, n, g):\n    launch = partial(greedy[g], {given})\n    launch({{}})"
    missing = "n, 1, BLOCK=16" if given == "out" else "BLOCK=32"
    assert errors(judged, text.format(missing)) == []
    assert len(errors(judged, text.format("FLAGS=1"))) == (2 if given == "out" else 1)


def test_names_that_a_package_hands_on_with_a_star(judged):
    user = "from pkg.all import {}\ndef run(out, n, g):\n    {}[g](out, n, BLOCK=16)\n"
    star = {"pkg/all.py": "from pkg.k import *\n"}
    assert len(errors(judged, "", {**star, "pkg/u.py": user.format("greedy", "greedy")})) == 1
    assert errors(judged, "_greedy = greedy", {**star, "pkg/u.py": user.format("_greedy", "_greedy")}) == []


GRIDS = {
    "in place": "def run(out, n):\n    greedy[lambda meta: (meta['{}'],)](out, n, 1, BLOCK=16)",
    "by name": (
        "def run(out, n):\n    g = lambda meta: (triton.cdiv(n, meta['{}']),)\n    greedy[g](out, n, 1, BLOCK=16)"
    ),
    "by definition": (
        "def run(out, n):\n    def g(meta):\n        return (triton.cdiv(n, meta['{}']),)\n"
        "    greedy[g](out, n, 1, BLOCK=16)"
    ),
    "of the module": "def g(meta):\n    return (meta['{}'],)\ndef run(out, n):\n    greedy[g](out, n, 1, BLOCK=16)",
    "of run": "def run(out, n):\n    greedy.run(out, n, 1, BLOCK=16, grid=lambda meta: (meta['{}'],), warmup=False)",
}


@pytest.mark.parametrize(("name", "expected"), [("BLOCK", 0), ("n", 0), ("num_warps", 0), ("BLOCK_SIZE", 1)])
@pytest.mark.parametrize("form", GRIDS.values(), ids=GRIDS)
def test_a_name_that_the_grid_reads(judged, form, name, expected):
    found = judged("SIG106", {"pkg/k.py": KERNELS + form.format(name)})
    assert [f.level for f in found] == [Level.ERROR] * expected


@pytest.mark.parametrize(
    "grid",
    [
        "lambda meta: (meta.get('BLOCK_SIZE', 1),)",
        "lambda meta: (meta['BLOCK_SIZE'] if 'BLOCK_SIZE' in meta else 1,)",
        "lambda *meta: (meta['BLOCK_SIZE'],)",
        "lambda meta: (sizes['BLOCK_SIZE'],)",
        "load(lambda meta: (meta['BLOCK_SIZE'],))",
    ],
)
def test_a_grid_that_may_be_right(judged, grid):
    text = f"def run(out, n, sizes):\n    greedy[{grid}](out, n, 1, BLOCK=16)"
    assert judged("SIG106", {"pkg/k.py": KERNELS + text}) == ()


def test_the_grid_of_a_kernel_with_another_decorator(judged):
    text = "@load\n@triton.jit\ndef tuned(out): ...\ndef run(out):\n    tuned[lambda meta: (meta['BLOCK'],)](out)"
    assert judged("SIG106", {"pkg/k.py": KERNELS + text}) == ()


def test_a_name_of_a_class_body(judged):
    text = "class A:\n    {}\n    greedy[(1,)](1)\n"
    assert len(errors(judged, text.format("pass"))) == 1
    assert errors(judged, text.format("greedy = load()")) == []
