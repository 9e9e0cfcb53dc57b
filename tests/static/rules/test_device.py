"""SIG105: calls of jit functions in kernels."""

import pytest

from verispec.static import Level

TREE = {
    "pkg/helpers.py": """
        import triton
        import triton.language as tl

        @triton.jit
        def offset(row, stride, WIDE: tl.constexpr = False):
            return row * stride
        """,
    "pkg/k.py": """
        import triton
        import triton.language as tl
        from pkg.helpers import offset

        @triton.jit
        def accept(out, n, stride):
            row = tl.program_id(0)
            {before}
            tl.store(out + {call}, n)
        """,
}


def findings(judged, call, before="pass", helpers=TREE["pkg/helpers.py"], imported=TREE["pkg/k.py"]):
    return judged(
        "SIG105", {"pkg/helpers.py": helpers, "pkg/k.py": imported.replace("{call}", call).replace("{before}", before)}
    )


@pytest.mark.parametrize(
    "call",
    ["offset(row, stride)", "offset(row, stride=stride, WIDE=True)", "offset(*pair)", "offset(row, stride, n > 2)"],
)
def test_a_call_that_binds(judged, call):
    assert findings(judged, call, "pair = (row, stride)") == ()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("offset(row)", "missing argument stride"),
        ("offset(row, stride, True, 1)", "too many positionals 4 for 3"),
        ("offset(row, stride, FAST=True)", "unexpected keyword FAST"),
        ("offset(row, width=stride)", "unexpected keyword width"),
    ],
)
def test_a_call_that_does_not_bind(judged, call, message):
    first, *_ = findings(judged, call)
    assert first.level is Level.ERROR
    assert message in first.message
    assert first.symbol == "pkg.helpers.offset"
    assert first.scope == "pkg.k.accept"


@pytest.mark.parametrize(
    ("before", "call"),
    [
        ("offset = n", "offset(row)"),  # another value of the same name
        ("pass", "n(row)"),  # a function that the launch passes
        ("pass", "tl.offset(row)"),  # Triton's own
    ],
)
def test_a_callee_that_cannot_be_followed(judged, before, call):
    assert findings(judged, call, before) == ()


def test_a_helper_with_several_definitions(judged):
    both = TREE["pkg/helpers.py"] + "\n        @triton.jit\n        def offset(row):\n            return row\n"
    assert findings(judged, "offset(row)", helpers=both) == ()
    assert len(findings(judged, "offset()", helpers=both)) == 1


@pytest.mark.parametrize("decorator", ["@wrapped", "@triton.autotune(configs=[], key=[])"])
def test_a_decorated_helper(judged, decorator):
    helpers = TREE["pkg/helpers.py"].replace("@triton.jit", f"{decorator}\n        @triton.jit")
    assert findings(judged, "offset(row)", helpers=helpers) == ()


def test_a_method_is_left_alone(judged):
    helpers = """
        from triton.experimental import gluon

        class Program:
            @gluon.jit
            def create(cfg, row):
                return row
        """
    text = TREE["pkg/k.py"].replace("import offset", "import Program")
    assert findings(judged, "Program.create(n, row)", helpers=helpers, imported=text) == ()
