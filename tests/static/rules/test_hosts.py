"""SIG205 to SIG207: callers of a host, and a plugin's replacements of their callees."""

from __future__ import annotations

import pytest

from verispec.static import Level

OPS = "def topk(logits, n, ids=None, state=None):\n    return logits\n"
SAMPLER = """
from core.ops import topk
import core.ops

class Sampler:
    def __init__(self, size, *, dtype=None):
        self.size = size

def sample(x, st):
    return topk(x, 1, {call})

def other(x, st):
    return core.ops.topk(x, 1, {call})

def build():
    return Sampler(1, dtype=2)
"""
CORE = {
    "core/ops.py": OPS,
    "core/sampler.py": SAMPLER.format(call="state=st"),
    "core/_version.py": '__version__ = "1.2.0"',
}
PATCH = """
import core.sampler
import core.ops

def topk_npu({params}):
    return logits

{install}
"""
HERE = "core.sampler.topk = topk_npu"


def patch(params: str = "logits, n, ids=None", install: str = HERE) -> dict[str, str]:
    return {"plug/patch.py": PATCH.format(params=params, install=install)}


def test_a_tree_that_patches_itself(judged):
    """SGLang's model of Grok replaces a method of its own loader."""
    (finding,) = judged("SIG205", {**CORE, **patch()})
    assert (finding.level, finding.location.path) == (Level.ERROR, "core/sampler.py")
    assert judged("SIG205", {**CORE, **patch(params="logits, n, ids=None, state=None")}) == ()


@pytest.mark.parametrize(
    ("params", "install", "level"),
    [
        ("logits, n, ids=None", HERE, Level.ERROR),
        ("logits, n, ids, state", HERE, Level.ERROR),
        ("logits, n, ids=None", "core.ops.topk = topk_npu", Level.ERROR),
        ("logits, n, ids=None", "def install():\n    core.sampler.topk = topk_npu", Level.ERROR),
        ("logits, n, ids=None", 'if core_is("1.2.0"):\n    core.sampler.topk = topk_npu', Level.ERROR),
        ("logits, n, ids=None", 'if core_is("1.1.0"):\n    core.sampler.topk = topk_npu', None),
        ("logits, n, ids=None", "if VERSION_OK:\n    core.sampler.topk = topk_npu", Level.NOTE),
        ("logits, n, ids=None, state=None", HERE, None),
        ("logits, n, **rest", HERE, None),
        ("n, logits, ids=None, state=None", HERE, Level.ERROR),
        ("count, rows, ids=None, state=None", HERE, None),
        ("n, rows, ids=None, state=None", HERE, None),
        ("*args, **rest", HERE, None),
        ("logits, k, state=None", HERE, None),
        ("logits, n, ids=None", "core.sampler.topk = wrap(topk_npu)", None),
        ("logits, n, ids=None", "unrelated.sampler.topk = topk_npu", None),
    ],
)
def test_a_replaced_function(judged, params, install, level):
    findings = judged("SIG205", patch(params, install), CORE)
    assert [finding.level for finding in findings] == ([] if level is None else [level])
    for finding in findings:
        assert [side.label for side in finding.sides] == ["call", "original", "replacement"]


@pytest.mark.parametrize(("version", "level"), [("1.1.0", None), ("1.2.0", Level.ERROR)])
def test_a_version_that_stands_in_the_package_itself(judged, version, level):
    """Small packages have no file of their own for it; tests of other versions were reported as open ones."""
    host = {path: text for path, text in CORE.items() if path != "core/_version.py"}
    host["core/__init__.py"] = 'import os\n\n__version__ = "1.2.0"\n'
    install = f'if core_is("{version}"):\n    core.sampler.topk = topk_npu'
    assert [found.level for found in judged("SIG205", patch(install=install), host)] == ([level] if level else [])
    host["tools/__init__.py"] = '__version__ = "0.1"\n'
    assert [found.level for found in judged("SIG205", patch(install=install), host)] == [Level.NOTE], "which of them?"


def test_values_that_trade_places_are_named(judged):
    """The call binds, and every value is wrong: no test of shapes sees it where both are of the same shape."""
    (first,) = judged("SIG205", patch("n, logits, ids=None, state=None"), CORE)
    assert first.message.endswith("trades values in the replacement, which receives logits as n, n as logits")
    by_keyword = {name: text.replace("topk(x, 1,", "topk(logits=x, n=1,") for name, text in CORE.items()}
    assert judged("SIG205", patch("n, logits, ids=None, state=None"), by_keyword) == ()


def test_a_call_that_fits_neither_is_not_the_plugins_fault(judged):
    assert judged("SIG205", patch(), CORE | {"core/sampler.py": SAMPLER.format(call="sttate=st")}) == ()


CLASS = """
import core.sampler
class NPUSampler{bases}:
    def __init__(self, {params}):
        pass
core.sampler.Sampler = NPUSampler
"""


@pytest.mark.parametrize(
    ("bases", "params", "errors"),
    [
        ("", "size", 1),
        ("(core.sampler.Sampler)", "size", 1),
        ("", "size, dtype=None", 0),
        ("", "size, **rest", 0),
    ],
)
def test_a_replaced_class(judged, bases, params, errors):
    assert len(judged("SIG205", {"plug/patch.py": CLASS.format(bases=bases, params=params)}, CORE)) == errors


RUNNER = {
    "core/runner.py": """
        class Base:
            def step(self, ids, s):
                return self.propose(ids, s, spec=1)
            def propose(self, ids, sampling, spec=0):
                return ids

        class Runner(Base):
            def run(self):
                return self.step([1], 2)

        def drive(runner):
            return runner.propose_drafts(1, spec=2)

        class Drafter:
            def propose_drafts(self, ids, spec=0):
                return ids
        """
}
PLUGIN = """
from core.runner import Drafter, Runner

class NPURunner(Runner):
    def {name}(self, {params}):
        pass
    {more}
"""


@pytest.mark.parametrize(
    ("params", "more", "level"),
    [
        ("ids, sampling", "", Level.WARNING),
        ("ids, sampling, *, extra, spec=0", "", Level.WARNING),
        ("ids, sampling, spec=0", "", None),
        ("ids, s, spec=0", "", None),
        ("ids, *args, **kwargs", "", None),
        ("ids, sampling", "def step(self, ids, s):\n        return self.propose(ids, s)", None),
        ("ids, sampling", "def step(self, ids, s):\n        return super().step(ids, s)", Level.WARNING),
    ],
)
def test_an_overridden_method(judged, params, more, level):
    findings = judged("SIG206", {"plug/runner.py": PLUGIN.format(name="propose", params=params, more=more)}, RUNNER)
    assert [finding.level for finding in findings] == ([] if level is None else [level])
    assert all(finding.level_if_new is Level.ERROR for finding in findings)


def test_a_caller_that_the_plugin_replaces_for_good(judged):
    """Nobody runs Base.step any more: the only class that calls it calls an override of the plugin."""
    more = "def run(self):\n        return self.propose([1], 2)"
    source = PLUGIN.format(name="propose", params="ids, sampling", more=more)
    (finding,) = judged("SIG206", {"plug/runner.py": source}, RUNNER)
    assert finding.level is Level.NOTE


@pytest.mark.parametrize(
    ("own", "level"),
    [
        ("self.propose([1])", Level.NOTE),
        ("self.propose([1], 2)", Level.WARNING),
        ("super().propose([1], 2)", Level.WARNING),
    ],
)
def test_an_override_that_the_plugin_calls_in_its_own_way(judged, own, level):
    """vllm-ascend's DFlash proposer and vllm-qaic's runner have callers of their own."""
    source = PLUGIN.format(name="propose", params="ids, sampling=0", more=f"def drive(self):\n        return {own}")
    (finding,) = judged("SIG206", {"plug/runner.py": source}, RUNNER)
    assert (finding.level, finding.level_if_new) == (level, Level.ERROR)


@pytest.mark.parametrize(("params", "level"), [("ids", Level.NOTE), ("ids, sampling, spec=0", Level.WARNING)])
def test_a_call_that_a_class_of_the_host_does_not_take_either(judged, params, level):
    """A loop of vLLM 0.9.0 calls execute_model as its own newer workers do not take it: it does not run for them."""
    host = (
        RUNNER["core/runner.py"]
        + f"""
        class Newer(Base):
            def propose(self, {params}):
                return ids
    """
    )
    source = PLUGIN.format(name="propose", params="ids, sampling", more="").replace("Runner", "Base")
    (finding,) = judged("SIG206", {"plug/runner.py": source}, {"core/runner.py": host})
    assert finding.level is level


MIXER = {
    "core/mixer.py": """
    import torch

    class Mixer:
        def forward(self, x):
            torch.ops.core.mixer_op(x, "name")

        def mix_states(self, states, output):
            return output

    def mixer_op(x, name):
        layer = layers[name]
        layer.mix_states(states=x, output=x)
    """
}
PLUGIN_MIXER = """
from core.mixer import Mixer

class NPUMixer(Mixer):
    {more}
    def mix_states(self, projected, output):
        return output
"""


@pytest.mark.parametrize(
    ("more", "elsewhere", "level"),
    [
        ("", "", Level.WARNING),
        ("def forward(self, x):\n        return self.mix_states(x, x)\n", "", Level.NOTE),
        ("def forward(self, x):\n        return super().forward(x)\n", "", Level.WARNING),
        (
            "def forward(self, x):\n        return self.mix_states(x, x)\n",
            "import torch\n\ndef run(x):\n    torch.ops.core.mixer_op(x, 'name')\n",
            Level.WARNING,
        ),
    ],
)
def test_the_body_of_an_op_that_only_an_overridden_method_calls(judged, more, elsewhere, level):
    """vllm-gaudi's mixer of Mamba layers runs without the op of vLLM."""
    host = MIXER | ({"core/other.py": elsewhere} if elsewhere else {})
    (finding,) = judged("SIG206", {"plug/mixer.py": PLUGIN_MIXER.format(more=more)}, host)
    assert finding.level is level


@pytest.mark.parametrize(("caller", "level"), [("topk", Level.NOTE), ("topk_all", Level.ERROR)])
def test_a_call_in_the_function_that_is_replaced(judged, caller, level):
    """call_hf_processor of vLLM 0.11.0 calls itself to try again, and vllm-mindspore replaces it."""
    again = f"def {caller}(logits, n, ids=None, state=None):\n    return topk(logits, n, state=state)\n"
    ops = again if caller == "topk" else OPS + again
    (finding,) = judged("SIG205", patch(install="core.ops.topk = topk_npu"), {"core/ops.py": ops})
    assert finding.level is level


def test_a_method_that_only_one_family_has(judged):
    source = PLUGIN.format(name="propose_drafts", params="ids", more="").replace("(Runner)", "(Drafter)")
    (finding,) = judged("SIG206", {"plug/runner.py": source}, RUNNER)
    assert finding.level is Level.WARNING
    more = {"core/other.py": "class Other:\n    def propose_drafts(self, a, spec):\n        pass\n"}
    assert judged("SIG206", {"plug/runner.py": source}, RUNNER | more) == ()


@pytest.mark.parametrize("decorator", ["@property", "@staticmethod", "@wrap"])
def test_a_decorated_override_says_nothing(judged, decorator):
    source = PLUGIN.format(name="propose", params="ids", more="").replace("    def", f"    {decorator}\n    def")
    assert judged("SIG206", {"plug/runner.py": source}, RUNNER) == ()


@pytest.mark.parametrize(
    ("value", "errors"), [("core.ops.topk", 0), ("core.ops.topk_fast", 1), ("core.ops.other.fast", 0), ("np.topk", 0)]
)
def test_a_value_that_is_not_there(judged, value, errors):
    assert len(judged("SIG207", patch(install=f"core.sampler.topk = {value}"), CORE)) == errors


@pytest.mark.parametrize("there", ["topk_fast = load()", "from fast import *", "def __getattr__(name): ..."])
def test_a_value_that_cannot_be_followed_may_be_there(judged, there):
    core = CORE | {"core/ops.py": f"{OPS}\n{there}\n"}
    assert judged("SIG207", patch(install="core.sampler.topk = core.ops.topk_fast"), core) == ()
