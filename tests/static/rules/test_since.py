"""SIG701 to SIG706: what a change alters in plain Python, and who still relies on the old form."""

from __future__ import annotations

from textwrap import dedent

import pytest

from verispec.static import Finding, Level, MemoryTree
from verispec.static.since import outdated_uses


def found(
    old: dict[str, str],
    new: dict[str, str],
    host: dict[str, str] | None = None,
    host_before: dict[str, str] | None = None,
) -> list[tuple[str, Level]]:
    return [(f.rule, f.level) for f in findings(old, new, host, host_before)]


def findings(
    old: dict[str, str],
    new: dict[str, str],
    host: dict[str, str] | None = None,
    host_before: dict[str, str] | None = None,
) -> tuple[Finding, ...]:
    def tree(sources: dict[str, str] | None) -> MemoryTree | None:
        return MemoryTree({path: dedent(text) for path, text in sources.items()}) if sources is not None else None

    own, before = tree({**old, **new}), tree(old)
    assert own is not None and before is not None
    return outdated_uses(own, before, tree(host), tree(host_before))


ERROR, WARNING = Level.ERROR, Level.WARNING

TWO = """
def verify(logits):
    return logits, 1
"""
THREE = TWO.replace("logits, 1", "logits, 1, 2")
USE = """
from pkg.sampler import verify

def step(logits):
    {use}
"""


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("sampled, count = verify(logits)", [("SIG701", ERROR)]),
        ("sampled, count, mask = verify(logits)", []),
        ("sampled, *rest = verify(logits)", []),
        ("result = verify(logits)", []),
        ("sampled, count = other.verify(logits)", []),
        ("sampled, count = [verify(logits), 1]", []),
    ],
)
def test_a_result_that_grew(use, expected):
    old = {"pkg/sampler.py": TWO, "pkg/run.py": USE.format(use=use)}
    assert found(old, {"pkg/sampler.py": THREE}) == expected
    assert found(old, {}) == []


@pytest.mark.parametrize(
    "body",
    [
        "return (logits, 1, 2) if logits else (logits, 1)",
        "return result",
        "yield logits, 1, 2",
        "return (*logits, 1)",
        "return logits, 3",
    ],
)
def test_a_result_that_is_not_known(body):
    old = {"pkg/sampler.py": TWO, "pkg/run.py": USE.format(use="sampled, count = verify(logits)")}
    assert found(old, {"pkg/sampler.py": f"\ndef verify(logits):\n    {body}\n"}) == []


SEVERAL = """
def seeded(logits):
    return logits, 2

def verify(logits{more}):
    if logits:
        return seeded(logits)
    return logits, {last}
"""


@pytest.mark.parametrize(
    ("last", "more", "expected"),
    [("1", "", []), ("1, 2", "", [("SIG701", WARNING)]), ("1, 2", ", with_mask=False", [])],
)
def test_one_of_several_results_that_grew(last, more, expected):
    old = {"pkg/sampler.py": SEVERAL.format(last="0", more=""), "pkg/run.py": USE.format(use="a, b = verify(logits)")}
    assert found(old, {"pkg/sampler.py": SEVERAL.format(last=last, more=more)}) == expected


def test_callers_that_choose_with_the_function():
    use = "a, b = verify(logits)\n    c, d, e = verify(logits)"
    old = {"pkg/sampler.py": SEVERAL.format(last="0", more=""), "pkg/run.py": USE.format(use=use)}
    assert found(old, {"pkg/sampler.py": SEVERAL.format(last="1, 2", more="")}) == []


def test_a_result_that_is_handed_on():
    old = {"pkg/sampler.py": SEVERAL.format(last="0", more=""), "pkg/run.py": USE.format(use="a, b = verify(logits)")}
    grown = old["pkg/sampler.py"].replace("logits, 2", "logits, 2, 3").replace("logits, 0", "logits, 0, 1")
    assert found(old, {"pkg/sampler.py": grown}) == [("SIG701", ERROR)]


def test_a_result_that_an_unchanged_function_hands_on():
    only = "def seeded(logits):\n    return {}\n\ndef verify(logits):\n    return seeded(logits)\n"
    old = {"pkg/sampler.py": only.format("logits, 1"), "pkg/run.py": USE.format(use="a, b = verify(logits)")}
    assert found(old, {"pkg/sampler.py": only.format("logits, 1, 2")}) == [("SIG701", ERROR)]
    assert found(old, {"pkg/sampler.py": only.format("logits, 2")}) == []


def test_a_function_of_that_name_elsewhere():
    old = {"pkg/sampler.py": TWO, "pkg/other.py": TWO, "pkg/run.py": USE.format(use="a, b = verify(logits)")}
    old["pkg/run.py"] = old["pkg/run.py"].replace("pkg.sampler", "pkg.other")
    assert found(old, {"pkg/sampler.py": THREE}) == []


METHODS = """
class Proposer:
    def prepare(self, x):
        return x, 1, 2

class Runner:
    def step(self, x):
        a, b, c = self.drafter.prepare(x)
"""


def test_a_method_whose_result_shrank():
    new = METHODS.replace("x, 1, 2", "x, 1")
    assert found({"p.py": METHODS}, {"p.py": new}) == [("SIG701", ERROR)]
    # Another class of the tree, or of the host, still returns three.
    another = "class Other:\n    def prepare(self, x):\n        return x, 1, 2\n"
    assert found({"p.py": METHODS, "q.py": another}, {"p.py": new}) == []
    assert found({"p.py": METHODS}, {"p.py": new}, {"host.py": another}) == []
    unknown = "class Other:\n    def prepare(self, x):\n        return x\n"
    assert found({"p.py": METHODS, "q.py": unknown}, {"p.py": new}) == []


def test_a_host_whose_result_grew():
    use = {"plugin.py": USE.format(use="a, b = verify(logits)")}
    before, host = {"pkg/sampler.py": TWO}, {"pkg/sampler.py": THREE}
    assert found(use, {}, host, before) == [("SIG701", ERROR)]
    assert found(use, {}, host) == []


VERSIONED = """
from pkg.sampler import verify

if vllm_version_is("0.25.1"):
    a, b = verify(1)
else:
    a, b, c = verify(1)
"""


@pytest.mark.parametrize(("use", "count"), [(VERSIONED, 0), (VERSIONED.replace("0.25.1", "0.26.0"), 1)])
def test_a_branch_for_another_version_of_the_host(use, count):
    host = {"vllm/_version.py": '__version__ = "0.26.0"\n', "pkg/sampler.py": THREE}
    assert len(found({"plugin.py": use}, {}, host, {**host, "pkg/sampler.py": TWO})) == count


def test_a_call_of_two_changed_methods_is_one_finding():
    new = NGRAM.replace("is_profile", "profiling")
    both = {"ngram.py": NGRAM, "eagle.py": EAGLE, "run.py": CALL.format("graph=1, ")}
    assert found(both, {"ngram.py": new, "eagle.py": new.replace("Ngram", "Eagle")}) == [("SIG705", ERROR)]


PROPERTY = """
class NgramInput:
    @property
    def depth(self):
        return 3

class EagleInput:
    @property
    def depth(self):
        return 4
"""
METHOD = PROPERTY.replace("    @property\n", "", 1)


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("width = entry.depth - 1", [("SIG702", ERROR)]),
        ("width = entry.depth() - 1", []),
        ("width = entry.depth if one else entry.depth()", []),
        ("width = entry.width", []),
    ],
)
def test_a_property_that_became_a_method(use, expected):
    old = {"info.py": PROPERTY, "run.py": use}
    assert found(old, {"info.py": METHOD}) == expected


def test_a_method_that_became_a_property():
    both = PROPERTY.replace("    @property\n", "")
    old = {"info.py": both, "run.py": "width = entry.depth()"}
    assert found(old, {"info.py": PROPERTY}) == [("SIG702", ERROR)]
    assert found(old, {"info.py": METHOD}) == []  # the call may be of the other class
    assert found({**old, "run.py": "width = entry.depth"}, {"info.py": PROPERTY}) == []


HANDLER = """
class Handler:
    def take(self):
        return self.tokens
"""


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("handler.take().ids", [("SIG703", ERROR)]),
        ("handler.take()", [("SIG703", ERROR)]),
        ("a, b = handler.take()", [("SIG703", ERROR)]),
        ("for token in handler.take(): pass", [("SIG703", ERROR)]),
        ("return handler.take()", [("SIG703", WARNING)]),
        ("task = create_task(handler.take())", []),
        ("task = handler.take()", []),
    ],
)
def test_a_method_that_became_asynchronous(use, expected):
    old = {"h.py": HANDLER, "run.py": f"def run(handler):\n    {use}\n"}
    new = {"h.py": HANDLER.replace("def take", "async def take")}
    assert found(old, new) == expected
    awaited = use.replace("handler.take()", "(await handler.take())")
    assert found({**old, "run.py": f"async def run(handler):\n    {awaited}\n"}, new) == []
    other = {"other.py": HANDLER.replace("Handler", "Other")}
    assert found({**old, **other}, new) == []


BASE = """
class Speculator:
    def run(self):
        self.on_decode_begin(1)

    def on_decode_begin(self, num_reqs): ...
"""
CHILD = """
from base import Speculator

class MTP(Speculator):
    def on_decode_begin(self, num_reqs):
        {body}
"""


def test_a_hook_that_its_base_renamed():
    old = {"base.py": BASE, "mtp.py": CHILD.format(body="self.skip()")}
    renamed = BASE.replace("on_decode_begin", "on_draft_begin")
    assert found(old, {"base.py": renamed}) == [("SIG704", ERROR)]
    assert found({**old, "mtp.py": CHILD.format(body="super().on_decode_begin(num_reqs)")}, {"base.py": renamed}) == [
        ("SIG704", ERROR)
    ]
    child = old["mtp.py"].replace("on_decode_begin", "on_draft_begin")
    assert found(old, {"base.py": renamed, "mtp.py": child}) == []
    both = child + "\n    def on_decode_begin(self, num_reqs): ...\n"
    assert found(old, {"base.py": renamed, "mtp.py": both}) == []
    # Somebody calls it, it is only gone, or the class is no subclass.
    assert found({**old, "run.py": "mtp.on_decode_begin(1)"}, {"base.py": renamed}) == []
    assert found(old, {"base.py": renamed.replace("...", "return 1")}) == []
    assert found({**old, "mtp.py": old["mtp.py"].replace("(Speculator)", "")}, {"base.py": renamed}) == []


def test_a_host_that_renamed_its_hook():
    renamed = BASE.replace("on_decode_begin", "on_draft_begin")
    plugin = {"mtp.py": CHILD.format(body="self.skip()")}
    assert found(plugin, {}, {"base.py": renamed}, {"base.py": BASE}) == [("SIG704", ERROR)]


def test_an_override_that_was_renamed():
    old = {"base.py": BASE, "mtp.py": CHILD.format(body="self.skip()")}
    renamed = old["mtp.py"].replace("on_decode_begin", "on_decode_begin_npu")
    assert found(old, {"mtp.py": renamed}) == [("SIG704", ERROR)]
    assert found({"mtp.py": old["mtp.py"]}, {"mtp.py": renamed}, {"base.py": BASE}) == [("SIG704", ERROR)]
    assert found({"mtp.py": old["mtp.py"]}, {"mtp.py": renamed}, {"base.py": ""}) == []
    called = {**old, "run.py": "mtp.on_decode_begin_npu(1)"}
    assert found(called, {"mtp.py": renamed}) == []
    assert found({**old, "run.py": "getattr(mtp, 'on_decode_begin_npu')"}, {"mtp.py": renamed}) == []
    assert found(old, {"mtp.py": CHILD.format(body="pass").replace("on_decode_begin", "on_other")}) == []


FUNCTION = """
def verify(logits, block=False): ...
def other(logits): ...
"""
PARTIAL = """
from functools import partial
from pkg.sampler import other, verify

def run(fast):
    if fast:
        fn = verify
        if fast > 1:
            fn = partial({first}, {keyword}=True)
    else:
        fn = other
    fn(1)
"""


@pytest.mark.parametrize(
    ("first", "keyword", "expected"),
    [
        ("verify", "block", [("SIG705", ERROR)]),
        ("fn", "block", [("SIG705", ERROR)]),
        ("fn", "use_block", []),
        ("other", "block", []),
        ("unknown", "block", []),
    ],
)
def test_a_partial_with_the_old_keyword(first, keyword, expected):
    old = {"pkg/sampler.py": FUNCTION, "pkg/run.py": PARTIAL.format(first=first, keyword=keyword)}
    assert found(old, {"pkg/sampler.py": FUNCTION.replace("block", "use_block")}) == expected
    assert found(old, {"pkg/sampler.py": FUNCTION.replace("block=False", "**more")}) == []


POOL = """
class Pool:
    def __init__(self, size, concurrency=1): ...
"""


@pytest.mark.parametrize(("keyword", "expected"), [("concurrency", [("SIG705", ERROR)]), ("size", [])])
def test_a_partial_of_a_class(keyword, expected):
    use = f"from functools import partial\nfrom pool import Pool\nmake = partial(Pool, {keyword}=2)\n"
    old = {"pool.py": POOL, "run.py": use}
    assert found(old, {"pool.py": POOL.replace("concurrency", "max_concurrency")}) == expected


NGRAM = """
class Ngram:
    def dummy_run(self, tokens, graph=None, reqs=None, is_profile=False): ...
"""
EAGLE = NGRAM.replace("Ngram", "Eagle")
CALL = "self.drafter.dummy_run(4, {}is_profile=True)\n"


def test_a_method_that_lost_a_keyword():
    new = {"ngram.py": NGRAM.replace("is_profile", "profiling")}
    call = CALL.format("graph=1, reqs=2, ")
    assert found({"ngram.py": NGRAM, "run.py": call}, new) == [("SIG705", ERROR)]
    assert found({"ngram.py": NGRAM, "eagle.py": EAGLE, "run.py": call}, new) == [("SIG705", WARNING)]
    assert found({"ngram.py": NGRAM, "eagle.py": EAGLE, "run.py": CALL.format("")}, new) == []
    assert found({"ngram.py": NGRAM, "run.py": EAGLE + call}, new) == []
    assert found({"ngram.py": NGRAM, "run.py": CALL.format("width=1, ")}, new) == []
    assert found({"ngram.py": NGRAM, "run.py": call.replace("is_profile", "profiling")}, new) == []
    assert found({"ngram.py": NGRAM, "run.py": call}, {"ngram.py": NGRAM.replace("is_profile=False", "**more")}) == []


INIT = """
class Sampler(Module):
    {more}
    def __init__(self, rates):
        super().__init__()
        {lines}
"""


@pytest.mark.parametrize(
    ("lines", "more", "expected"),
    [
        ("warm(self.mode)\n        self.mode = rates", "", [("SIG706", ERROR)]),
        ("self.mode = rates\n        warm(self.mode)", "", []),
        ("self.mode = self.mode or rates", "", []),
        ("warm(self.mode)\n        self.mode = rates", "mode = 1", []),
        ("warm(self.mode)\n        self.mode = rates", "def reset(self): self.mode = 2", []),
        ("warm(lambda: self.mode)\n        self.mode = rates", "", []),
    ],
)
def test_an_attribute_read_before_it_is_set(lines, more, expected):
    old = {"s.py": INIT.format(lines="self.mode = rates\n        warm(self.mode)  # before", more="")}
    assert found(old, {"s.py": INIT.format(lines=lines, more=more)}) == expected


def test_an_attribute_that_a_base_gives():
    swapped = {"s.py": INIT.format(lines="warm(self.mode)\n        self.mode = rates", more="")}
    old = {"s.py": INIT.format(lines="self.mode = rates\n        warm(self.mode)", more="")}
    base = "class Module:\n    def __init__(self):\n        self.mode = 1\n"
    assert found({**old, "b.py": base}, swapped) == []
    assert found(old, swapped, {"b.py": base}) == []
    # It was read first before, too.
    assert found(swapped, {"s.py": swapped["s.py"] + "# changed\nx = 1\n"}) == []


def test_a_comment_and_a_test():
    old = {"pkg/sampler.py": TWO, "pkg/run.py": USE.format(use="a, b = verify(1)  # verispec: ignore[SIG701] later")}
    assert found(old, {"pkg/sampler.py": THREE}) == []
    old = {"pkg/sampler.py": TWO, "tests/test_run.py": USE.format(use="a, b = verify(1)")}
    assert found(old, {"pkg/sampler.py": THREE}) == []


def test_a_finding_names_both_sides():
    old = {"pkg/sampler.py": TWO, "pkg/run.py": USE.format(use="a, b = verify(1)")}
    (finding,) = findings(old, {"pkg/sampler.py": THREE})
    assert finding.message == "verify returns 3 values, and 2 are unpacked here"
    assert str(finding.location).startswith("pkg/run.py:5") and finding.scope == "pkg.run.step"
    assert [side.label for side in finding.sides] == ["code", "function", "before"]


def test_a_file_that_cannot_be_parsed():
    old = {"pkg/sampler.py": TWO, "pkg/run.py": USE.format(use="a, b = verify(1)"), "pkg/bad.py": "verify(("}
    assert found(old, {"pkg/sampler.py": THREE}) == [("SIG701", ERROR)]
    assert found(old, {"pkg/sampler.py": "def verify("}) == []


FIELDS = """
class SpecConfig:
    method: str = "ngram"
    {field}: int = 3

class Mode(Enum):
    FAST = 1
    {member} = 2
"""
FIELD_USE = """
from pkg.config import Mode, SpecConfig

def run(spec_config, other):
    {use}
"""


@pytest.mark.parametrize(
    ("use", "extra", "count"),
    [
        ("return spec_config.width", "", 1),
        ("return other.spec_config.width", "", 1),
        ("return other.width", "", 0),  # something else may have it
        ("return spec_config.width", "class Other:\n    width = 3\n", 0),
        ("return spec_config.width", "setattr(x, 'width', 3)\n", 0),
        ("return spec_config.width", "make(width=3)\n", 0),
        ("return spec_config.width", "SpecConfig(width=3)\n", 1),
        ("spec_config.width = 3", "", 0),
        ("return Mode.STRICT", "", 1),
        ("return Mode.STRICT", "class Other:\n    STRICT = 3\n", 1),
        ("return other.Mode.STRICT", "", 0),
        ("return Mode.FAST", "", 0),
    ],
)
def test_a_member_that_a_change_took_away(use: str, extra: str, count: int) -> None:
    """vLLM's configurations and SGLang's server arguments lose fields that a platform's worker still reads."""
    old = {
        "pkg/config.py": FIELDS.format(field="width", member="STRICT"),
        "pkg/run.py": FIELD_USE.format(use=use) + extra,
    }
    new = {"pkg/config.py": FIELDS.format(field="size", member="EXACT")}
    assert found(old, new) == [("SIG707", ERROR)] * count
    assert found(old, {"pkg/config.py": old["pkg/config.py"] + "\n# more\n"}) == []


def test_a_member_that_a_base_has() -> None:
    old = {
        "pkg/config.py": "class Base:\n    STRICT = 1\n\nclass Mode(Base):\n    STRICT = 2\n    FAST = 3\n",
        "pkg/run.py": "from pkg.config import Mode\nx = Mode.STRICT\n",
    }
    assert found(old, {"pkg/config.py": old["pkg/config.py"].replace("    STRICT = 2\n", "")}) == []
    lost = {"pkg/config.py": old["pkg/config.py"].replace("    STRICT = 2\n", "").replace("STRICT = 1", "LAX = 1")}
    assert found(old, lost) == [("SIG707", ERROR)]


AN_OP = 'def wait(x):\n    return x\n\ndirect_register_custom_op(op_name="{name}", op_func=wait)\n'


@pytest.mark.parametrize(
    ("register", "extra", "count"),
    [
        (AN_OP, "", 1),
        ("@register_custom_op(mutates_args=[])\ndef {name}(x):\n    return x\n", "", 1),
        ('lib.define("{name}(Tensor x) -> Tensor")\n', "", 1),
        (AN_OP, AN_OP.format(name="wait_all"), 0),  # another platform registers it
        ("# {name}\n", "", 0),
    ],
)
def test_an_op_that_nothing_registers_any_more(register: str, extra: str, count: int) -> None:
    old = {
        "pkg/ops.py": register.replace("{name}", "wait_all"),
        "pkg/run.py": "import torch\n\ndef run(x):\n    return torch.ops.vllm.wait_all(x)\n",
        "pkg/other.py": extra,
    }
    assert found(old, {"pkg/ops.py": register.replace("{name}", "wait_for_all")}) == [("SIG707", ERROR)] * count


HOOK = """
class Proposer:
    def prepare(self, x):
        return {result}
"""
OVERRIDING = """
from pkg.base import Proposer

class Eagle(Proposer):
    def prepare(self, x):
        return {result}
"""


@pytest.mark.parametrize(
    ("derived", "caller", "count"),
    [("x, 1", "a, b, c", 1), ("x, 1, 2", "a, b, c", 0), ("x, 1", "a, b", 0), ("make(x)", "a, b, c", 0)],
)
def test_an_override_that_returns_as_many_as_before(derived: str, caller: str, count: int) -> None:
    """The runner takes what the base returns now, and one drafter returns what it did."""
    run = "def run(drafter, x):\n    {0} = drafter.prepare(x)\n"
    old = {
        "pkg/base.py": HOOK.format(result="x, 1"),
        "pkg/derived.py": OVERRIDING.format(result=derived),
        "pkg/run.py": run.format("a, b"),
    }
    new = {"pkg/base.py": HOOK.format(result="x, 1, 2"), "pkg/run.py": run.format(caller)}
    assert found(old, new) == [("SIG701", ERROR)] * count
    other = {**old, "pkg/derived.py": old["pkg/derived.py"].replace("(Proposer)", "")}
    assert found(other, new) == [("SIG701", WARNING)] * count
    unlike = {**other, "pkg/derived.py": other["pkg/derived.py"].replace("self, x", "self, x, y")}
    assert found(unlike, new) == []
    assert found({**old, "pkg/run.py": run.format(caller)}, {"pkg/base.py": new["pkg/base.py"]}) == []


TUPLE = """
from typing import NamedTuple

class TopK(NamedTuple):
    weights: int
    ids: int
    logits: int
"""


@pytest.mark.parametrize(
    ("unpacked", "extra", "expected"),
    [
        ("weights, ids, _ = topk_output", "", [("SIG701", ERROR)]),
        ("weights, ids, logits = self.out", "", [("SIG701", ERROR)]),
        ("weights, ids = topk_output", "", []),
        ("weights, _, _ = topk_output", "", []),
        ("ids, weights, _ = topk_output", "", []),
        ("weights, ids, _ = topk_output", TUPLE.replace("TopK", "Other"), [("SIG701", WARNING)]),
        ("weights, ids, _ = make(topk_output)", "", []),
    ],
)
def test_a_named_tuple_with_one_field_more(unpacked: str, extra: str, expected: list[tuple[str, Level]]) -> None:
    """SGLang's outputs of the router are unpacked in a dozen quantization methods."""
    old = {"pkg/topk.py": TUPLE, "pkg/run.py": f"def run(topk_output):\n    {unpacked}\n", "pkg/other.py": extra}
    assert found(old, {"pkg/topk.py": f"{TUPLE}    valid: int = 0\n"}) == expected
