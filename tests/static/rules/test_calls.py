"""SIG101 to SIG104: a launch against its kernel, its dispatcher and its fallbacks."""

import pytest

from verispec.static import Level

KERNEL = """
import triton
import triton.language as tl

@triton.jit(do_not_specialize=["limit"])
def accept_kernel(out_ptr, draft_ptr, limit, FLAG: tl.constexpr, BLOCK: tl.constexpr = 16):
    tl.store(out_ptr, tl.load(draft_ptr))

def accept(out, draft, limit):
    accept_kernel[(1,)]({call})
"""

FALLBACK = """
class Wrapper:
    def __init__(self, func):
        self.func = func

    def __getitem__(self, grid):
        return self.func

def accept_impl({params}):
    out[:] = draft

accept_kernel = Wrapper(accept_impl)
"""

RUNNER = """
import engine.fallback as fb

def install():
    import engine.sampler
    engine.sampler.accept_kernel = fb.accept_kernel
"""


def kernel(call: str) -> dict[str, str]:
    return {"engine/sampler.py": KERNEL.format(call=call)}


def with_fallback(call: str, params: str) -> dict[str, str]:
    return {**kernel(call), "engine/fallback.py": FALLBACK.format(params=params), "engine/runner.py": RUNNER}


@pytest.mark.parametrize(
    ("rule", "call", "words"),
    [
        ("SIG101", "out, draft, limit, FLAG=True, SYNTHETIC=False", "SYNTHETIC"),
        ("SIG102", "out, draft, FLAG=True", "limit"),
        ("SIG103", "out, draft, limit, True, 16, 17", "6 for 5"),
        ("SIG103", "out, draft, limit, True, FLAG=True", "FLAG by position and by keyword"),
    ],
)
def test_launch_that_does_not_bind(judged, rule, call, words):
    (finding,) = judged(rule, kernel(call))
    assert finding.level is Level.ERROR
    assert words in finding.message
    assert finding.symbol == "engine.sampler.accept_kernel"
    assert [side.label for side in finding.sides] == ["call", "kernel"]
    assert finding.location.line == 10


@pytest.mark.parametrize(
    "call",
    [
        "out, draft, limit, FLAG=True",
        "out, draft, limit, True, 16",
        "out, draft, limit, FLAG=True, num_warps=4, num_stages=2",
        "*everything",
        "out, draft, **rest",
    ],
)
@pytest.mark.parametrize("rule", ["SIG101", "SIG102", "SIG103", "SIG104"])
def test_launch_that_binds_or_cannot_be_followed(judged, rule, call):
    assert judged(rule, kernel(call)) == ()


@pytest.mark.parametrize(
    ("before", "call", "missing"),
    [
        ("meta = {'FLAG': True}", "out, draft, limit, **meta", ()),
        ("meta = dict(FLAG=True, EXTRA=1)", "out, draft, limit, **meta", ("SIG101",)),
        ("meta = {'BLOCK': 16}", "out, draft, limit, **meta", ("SIG102",)),
        ("three = (out, draft, limit)", "*three, FLAG=True", ()),
        ("two = (out, draft)", "*two, FLAG=True", ("SIG102",)),
    ],
)
def test_unpacked_arguments_are_followed(judged, before, call, missing):
    source = kernel(call)["engine/sampler.py"].replace("    accept_kernel[", f"    {before}\n    accept_kernel[")
    found = [rule for rule in ("SIG101", "SIG102", "SIG103") if judged(rule, {"engine/sampler.py": source})]
    assert tuple(found) == missing


@pytest.mark.parametrize(
    ("rule", "params", "words"),
    [
        ("SIG101", "out, draft, limit", "FLAG"),
        ("SIG102", "out, draft, limit, stride, FLAG=False", "stride"),
        ("SIG103", "out, draft, *, FLAG=False", "3 for 2"),
        ("SIG103", "out, draft, FLAG=False", "FLAG by position and by keyword"),
    ],
)
def test_fallback_that_a_launch_does_not_bind_to(judged, rule, params, words):
    (finding,) = judged(rule, with_fallback("out, draft, limit, FLAG=True", params))
    assert finding.level is Level.ERROR
    assert words in finding.message
    assert [side.label for side in finding.sides] == ["call", "kernel", "fallback"]
    assert finding.sides[2].location.path == "engine/fallback.py"


@pytest.mark.parametrize("params", ["out, draft, limit, FLAG=False", "out, draft, limit, **rest", "*args, FLAG=False"])
@pytest.mark.parametrize("rule", ["SIG101", "SIG102", "SIG103", "SIG104"])
def test_fallback_that_binds(judged, rule, params):
    assert judged(rule, with_fallback("out, draft, limit, FLAG=True", params)) == ()


def test_launch_options_are_keywords_like_others_for_a_python_fallback(judged):
    sources = with_fallback("out, draft, limit, FLAG=True, num_warps=4", "out, draft, limit, FLAG=False")
    (finding,) = judged("SIG101", sources)
    assert "num_warps" in finding.message


def test_fallback_that_nobody_installs_is_not_judged(judged):
    sources = with_fallback("out, draft, limit, FLAG=True", "out, draft, limit")
    del sources["engine/runner.py"]
    assert judged("SIG101", sources) == ()


@pytest.mark.parametrize(
    ("params", "wrong"),
    [
        ("out, limit, draft, FLAG=False", True),
        ("out, source, limit, FLAG=False", False),
        ("out, source, draft, FLAG=False", False),
    ],
)
def test_order_of_a_fallback_that_is_called_by_position(judged, params, wrong):
    findings = judged("SIG104", with_fallback("out, draft, limit, FLAG=True", params))
    assert bool(findings) is wrong
    assert all(finding.level is Level.ERROR for finding in findings)


AUTOTUNED = """
import triton
import triton.language as tl

def configs():
    return [triton.Config({{"BLOCK": size}}, num_warps=4) for size in (16, 32)]

@triton.autotune(configs={configs}, key=["n"])
@triton.heuristics({{"EVEN": lambda args: args["n"] % 2 == 0}})
@triton.jit
def add_kernel(x, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    pass

def add(x, n):
    add_kernel[(1,)](x{rest})
"""


@pytest.mark.parametrize("configs", ["configs()", "[triton.Config({'BLOCK': 16})]"])
@pytest.mark.parametrize(("rest", "missing"), [(", n", False), ("", True)])
def test_stacked_decorators_supply_arguments(judged, configs, rest, missing):
    findings = judged("SIG102", {"engine/ops.py": AUTOTUNED.format(configs=configs, rest=rest)})
    assert [finding.message for finding in findings] == (
        ["the call does not pass n, which the kernel requires"] if missing else []
    )


def test_configurations_that_cannot_be_read_are_not_held_against_a_launch(judged):
    source = AUTOTUNED.format(configs="load_from_disk()", rest=", n")
    assert judged("SIG102", {"engine/ops.py": source}) == ()


def test_one_of_two_definitions_is_enough(judged):
    source = """
    import triton
    if NEW:
        @triton.jit
        def k(a, b):
            pass
    else:
        @triton.jit
        def k(a):
            pass

    def run(a, b):
        k[(1,)](a, b)
        k[(1,)]({})
    """
    assert judged("SIG103", {"engine/k.py": source.format("a")}) == ()
    (finding,) = judged("SIG103", {"engine/k.py": source.format("a, b, 1")})
    assert finding.level is Level.ERROR


DISPATCHER = """
import triton
import triton.language as tl

@triton.jit
def accept_kernel(out_ptr, draft_ptr, draft_stride, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.load(draft_ptr))

@launcher_with_warmup(warmup=None, {keyword}=accept_kernel)
def _accept(out, draft, limit):
    return (out.shape[0],), dict({keys})

def accept(out, draft, limit):
    _accept({call})
"""


@pytest.mark.parametrize("keyword", ["kernel", "target"])
@pytest.mark.parametrize(
    ("rule", "keys", "call", "words"),
    [
        ("SIG101", "BLOCK=16, SYNTHETIC=True", "out, draft, limit", "SYNTHETIC"),
        ("SIG102", "num_warps=4", "out, draft, limit", "BLOCK"),
        ("SIG101", "BLOCK=16", "out, draft, limit, mode=1", "mode"),
        ("SIG102", "BLOCK=16", "out, draft", "limit"),
    ],
)
def test_dispatcher_is_found_by_its_shape(judged, keyword, rule, keys, call, words):
    (finding,) = judged(rule, {"engine/s.py": DISPATCHER.format(keyword=keyword, keys=keys, call=call)})
    assert finding.level is Level.ERROR
    assert words in finding.message


@pytest.mark.parametrize("rule", ["SIG101", "SIG102", "SIG103"])
@pytest.mark.parametrize("keys", ["BLOCK=16", "BLOCK=16, num_warps=2", "**tuned"])
def test_dispatcher_that_binds(judged, rule, keys):
    assert judged(rule, {"engine/s.py": DISPATCHER.format(keyword="kernel", keys=keys, call="out, draft, limit")}) == ()


def test_imported_dispatcher_is_found_by_the_words_of_its_callers(judged):
    sources = {
        "engine/s.py": DISPATCHER.format(keyword="kernel", keys="BLOCK=16", call="out, draft, limit"),
        "engine/user.py": "from engine.s import _accept\n\ndef use(a, b):\n    _accept(a, b)\n",
    }
    (finding,) = judged("SIG102", sources)
    assert (finding.location.path, finding.location.line) == ("engine/user.py", 4)


CLASS_DISPATCHER = """
import triton
import triton.language as tl

class Accept(Base["Accept.Key"]):
    @staticmethod
    @triton.jit(do_not_specialize=["n"])
    def kernel(out_ptr, n, BLOCK: tl.constexpr):
        pass

    @launcher
    def __call__(self, out, n):
        return (1,), dict({keys})

ACCEPT = Accept()

def accept(out, n):
    ACCEPT(out{rest})
"""


@pytest.mark.parametrize(
    ("keys", "rest", "found"),
    [("BLOCK=1", ", n", 0), ("BLOCK=1, EXTRA=2", ", n", 1), ("BLOCK=1", "", 0)],
)
def test_class_with_a_kernel_and_launch_specifications(judged, keys, rest, found):
    sources = {"engine/s.py": CLASS_DISPATCHER.format(keys=keys, rest=rest)}
    assert len(judged("SIG101", sources)) == found
    assert len(judged("SIG102", sources)) == (0 if rest else 1)


REGISTRY = """
import sys

class Override:
    def __init__(self, kernel, impl):
        self._impl = impl
        self.names = kernel.arg_names

    def __getitem__(self, grid):
        return self._launch

    def _launch(self, *args, **kwargs):
        return self._impl(*(kwargs[name] for name in self.names if name in kwargs))

def register(overrides):
    for module in list(sys.modules.values()):
        for name, impl in overrides.items():
            setattr(module, name, impl)
"""
PLATFORM = """
from engine import impls

def install():
    from engine.registry import register
    register({{"engine.s.accept_kernel": (impls.accept)}})
"""


@pytest.mark.parametrize(
    ("rule", "params", "found"),
    [
        ("SIG103", "out, draft, draft_stride, limit", 1),
        ("SIG103", "out, draft, stride, limit, block", 0),
        ("SIG102", "out, draft, draft_stride, limit, block, extra", 1),
        ("SIG104", "out, draft, limit, draft_stride, block", 1),
        ("SIG104", "out, draft, extra, draft_stride, limit, block=1", 1),
        ("SIG104", "out, draft, draft_stride, limit, block", 0),
    ],
)
def test_registry_that_forwards_in_the_kernels_order(judged, rule, params, found):
    sources = {
        "engine/s.py": DISPATCHER.format(keyword="kernel", keys="BLOCK=16", call="out, draft, limit"),
        "engine/registry.py": REGISTRY,
        "engine/impls.py": f"def accept({params}):\n    return None\n",
        "engine/platform.py": PLATFORM.format(),
    }
    assert len(judged(rule, sources)) == found


def test_wrong_call_in_a_test_is_a_warning(judged):
    sources = kernel("out, draft, limit, FLAG=True")
    sources["tests/test_accept.py"] = """
    from engine.sampler import accept_kernel

    def test_it():
        accept_kernel[(1,)](1, 2, 3, FLAG=True, NEW=1)
    """
    (finding,) = judged("SIG101", sources)
    assert (finding.level, finding.location.path) == (Level.WARNING, "tests/test_accept.py")


def test_unknown_outer_decorator_leaves_doubt(judged):
    source = KERNEL.format(call="out, draft, limit, FLAG=True, NEW=1").replace("@triton.jit(", "@adapted\n@triton.jit(")
    (finding,) = judged("SIG101", {"engine/sampler.py": source})
    assert finding.level is Level.WARNING


@pytest.mark.parametrize("option", ["reuse_buffers=1", "isCloseUnrollControl=True"])
def test_option_of_an_unknown_back_end(judged, option):
    assert judged("SIG101", kernel(f"out, draft, limit, FLAG=True, {option}")) == ()


@pytest.mark.parametrize("option", ["EXTRA=1", "limitt=1", "scale=limit"])
def test_keyword_that_is_no_option(judged, option):
    """Flags are in capitals, a near miss is a mistake, and the value of an option is a literal."""
    (finding,) = judged("SIG101", kernel(f"out, draft, limit, FLAG=True, {option}"))
    assert finding.level is Level.ERROR


HELPER = """
@triton.jit
def store(pipeline, row): ...
"""


@pytest.mark.parametrize(("launched", "count"), [("", 0), ("store[(1,)](pipeline=1, row=2)", 1)])
def test_a_parameter_of_a_function_that_kernels_call_may_be_an_option(judged, launched, count):
    """Only what a launch can pass to another kernel may be meant for that one."""
    source = kernel("out, draft, limit, FLAG=True, pipeline='cpasync'")["engine/sampler.py"] + HELPER + launched
    assert len(judged("SIG101", {"engine/sampler.py": source})) == count


EXCHANGE = """
import triton
import triton.language as tl

@triton.jit
def accept_kernel(out_ptr, draft_ptr, target_ptr, rows, BLOCK: tl.constexpr): ...

def accept(out, draft, target, rows):
    accept_kernel[(1,)]({call})
"""


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("out, draft, target, rows, 16", 0),
        ("out, target, draft, rows, 16", 1),
        ("out, draft_ptr=draft, target_ptr=target, rows=rows, BLOCK=16", 0),
        ("draft, out, target, rows, BLOCK=16", 1),
        ("out, target, target, rows, 16", 0),  # one tensor for both
        ("out, other, draft, rows, 16", 0),  # only one of them has a parameter's name here
        ("*pair, target, draft, 16", 0),
    ],
)
def test_two_arguments_that_trade_places(judged, call, expected):
    found = judged("SIG104", {"pkg/k.py": EXCHANGE.format(call=call)})
    assert len(found) == expected


@pytest.mark.parametrize(
    ("data", "expected"), [("x", 1), ("transpose_x", 0), ("x_t", 0), ("x.T", 0), ("x.t()", 0), ("x.transpose(0, 1)", 0)]
)
def test_sizes_that_trade_places_with_a_transposed_tensor(judged, data, expected):
    """linghe scales the rows of a tensor, and then those of its transpose, by one kernel."""
    source = """
    import triton
    import triton.language as tl

    @triton.jit
    def scale_kernel(x_ptr, scale_ptr, M, N, BLOCK: tl.constexpr): ...

    def scale(x, transpose_x, x_t, scale, M, N):
        scale_kernel[(1,)](DATA, scale, N, M, 16)
    """.replace("DATA", data)
    assert len(judged("SIG104", {"pkg/k.py": source})) == expected
