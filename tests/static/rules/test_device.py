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


SIZED = """
import triton
import triton.language as tl

@triton.jit
def accept(out, n, {size}{more}):
    {body}

def run(out, n, size, grid):
    accept[grid](out, n, {argument})
"""


@pytest.mark.parametrize(
    ("size", "body", "argument", "expected"),
    [
        ("BLOCK", "tl.arange(0, BLOCK)", "size", ["error"]),
        ("BLOCK", "tl.zeros([BLOCK, 16], dtype=tl.float32)", "BLOCK=size", ["error"]),
        ("BLOCK", "tl.zeros((16, BLOCK), tl.float32)", "BLOCK=size", ["error"]),
        ("BLOCK", "tl.arange(0, BLOCK)", "BLOCK=1", ["warning"]),
        ("BLOCK", "tl.arange(0, BLOCK)", "1", ["warning"]),
        ("BLOCK: tl.constexpr", "tl.arange(0, BLOCK)", "size", []),
        ("BLOCK: 'tl.constexpr'", "tl.arange(0, BLOCK)", "size", []),
        ("BLOCK: Size", "tl.arange(0, BLOCK)", "size", []),
        ("BLOCK=16", "tl.arange(0, BLOCK)", "size", []),
        ("BLOCK", "tl.arange(0, 16) + BLOCK", "size", []),
        ("BLOCK", "BLOCK = 16; tl.arange(0, BLOCK)", "size", []),
        ("BLOCK", "load.arange(0, BLOCK)", "size", []),
    ],
)
def test_the_size_of_a_block(judged, size, body, argument, expected):
    text = SIZED.format(size=size, more="", body=body, argument=argument)
    assert [finding.level.value for finding in judged("SIG107", {"pkg/k.py": text})] == expected


def test_a_helper_gets_its_sizes_from_a_kernel(judged):
    text = SIZED.format(size="BLOCK", more="", body="tl.arange(0, BLOCK)", argument="size").partition("def run")[0]
    user = "@triton.jit\ndef top(out, n, BLOCK: tl.constexpr):\n    accept(out, n, BLOCK)\n"
    assert judged("SIG107", {"pkg/k.py": text + user}) == ()
