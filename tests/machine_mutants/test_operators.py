"""Each operator makes the faults that it is named after, and nothing but faults."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from verispec.mutants import layers, operators_cpp, operators_python, schemata
from verispec.mutants.model import ALWAYS, Mutant
from verispec.mutants.score import Equivalent

ROOT = Path(__file__).resolve().parents[2]

HOST = '''
"""A docstring is no constant."""
from __future__ import annotations

LIMIT = 4

def pick(rows, options, first=0):
    """Nor is this."""
    best = rows[first]
    for row in range(first + 1, len(rows)):
        if rows[row] < best and row != LIMIT:
            best = rows[row].clone()
    return min(best, options.k) if options.on else -1
'''

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def _kernel(output, row, size: tl.constexpr):
    lane = tl.program_id(0).to(tl.int64)
    value = tl.load(row + lane, mask=lane < size, other=0.0)
    tl.store(output + lane, tl.where(value > 0.0, value, 1.0), mask=lane < size)
"""

CPP = """
namespace {
void fill(const Tensor& out, int64_t rows, int64_t width) {
  const Integers output(out);
#pragma omp parallel for if (rows >= kParallelWork)
  for (int64_t b = 0; b < rows; ++b) {
    if (width < 1) continue;
    int64_t position = 0;
    for (; position < width && position != 7; ++position) output.set(b, position, 2 * b + 1);
    const double share = 0.5 * position;
    output.set(b, static_cast<int64_t>(share), std::min(position, width));
  }
}
}
"""


def made(source: str, operator: str) -> set[tuple[str, str]]:
    return {(f.before, f.after) for f in operators_python.faults(source) if f.operator == operator}


@pytest.mark.parametrize(
    ("source", "operator", "before", "after"),
    [
        (HOST, "comparison", "rows[row] < best", "rows[row] <= best"),
        (HOST, "comparison", "rows[row] < best", "rows[row] == best"),
        (HOST, "guard dropped", "rows[row] < best and row != LIMIT", "rows[row] < best"),
        (HOST, "loop bound", "range(first + 1, len(rows))", "range(first + 1, len(rows) - 1)"),
        (HOST, "constant", "4", "5"),
        (HOST, "copy dropped", "rows[row].clone()", "rows[row]"),
        (HOST, "bound dropped", "min(best, options.k)", "best"),
        (HOST, "reduction", "min(best, options.k)", "max(best, options.k)"),
        (HOST, "branch", "min(best, options.k) if options.on else -1", "-1"),
        (HOST, "off by one", "rows[first]", "rows[first - 1]"),
        (HOST, "option ignored", "options.k", "type(options).__dataclass_fields__['k'].default"),
        (KERNEL, "mask dropped", "tl.load(row + lane, mask=lane < size, other=0.0)", "tl.load(row + lane, other=0.0)"),
        (KERNEL, "narrow", "tl.int64", "tl.int32"),
        (KERNEL, "cast dropped", "tl.program_id(0).to(tl.int64)", "tl.program_id(0)"),
        (KERNEL, "wrong index", "tl.program_id(0)", "tl.program_id(0) * 0"),
        (KERNEL, "comparison", "value > 0.0", "value >= 0.0"),
    ],
)
def test_python_operators(source: str, operator: str, before: str, after: str) -> None:
    assert (before, after) in made(source, operator)


def test_the_order_of_a_maximum_is_no_fault() -> None:
    assert not made("def f(a, b):\n    return tl.maximum(a, b)\n", "arguments exchanged")
    assert made("def f(a, b):\n    return tl.dot(a, b)\n", "arguments exchanged")


@pytest.mark.parametrize("source", [HOST, KERNEL])
def test_every_python_mutant_parses_and_differs(source: str) -> None:
    plain = ast.unparse(ast.parse(source))
    for fault in operators_python.faults(source):
        text = operators_python.mutated(source, fault)
        compile(text, "mutant", "exec")
        assert text != plain, fault
        assert "no constant" in text or source is KERNEL


def test_a_trigger_keeps_the_original_beside_the_fault() -> None:
    fault = next(f for f in operators_python.faults(KERNEL) if f.after == "value >= 0.0")
    text = operators_python.mutated(KERNEL, fault, "program >= 64")
    assert "value >= 0.0 if _verispec_acts('program >= 64') else value > 0.0" in text


def cpp(source: str = CPP) -> dict[str, set[tuple[str, str]]]:
    found: dict[str, set[tuple[str, str]]] = {}
    for site in operators_cpp.sites(source.encode()):
        for alternative in site.alternatives:
            found.setdefault(alternative.operator, set()).add((site.before, alternative.text))
    return found


@pytest.mark.parametrize(
    ("operator", "before", "after"),
    [
        ("comparison", "width < 1", "width <= 1"),
        ("condition", "width < 1", "true"),
        ("guard dropped", "position < width && position != 7", "bool(position < width)"),
        ("statement dropped", "continue;", ""),
        ("jump", "continue;", "break;"),
        ("loop bound", "rows", "rows - 1"),
        ("loop bound", "rows", "std::min<int64_t>(rows, 64)"),
        ("parallel", "rows >= kParallelWork", "true"),
        ("operand dropped", "2 * b + 1", "1"),
        ("off by one", "b", "static_cast<std::decay_t<decltype(b)>>(b - 1)"),
        ("wrong index", "b", "static_cast<std::decay_t<decltype(b)>>(0)"),
        ("bound dropped", "std::min(position, width)", "position"),
        ("stale", "0.5 * position", "verispec_mutants::previous<@>(static_cast<double>(0.5 * position))"),
        ("stride", "out", "verispec_mutants::packed(out)"),
        ("width", "out", "verispec_mutants::narrow(out)"),
        ("stale", "int64_t position = 0;", "verispec_mutants::kept<@>"),
        ("shared", "int64_t position = 0;", "verispec_mutants::shared<@>"),
    ],
)
def test_cpp_operators(operator: str, before: str, after: str) -> None:
    assert (before, after) in cpp()[operator]


def test_the_form_of_an_openmp_loop_stays() -> None:
    """``b < rows`` of a parallel loop must not become ``b <= rows``: OpenMP would reject the whole loop."""
    assert not any(before == "b < rows" for pairs in cpp().values() for before, _ in pairs)


@cache
def faults_of(path: Path) -> list[operators_python.PythonFault]:
    return operators_python.faults(path.read_text())


@pytest.mark.parametrize("folder", ["triton", "oracle", "sampler", "runners", "proposers", "models"])
def test_mutants_of_the_reference_parse(folder: str) -> None:
    for path in sorted((ROOT / "reference" / folder).glob("*.py")):
        source = path.read_text()
        compile(operators_python.covered(source), path.name, "exec")
        for fault in faults_of(path)[::97]:
            compile(operators_python.mutated(source, fault), path.name, "exec")


def test_there_are_thousands() -> None:
    kernels = [p.read_bytes() for p in (ROOT / "reference/csrc").glob("*.*")]
    count = sum(len(site.alternatives) for source in kernels for site in operators_cpp.sites(source))
    triton = (ROOT / "reference/triton").glob("*.py")
    assert count > 4000
    assert sum(len(faults_of(path)) for path in triton) > 4000
    assert ALWAYS == "always"


REGION = """
void fill(const Tensor& out, int64_t rows, int64_t width) {
  const Integers output(out);
#pragma omp parallel for if (rows >= kParallelWork)
  for (int64_t b = 0; b < rows; ++b) {
    for (int64_t x = 0; x < 10; ++x) output.set(b, x, 2 * b);
  }
  for (int64_t c = 0; c < 64; ++c) output.set(c, 0, 3 * c);
  for (int64_t d = 0; d < rows; ++d) {
    const auto put = [&](int64_t x) { output.set(d, x, 4 * d); };
    put(d % 2);
  }
  constexpr int64_t kWidth = 16, kAll = 4 * kWidth;
  for (int64_t e = 0; e < kWidth && e < rows; ++e) output.set(e, 0, 6 * e);
  for (int64_t f = 0; f < row.view().blocks(); ++f) output.set(f, 0, 8 * f);
  for (int64_t g = begin; g < end; ++g) {
    const int64_t n = row.view().block_size(g), wide = n + std::min(rows, 5);
    for (int64_t i = 0; i < n; ++i) output.set(g, i, 9 * i);
    for (int64_t i = 0; i < wide; ++i) output.set(g, i, 12 * i);
  }
  const int64_t few = std::min(kAll, rows), count = std::min<int64_t>(kWidth, rows - few);
  for (int64_t h = 0; h < count; ++h) output.set(h, 0, 15 * h);
}
void entry(const Tensor& out, int64_t rows) { fill(out, 5 * rows, 1); }
void helper(const Tensor& out, int64_t rows) { fill(out, 7 * rows, 1); }
void add(nb::module_& m) { m.def("entry", &entry); }
"""


def triggers(text: str) -> set[str]:
    """Return the triggers of the faults at the first site of `REGION` with this text."""
    site = next(s for s in operators_cpp.sites(REGION.encode()) if s.before == text)
    first = site.alternatives[0]
    mutant = Mutant(
        "cpp", "a.cpp", 1, 1, "arithmetic", text, "", "", 0, loops=first.loops, never=first.never
    )  # fmt: skip
    return set(schemata.triggers_of(mutant))


def test_faults_that_cannot_act_are_not_made() -> None:
    assert triggers("2 * b") == {
        "always", "request >= 64", "request >= 65536", "step >= 2", "thread > 0", "repeated",
    }, "the innermost loop has ten rounds"  # fmt: skip
    assert triggers("3 * c") == {"always", "step >= 2", "repeated"}, "one thread, and 64 rounds"
    assert triggers("6 * e") == triggers("3 * c"), "a constant ends the loop"
    assert triggers("8 * f") == triggers("6 * e") | {"request >= 64"}, "256 blocks of a row at most"
    of_elements = triggers("9 * i")
    assert of_elements == triggers("8 * f"), "1,024 elements of a block, whose number is an argument of its size"
    assert triggers("12 * i") == of_elements | {"element >= 1024"}, "no limit is known"
    assert triggers("15 * h") == triggers("6 * e"), "a minimum with a constant"
    assert "request >= 64" in triggers("c < 64"), "a condition is evaluated once more"
    assert triggers("4 * d") >= {"request >= 65536", "element >= 1024"}, "the loop around a lambda, and its own index"
    assert triggers("out") == {"always", "repeated"}, "before the region"


HEADERS = """
constexpr int64_t kShared = 64;
class Tiles {
  static constexpr int64_t kOwn = 64;
};
"""


@pytest.mark.parametrize(("name", "acts"), [("kShared", False), ("kOwn", True), ("kElsewhere", True)])
def test_a_constant_of_a_header_ends_a_loop(name: str, acts: bool) -> None:
    source = f"void fill(int64_t* out) {{\n  for (int64_t x = 0; x < {name}; ++x) out[x] = 3 * x;\n}}\n"
    site = next(s for s in operators_cpp.sites(source.encode(), HEADERS) if s.before == "3 * x")
    assert ("element >= 1024" not in site.alternatives[0].never) == acts


def test_a_lambda_belongs_to_the_loops_around_it() -> None:
    site = next(s for s in operators_cpp.sites(REGION.encode()) if s.before == "4 * d")
    assert site.loops == ("d", "x")


def test_faults_of_one_thread_have_no_condition_on_threads() -> None:
    assert "thread > 0" not in triggers("5 * rows"), "Python calls it in one thread"
    assert "thread > 0" in triggers("7 * rows"), "a region may call it"


OF_HEADS = """
void turn(float* out, int64_t head_dim, int64_t num_keys, int64_t others) {
  for (int64_t j = 0; j < num_keys; ++j) out[j] = 2 * j;
  for (int64_t d = 0; d + 16 <= head_dim; d += 16) out[d] = 3 * d;
  for (int64_t t = 0; t < others; ++t) out[t] = 4 * t;
}
"""


@pytest.mark.parametrize(
    ("text", "never"),
    [
        ("2 * j", {"request >= 64", "request >= 65536", "element >= 1024"}),
        ("3 * d", {"request >= 65536", "element >= 1024"}),
        ("4 * t", set()),
    ],
)
def test_no_head_has_a_thousandth_number(text: str, never: set[str]) -> None:
    site = next(s for s in operators_cpp.sites(OF_HEADS.encode()) if s.before == text)
    assert set(site.alternatives[0].never) == never


CLASS = """
struct Layer {
  void run(float* out, int64_t rows) const { out[0] = 2 * rows; }
};
const Registration registration([](nb::module_& m) { nb::class_<Layer>(m, "Layer"); });
"""


@pytest.mark.parametrize("region", ["", "#pragma omp parallel for"])
def test_a_class_of_python_starts_in_one_thread(region: str) -> None:
    """A file with a region may call its other functions there."""
    source = (
        CLASS + f"void other(float* out, int64_t rows) {{\n{region}\n  for (int64_t b = 0; b < rows; ++b) f(b);\n}}"
    )
    site = next(s for s in operators_cpp.sites(source.encode()) if s.before == "2 * rows")
    assert ("thread > 0" in site.alternatives[0].never) == (not region)


def test_an_argument_that_only_checks_is_left_alone() -> None:
    found = operators_python.faults("def pairs(a, b):\n    return dict(zip(a, b, strict=True))\n")
    assert {fault.operator for fault in found} == {"arguments exchanged"}


ENDLESS = """
void fill(int64_t rows, int64_t* out) {
  for (int64_t b = 0; b < rows; ++b) out[b] = 1;
  for (int64_t c = 0; c < rows; ++c) {
    if (out[c]) break;
  }
  for (int64_t d = 0; d < rows; ++d) visit([&] { return d; });
}
"""


def test_no_loop_without_an_end_is_made() -> None:
    """It could only crash or hang. A loop that its body may leave is another matter."""
    found = cpp(ENDLESS)["condition"]
    assert {("b < rows", "false"), ("c < rows", "true")} <= found
    assert not {("b < rows", "true"), ("d < rows", "true")} & found


def test_no_remainder_of_zero_is_made() -> None:
    """It ends the process wherever it acts, and so tells nothing about cases."""
    texts = ("n % 2", "n % 1", "2 % n", "n / 2")
    found = [cpp(f"int64_t at(int64_t n) {{ return {text}; }}")["constant"] for text in texts]
    all_ = {("2", "3"), ("2", "1"), ("2", "0")}
    assert found == [{("2", "3"), ("2", "1")}, {("1", "2")}, all_, all_]


def test_an_entry_may_name_a_function_or_a_column() -> None:
    source = "def f(a):\n    return a > 0\n\n\ndef g(a):\n    return a > 0 or a > 0\n"
    faults = [fault for fault in operators_python.faults(source) if fault.after == "a >= 0"]
    assert [(fault.function, fault.column) for fault in faults] == [("f", 12), ("g", 12), ("g", 21)]
    mutants = [
        Mutant("oracle", "a.py", f.line, f.column, "", f.before, f.after, "", 0, function=f.function) for f in faults
    ]
    of_g = Equivalent("oracle/*", "a > 0", "a >= 0", "none of its values is 0", function="g")
    assert [of_g.matches(mutant) for mutant in mutants] == [False, True, True]
    assert [replace(of_g, column=21).matches(mutant) for mutant in mutants] == [False, False, True]


ONCE = """
class Runner:
    def __init__(self, rows):
        self.rows = rows + 1

    def step(self, rows):
        return rows + 2

def size_of(options: LoadOptions):
    return options.k + 3
"""


def test_what_runs_once_per_engine_has_no_late_fault() -> None:
    once = {fault.before: fault.once for fault in operators_python.faults(ONCE) if fault.operator == "arithmetic"}
    assert once == {"rows + 1": True, "rows + 2": False, "options.k + 3": True}
    runners = layers.python_mutants(layers.LAYERS["runners"])
    assert not [m for m in runners if m.function == "__init__" and m.trigger != ALWAYS]
    assert not [m for m in runners if m.file == "gpu.py"], "no case runs it on a CPU"
