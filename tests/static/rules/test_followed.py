"""Kernels that a launch reads from an attribute or a dict."""

import pytest

from verispec.static import Level

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def greedy(out, n, BLOCK: tl.constexpr): ...

@triton.jit
def random(out, n, BLOCK: tl.constexpr{more}): ...

"""
TABLE = """
KERNELS = {{"greedy": greedy, "random": random}}
{after}
def run(out, n, name, grid):
    {launch}(out, n, {argument}=16)
"""


def errors(judged, text, rule="SIG101"):
    return [finding for finding in judged(rule, {"pkg/k.py": text}) if finding.level is Level.ERROR]


@pytest.mark.parametrize("launch", ["KERNELS[name][grid]", "kernel = KERNELS[name]\n    kernel[grid]"])
@pytest.mark.parametrize(
    ("argument", "after", "expected"),
    [
        ("BLOCK", "", 0),
        ("BLOCKS", "", 2),
        ("BLOCKS", "KERNELS['other'] = load()", 0),
        ("BLOCKS", "KERNELS.update(load())", 0),
        ("BLOCKS", "register(KERNELS)", 0),
    ],
)
def test_a_dict_of_kernels(judged, launch, argument, after, expected):
    text = KERNELS.format(more="") + TABLE.format(launch=launch, argument=argument, after=after)
    assert len(errors(judged, text)) == expected


def test_a_launch_that_fits_one_entry(judged):
    text = KERNELS.format(more=", FLAG: tl.constexpr") + TABLE.format(
        launch="KERNELS[name][grid]", argument="BLOCK", after=""
    )
    (finding,) = judged("SIG102", {"pkg/k.py": text})
    assert (finding.level, finding.symbol) == (Level.NOTE, "pkg.k.random")


HOLDER = """
class Sampler:
    def __init__(self, fast):
        self.kernel = {value}
        {after}

class Derived(Sampler):
    def run(self, out, n, grid):
        self.kernel[grid](out, n, {argument}=16)
"""


@pytest.mark.parametrize(
    ("value", "argument", "after", "expected"),
    [
        ("greedy", "BLOCK", "pass", 0),
        ("greedy", "BLOCKS", "pass", 1),
        ("None", "BLOCKS", "kept = self.kernel = greedy", 1),
        ("greedy if fast else random", "BLOCKS", "pass", 2),
        ("greedy", "BLOCKS", "self.kernel = fast", 0),
        ("fast", "BLOCKS", "pass", 0),
        ("load(greedy)", "BLOCKS", "pass", 0),
    ],
)
def test_a_kernel_in_an_attribute(judged, value, argument, after, expected):
    text = KERNELS.format(more="") + HOLDER.format(value=value, argument=argument, after=after)
    assert len(errors(judged, text)) == expected


@pytest.mark.parametrize(
    ("argument", "expected"), [("**LAUNCH", 0), ("**LAUNCH, EXTRA=1", 1), ("**{**LAUNCH, 'EXTRA': 1}", 1), ("", 1)]
)
@pytest.mark.parametrize("inside", ["", "def size():\n    return LAUNCH['BLOCK'], LAUNCH.get('n')\n"])
def test_keywords_from_a_module_level_dict(judged, inside, argument, expected):
    text = KERNELS.format(more="") + f"LAUNCH = dict(BLOCK=16)\n{inside}\ndef run(out, n, grid):\n"
    text += f"    greedy[grid](out, n, {argument})\n"
    assert len(errors(judged, text)) + len(errors(judged, text, "SIG102")) == expected


@pytest.mark.parametrize(
    "change",
    [
        "def tune():\n    LAUNCH['EXTRA'] = 1\n",
        "def tune():\n    global LAUNCH\n    LAUNCH = load()\n",
        "def tune():\n    LAUNCH.update(load())\n",
        "def tune():\n    return LAUNCH\n",
        "def tune():\n    mine = LAUNCH\n",
        "tune = lambda: change(LAUNCH)\n",
        "class Tuned:\n    launch = LAUNCH\n",
    ],
)
def test_a_module_level_dict_that_something_may_change(judged, change):
    text = (
        KERNELS.format(more="")
        + f"LAUNCH = dict()\n{change}\ndef run(out, n, grid):\n    greedy[grid](out, n, **LAUNCH)\n"
    )
    assert errors(judged, text, "SIG102") == []
    plain = text.replace(change, "")
    assert len(errors(judged, plain, "SIG102")) == 1


def test_a_local_name_hides_a_module_level_dict(judged):
    change = "def other(LAUNCH):\n    LAUNCH.update(load())\n"
    text = (
        KERNELS.format(more="")
        + f"LAUNCH = dict()\n{change}\ndef run(out, n, grid):\n    greedy[grid](out, n, **LAUNCH)\n"
    )
    assert len(errors(judged, text, "SIG102")) == 0


WRAPPER = """
def launch({params}):
    {before}
    greedy[(1,)]({forwarded})

def run(out, n, more):
    launch({call})
"""


@pytest.mark.parametrize(
    ("params", "forwarded", "call", "expected"),
    [
        ("*args, **kwargs", "*args, **kwargs", "out, n, BLOCK=16", 0),
        ("*args, **kwargs", "*args, **kwargs", "out, n, BLOCK=16, FLAG=1", 1),
        ("*args, **kwargs", "*args, **kwargs", "out, BLOCK=16", 1),
        ("*args, **kwargs", "*args, **kwargs", "*more, BLOCK=16", 0),
        ("*args, **kwargs", "*args, **kwargs", "out, n, **more", 0),
        ("*args", "*args, BLOCK=16", "out, n", 0),
        ("*args", "*args, BLOCK=16", "out", 1),
        ("rows, *args, **kwargs", "*args, **kwargs", "4, out, n, BLOCK=16", 0),
        ("rows, *args, **kwargs", "*args, **kwargs", "4, out, BLOCK=16", 1),
        ("*args, rows=1, **kwargs", "*args, **kwargs", "out, n, rows=4, BLOCK=16", 0),
        ("out, **kwargs", "out, **kwargs", "out, n=1, BLOCK=16", 0),
        ("out, **kwargs", "out, **kwargs", "out, n=1, BLOCKS=16", 1),
        ("*args, **kwargs", "*args", "out, n, 16, FLAG=1", 0),  # the wrapper uses kwargs for itself
    ],
)
def test_a_function_that_forwards_its_arguments(judged, params, forwarded, call, expected):
    text = KERNELS.format(more="") + WRAPPER.format(params=params, before="pass", forwarded=forwarded, call=call)
    found = {finding.location.line for rule in ("SIG101", "SIG102") for finding in errors(judged, text, rule)}
    assert len(found) == expected
    if expected:
        assert text.splitlines()[found.pop() - 1].strip() == f"launch({call})"


@pytest.mark.parametrize(
    "before", ["kwargs.pop('FLAG')", "kwargs = {}", "args = args[1:]", "check(kwargs)", "kwargs['BLOCK'] = 16"]
)
def test_a_wrapper_that_changes_what_it_gets(judged, before):
    text = KERNELS.format(more="") + WRAPPER.format(
        params="*args, **kwargs", before=before, forwarded="*args, **kwargs", call="out, FLAG=1"
    )
    assert errors(judged, text) == errors(judged, text, "SIG102") == []


def test_a_function_that_calls_others_before_it_forwards(judged):
    text = KERNELS.format(more="") + WRAPPER.format(
        params="*args, **kwargs", before="check()", forwarded="*args, **kwargs", call="out, BLOCK=16"
    )
    assert len(errors(judged, text, "SIG102")) == 1


@pytest.mark.parametrize(
    ("registry", "launch"),
    [
        ('REGISTRY = {}\nREGISTRY["greedy"] = greedy', 'REGISTRY["greedy"]'),
        (
            'REGISTRY = {}\ndef register(name, kernel):\n    REGISTRY[name] = kernel\nregister("greedy", greedy)',
            'REGISTRY["greedy"]',
        ),
        ('REGISTRY = {}\nREGISTRY["greedy"] = greedy\ndef get(name):\n    return REGISTRY[name]', 'get("greedy")'),
    ],
    ids=["items", "function", "getter"],
)
def test_a_registry_that_is_filled_later_is_not_followed(judged, registry, launch):
    """Other modules may fill it too, also with a kernel of the same name; "gate your fork" says so."""
    text = KERNELS.format(more="") + f"{registry}\ndef run(out, n, grid):\n    {launch}[grid](out, n, SIZE=16)\n"
    assert errors(judged, text) == []
    whole = text.replace(registry, 'REGISTRY = {"greedy": greedy}').replace(launch, 'REGISTRY["greedy"]')
    assert len(errors(judged, whole)) == 1
