"""SIG301, SIG302, SIG303 and SIG401: schemas, C++ functions, Python calls and converted outputs."""

import pytest

from verispec.static import Level

BINDINGS = """
void expand(torch::Tensor& output, const torch::Tensor& input, int64_t limit) {{
{body}
}}

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {{
#ifdef HAS_IT
  ops.def(
      "expand(Tensor{mark} output, {middle}"
      "int limit) -> ()", &ns::expand);
#endif
  ops.def("other(Tensor x) -> Tensor");
}}
"""
CALLER = """
import torch

def run(output, value):
    torch.ops._C.other(value)
    torch.ops._C.expand({call})
"""


def sources(*, call="output, value, 1", mark="!", middle="Tensor input, ", body="", python=CALLER):
    return {
        "csrc/bindings.cpp": BINDINGS.format(mark=mark, middle=middle, body=body),
        "engine/ops.py": python.replace("{call}", call),
    }


@pytest.mark.parametrize(
    ("middle", "level"),
    [
        ("Tensor input, ", None),
        ("Tensor? input, ", Level.WARNING),
        ("int input, ", Level.WARNING),
        ("", Level.ERROR),
        ("Tensor input, float extra, ", Level.ERROR),
    ],
)
def test_schema_against_its_function(judged, middle, level):
    findings = judged("SIG301", sources(middle=middle))
    assert [finding.level for finding in findings] == ([level] if level else [])


@pytest.mark.parametrize(
    ("schema", "header", "definition", "level"),
    [
        ("", "", "", None),
        (", int b", "", "", Level.ERROR),
        ("", ", int64_t b", "", None),  # perhaps another function of that name
        ("", "", ", int64_t b", Level.WARNING),
        (", int b", ", int64_t b", "", Level.WARNING),
        ("", ", int64_t b", ", int64_t b", Level.ERROR),
        (", int b", "", ", int64_t b", None),
    ],
)
def test_schema_against_the_header_and_the_definition(judged, schema, header, definition, level):
    files = {
        "csrc/a.cpp": f"""
            #include "a.h"
            TORCH_LIBRARY(demo, m) {{ m.def("width(Tensor x{schema}) -> int", &width); }}
            """,
        "csrc/a.h": f"int64_t width(const at::Tensor& x{header});",
        "csrc/b.cu": f"int64_t width(const at::Tensor& x{definition}) {{ return 1; }}",
    }
    findings = judged("SIG301", files)
    assert [finding.level for finding in findings] == ([level] if level else [])
    if level:
        assert findings[0].level_if_new is Level.ERROR
    # A second function of that name may be the one.
    files["csrc/c.cu"] = (
        files["csrc/b.cu"] + "int64_t width(const at::Tensor& x" + schema.replace("int", "int64_t") + ") { }"
    )
    assert judged("SIG301", files) == ()


def test_function_bound_apart_from_its_schema(judged):
    text = """
    int64_t width(const at::Tensor& x{more}) {{ return 1; }}
    TORCH_LIBRARY(demo, m) {{ m.def("width(Tensor x) -> int"); m.def("unread(Strange<> x) -> int"); }}
    TORCH_LIBRARY_IMPL(demo, CPU, m) {{ m.impl("width", TORCH_FN(width)); m.impl("unread", &width); }}
    """
    assert judged("SIG301", {"csrc/a.cpp": text.format(more="")}) == ()
    (finding,) = judged("SIG301", {"csrc/a.cpp": text.format(more=", bool b")})
    assert finding.symbol == "width"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("output, value, 1", None),
        ("output, value, limit=1", None),
        ("*everything", None),
        ("output, value", "missing argument limit"),
        ("output, value, 1, 2", "4 for 3"),
        ("output, value, 1, mode=2", "unexpected keyword mode"),
    ],
)
def test_call_against_its_schema(judged, call, words):
    findings = judged("SIG302", sources(call=call))
    assert [(finding.level, words in finding.message) for finding in findings] == (
        [(Level.ERROR, True)] if words else []
    )


def test_same_op_of_another_library_is_another_op(judged):
    python = CALLER + "    torch.ops.elsewhere.expand(1)\n"
    assert judged("SIG302", sources(python=python)) == ()


def test_caller_for_a_platform_that_is_built_elsewhere_is_a_note(judged):
    tree = sources(call="output")
    tree["engine/_xpu_ops.py"] = tree.pop("engine/ops.py")
    (finding,) = judged("SIG302", tree)
    assert finding.level is Level.NOTE


@pytest.mark.parametrize(
    ("test", "level"),
    [
        ("platform.is_xpu()", Level.NOTE),
        ("platform.is_xpu() and ready", Level.NOTE),
        ("platform.is_cuda()", Level.ERROR),
    ],
)
def test_call_in_the_branch_of_a_platform(judged, test, level):
    call = "torch.ops._C.expand(output)"
    python = CALLER.replace("    torch.ops._C.expand({call})", f"    if {test}:\n        {call}")
    (finding,) = judged("SIG302", sources(python=python))
    assert finding.level is level


def test_schema_with_more_than_can_be_read_says_nothing(judged):
    tree = sources(call="1")
    tree["csrc/bindings.cpp"] = tree["csrc/bindings.cpp"].replace("int limit)", "(int, int)? limit=None)")
    assert judged("SIG302", tree) == ()


@pytest.mark.parametrize("body", ["  output.fill_(0);", "  auto* p = output.data_ptr<int64_t>();\n  p[0] = limit;"])
@pytest.mark.parametrize(("mark", "found"), [("!", 0), ("(a!)", 0), ("", 1)])
def test_written_tensor_without_its_mark(judged, body, mark, found):
    findings = judged("SIG303", sources(mark=mark, body=body))
    assert len(findings) == found
    assert all("output" in finding.message for finding in findings)


@pytest.mark.parametrize(
    "body", ["  auto* p = output.data_ptr<int64_t>();\n  use(p[0]);", "  auto x = output.clone();", ""]
)
def test_read_tensor_needs_no_mark(judged, body):
    assert judged("SIG303", sources(mark="", body=body)) == ()


CONVERTED = """
import torch

def as_int64(t):
    return t if t.dtype == torch.int64 else t.to(torch.int64)

def expand(output, value):
{body}
"""


@pytest.mark.parametrize(
    ("body", "level"),
    [
        ("torch.ops._C.expand(as_int64(output), value, 1)", Level.ERROR),
        ("torch.ops._C.expand(output.to(torch.int64), value, 1)", Level.ERROR),
        ("wide = output.long()\ntorch.ops._C.expand(wide, value, 1)", Level.ERROR),
        ("torch.ops._C.expand(output.contiguous(), value, 1)", Level.WARNING),
        ("wide = as_int64(output)\ntorch.ops._C.expand(wide, value, 1)\noutput.copy_(wide)", None),
        ("wide = as_int64(output)\ntorch.ops._C.expand(wide, value, 1)\noutput[:] = wide", None),
        ("wide = as_int64(output)\ntorch.ops._C.expand(wide, value, 1)\nreturn wide", None),
        ("torch.ops._C.expand(output, as_int64(value), 1)", None),
        ("torch.ops._C.expand(prepare(output), value, 1)", None),
        ("torch.ops._C.expand(output, value, 1)", None),
        ("torch.ops._C.expand(output=as_int64(output), input=value, limit=1)", Level.ERROR),
        ("torch.ops._C.expand(output=output, input=as_int64(value), limit=1)", None),
        ("torch.ops._C.expand(limit=1, **{'output': as_int64(output)})", None),
    ],
)
def test_write_into_a_converted_output(judged, body, level):
    text = CONVERTED.format(body="\n".join(f"    {line}" for line in body.splitlines()))
    findings = judged("SIG401", sources(python=text + "\ntorch.ops._C.other(1)\n"))
    assert [finding.level for finding in findings] == ([level] if level else [])
    assert all("output" in finding.message for finding in findings)


@pytest.mark.parametrize(("namespace", "expected"), [("_C", 1), ("elsewhere", 0)])
def test_a_macro_stands_for_the_namespace_of_several_calls(judged, namespace, expected):
    """Two of its ops must be called there: one name alone may be that of another library's op."""
    python = CALLER.replace("torch.ops._C.other(value)", f"torch.ops.{namespace}.other(value)")
    assert len(judged("SIG302", sources(call="output", python=python))) == expected


@pytest.mark.parametrize(
    ("callee", "count"),
    [
        ("expand", 1),
        ("expand.default", 1),
        ("expand.out", 1),
        ("expand.default._schema.is_backward_compatible_with", 0),
        ("expand._schema.is_backward_compatible_with", 0),
        ("expand.overloads", 0),
        ("expand.default.redispatch", 0),
    ],
)
def test_only_an_op_or_its_overload_is_called(judged, callee, count):
    python = CALLER.replace("torch.ops._C.expand(", f"torch.ops._C.{callee}(")
    assert len(judged("SIG302", sources(call="output", python=python))) == count


IMPLS = """
at::Tensor norm(const at::Tensor& x, double eps) {{ return x; }}
at::Tensor norm_meta(const at::Tensor& x{meta}) {{ return x; }}

TORCH_LIBRARY(tools, ops) {{
  ops.def("norm(Tensor x, float eps) -> Tensor");
  ops.impl("norm", torch::kCUDA, &norm);
}}
TORCH_LIBRARY_IMPL(tools, Meta, ops) {{
  ops.impl("norm", &norm_meta);
}}
"""


@pytest.mark.parametrize(
    ("meta", "level"),
    [(", double eps", None), ("", Level.ERROR), (", double eps, bool b", Level.ERROR), (", bool b", Level.WARNING)],
)
def test_every_function_of_an_op_against_its_schema(judged, meta, level):
    findings = judged("SIG301", {"csrc/bindings.cpp": IMPLS.format(meta=meta)})
    assert [finding.level for finding in findings] == ([level] if level else [])
    # The function may be for an op of the same name in another library.
    other = 'TORCH_LIBRARY(more, m) { m.def("norm(Tensor x) -> Tensor"); }'
    findings = judged("SIG301", {"csrc/bindings.cpp": IMPLS.format(meta=""), "csrc/more.cpp": other})
    assert findings == ()


def test_a_definition_of_that_name_that_agrees(judged):
    another = "at::Tensor norm_meta(const at::Tensor& x, double eps) { return x; }"
    assert judged("SIG301", {"csrc/bindings.cpp": IMPLS.format(meta=""), "csrc/other.cpp": another}) == ()


CONDITIONAL = """
at::Tensor norm(const at::Tensor& x, double eps) {{ return x; }}

TORCH_LIBRARY_FRAGMENT(tools, ops) {{
  auto handle = c10::Dispatcher::singleton().findSchema({{"{asked}", ""}});
  if (!handle.has_value()) {{
    ops.def("norm(Tensor x) -> Tensor");
  }}
  ops.impl("norm", &norm);
}}
"""


@pytest.mark.parametrize(("asked", "rules"), [("tools::norm", []), ("tools::other", ["SIG301", "SIG302"])])
def test_a_schema_that_another_library_may_have_defined(judged, asked, rules):
    sources = {
        "csrc/bindings.cpp": CONDITIONAL.format(asked=asked),
        "engine/ops.py": "import torch\n\ndef run(x):\n    return torch.ops.tools.norm(x, 1e-6)\n",
    }
    assert [f.rule for rule in ("SIG301", "SIG302") for f in judged(rule, sources)] == rules


@pytest.mark.parametrize(
    ("params", "count"),
    [
        ("StableIValue* stack, uint64_t num_args, uint64_t num_outputs", 0),
        ("const c10::OperatorHandle& op, torch::jit::Stack* stack", 0),
        ("const at::Tensor& x, uint64_t num_args, uint64_t num_outputs", 1),
    ],
)
def test_a_boxed_function_takes_every_op(judged, params, count):
    boxed = f"void norm_boxed({params}) {{}}\n"
    source = boxed + IMPLS.format(meta=", double eps").replace(
        'ops.impl("norm", &norm_meta)', 'ops.impl("norm", &norm_boxed)'
    )
    assert len(judged("SIG301", {"csrc/bindings.cpp": source})) == count
    alone = source.replace('  ops.impl("norm", torch::kCUDA, &norm);\n', "")
    assert len(judged("SIG301", {"csrc/bindings.cpp": alone})) == count


def test_a_boxed_function_has_no_parameter_for_each_argument(judged):
    source = """
    void mix_boxed(const c10::OperatorHandle& op, torch::jit::Stack* stack) {}
    TORCH_LIBRARY(tools, ops) { ops.def("mix(Tensor a, Tensor b, Tensor c) -> ()", &mix_boxed); }
    """
    assert judged("SIG301", {"csrc/mix.cpp": source}) == judged("SIG303", {"csrc/mix.cpp": source}) == ()


PLUGIN = """
TORCH_LIBRARY({library}, ops) {{
  ops.def("gemm(Tensor a, int bits{more}) -> Tensor");
}}
"""
WRAPPER = """
import torch

def {name}(a, bits):
    return torch.ops._C.gemm(a, bits{more})
"""


@pytest.mark.parametrize("path", ["csrc/bindings.cpp", "csrc/plugin_bindings.cpp"])
@pytest.mark.parametrize(
    ("library", "wrapper", "level"),
    [
        ("_C", "", Level.WARNING),  # the plugin's library takes the place of the host's
        ("_C", WRAPPER.format(name="gemm", more=", 1"), Level.NOTE),  # its own function takes that of the host's
        ("_C", WRAPPER.format(name="other", more=", 1"), Level.WARNING),
        ("_C_plugin", "", None),
    ],
)
def test_an_op_of_the_host_that_a_plugin_registers_anew(judged, path, library, wrapper, level):
    """vllm-metax and vLLM-Kunlun register vLLM's ops with parameters of their own, and call them by their own code."""
    core = {
        "csrc/bindings.cpp": PLUGIN.format(library="_C", more=""),
        "core/ops.py": WRAPPER.format(name="gemm", more=""),
    }
    plugin = {path: PLUGIN.format(library=library, more=", int workspace"), "plug/ops.py": wrapper}
    found = judged("SIG302", plugin, core)
    assert [finding.level for finding in found] == ([level] if level else [])
    if level is Level.WARNING:
        assert found[0].level_if_new is Level.ERROR


def test_a_plugin_that_registers_an_op_of_its_host_in_python(judged):
    """The plugin's own calls do not bind for sure; the host's may never run."""
    registered = """
    import torch

    @torch.library.custom_op("_C::gemm", mutates_args=())
    def gemm(a: torch.Tensor) -> torch.Tensor: ...
    """
    core = {"csrc/bindings.cpp": PLUGIN.format(library="_C", more=""), "core/ops.py": WRAPPER.format(name="f", more="")}
    plugin = {"plug/ops.py": registered, "plug/run.py": WRAPPER.format(name="g", more="")}
    levels = {f.location.path: f.level for f in judged("SIG302", plugin, core)}
    assert levels == {"core/ops.py": Level.WARNING, "plug/run.py": Level.ERROR}


@pytest.mark.parametrize(("name", "how", "level"), [
    ("replacement", "symbolic_trace", Level.WARNING), ("replacement", "make_fx", Level.ERROR),
    ("run", "symbolic_trace", Level.ERROR),
])  # fmt: skip
def test_a_call_that_symbolic_tracing_records(judged, name, how, level):
    """dlinfer replaces an op of PyTorch by one that a later pass turns into another."""
    sources = {
        "csrc/bindings.cpp": PLUGIN.format(library="_C", more=", int workspace"),
        "engine/passes.py": f"import torch\n\ndef trace(f):\n    return torch.fx.{how}(f)\n",
        "engine/patterns.py": "from engine.passes import trace\n" + WRAPPER.format(name=name, more=""),
    }
    assert [finding.level for finding in judged("SIG302", sources)] == [level]


LEFT_OVER = """
at::Tensor norm(const at::Tensor& x{cuda}) {{ return x; }}
at::Tensor norm_meta(const at::Tensor& x) {{ return x; }}
TORCH_LIBRARY_IMPL(tools, CUDA, ops) {{ ops.impl("norm", &norm); }}
TORCH_LIBRARY_IMPL(tools, Meta, ops) {{ ops.impl("norm", &norm_meta); }}
"""


@pytest.mark.parametrize(("cuda", "other", "count"), [
    ("", ", double eps", 0),  # this file cannot be built with the other
    (", double eps", ", double eps", 1), ("", "", 1),
])  # fmt: skip
def test_a_file_that_was_left_behind_when_it_moved(judged, cuda, other, count):
    """Aphrodite keeps the old folder of its Marlin kernels."""
    sources = {
        "csrc/bindings.cpp": 'TORCH_LIBRARY(tools, ops) { ops.def("norm(Tensor x, float eps) -> Tensor"); }',
        "csrc/old/norm.cu": LEFT_OVER.format(cuda=cuda),
        "csrc/new/norm.cu": f"at::Tensor norm(const at::Tensor& x{other}) {{ return x; }}",
    }
    assert len(judged("SIG301", sources)) == count


def test_a_host_file_at_the_path_of_a_plugins_file(judged):
    """The ops of both are known, and what is wrong in the host alone is not the plugin's."""
    core = {"csrc/bindings.cpp": PLUGIN.format(library="_C", more=""), "core/ops.py": ""}
    plugin = {
        "csrc/bindings.cpp": PLUGIN.format(library="_C_plugin", more=""),
        "plug/ops.py": WRAPPER.format(name="gemm", more=", 1"),
    }
    (finding,) = judged("SIG302", plugin, core)
    assert finding.sides[1].location.path == "./csrc/bindings.cpp"
    wrong = "Tensor gemm(torch::Tensor a) { return a; }\n" + PLUGIN.format(library="_C", more="").replace(
        ");", ", &gemm);"
    )
    assert len(judged("SIG301", {"csrc/bindings.cpp": wrong})) == 1
    assert judged("SIG301", plugin, {**core, "csrc/bindings.cpp": wrong}) == ()
