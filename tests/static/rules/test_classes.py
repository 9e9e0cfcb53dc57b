"""SIG502, SIG503 and SIG504: hooks and protocols of classes."""

import pytest

from verispec.static import Level

INTERFACE = """
from typing import Protocol

class SupportsEagle(Protocol):
    def set_aux_hidden_state_layers(self, layers):
        ...
"""
BASE = """
class Runner:
    def load_model(self):
        self.load_drafter()
        self.model.set_aux_hidden_state_layers([1, 2])

    def load_drafter(self):
        pass
"""
SUBCLASS = """
from engine.base import Runner

class CpuRunner(Runner):
    def load_model(self):
        {body}

    def setup(self):
        self.model.set_aux_hidden_state_layers([1])
"""


def runner(body: str) -> dict[str, str]:
    return {"engine/interface.py": INTERFACE, "engine/base.py": BASE, "engine/cpu.py": SUBCLASS.format(body=body)}


def test_override_that_misses_a_hook(judged):
    (finding,) = judged("SIG502", runner("self.load_drafter()"))
    assert finding.level is Level.WARNING
    assert finding.symbol == "engine.cpu.CpuRunner.load_model"
    assert "set_aux_hidden_state_layers" in finding.message


@pytest.mark.parametrize(
    "body",
    [
        "super().load_model()",
        "self.load_drafter(); super().load_model()",
        "self.load_drafter(); self.setup()",
        "self.load_drafter(); self.model.set_aux_hidden_state_layers([3])",
        "raise NotImplementedError",
    ],
)
def test_override_that_calls_it_or_shares_nothing(judged, body):
    assert judged("SIG502", runner(body)) == ()


MODEL = """
from engine.interface import SupportsEagle

class Model(SupportsEagle):
    def {name}(self, layers):
        pass
"""
USER = "def use(model):\n    model.set_aux_hidden_state_layers([1])\n    {more}\n"


@pytest.mark.parametrize(
    "name", ["set_aux_hidden_state_layer", "set_hidden_state_layers", "set_aux_hidden_states_layers"]
)
@pytest.mark.parametrize(("more", "found"), [("pass", 1), ("model.{name}([2])", 0)])
def test_method_one_word_from_its_hook(judged, name, more, found):
    sources = {
        "engine/interface.py": INTERFACE,
        "engine/model.py": MODEL.format(name=name),
        "engine/user.py": USER.format(more=more.format(name=name)),
    }
    findings = judged("SIG503", sources)
    assert [name in finding.message for finding in findings] == [True] * found


@pytest.mark.parametrize("name", ["set_aux_hidden_state_layers", "get_rope_index", "__call__"])
def test_method_that_is_the_hook_or_another(judged, name):
    sources = {"engine/interface.py": INTERFACE, "engine/model.py": MODEL.format(name=name),
               "engine/user.py": USER.format(more="pass")}  # fmt: skip
    assert judged("SIG503", sources) == ()


@pytest.mark.parametrize(("bases", "found"), [("Base", 1), ("Base, SupportsEagle", 0), ("Follower", 0)])
def test_variants_of_a_class(judged, bases, found):
    text = (
        "from engine.interface import SupportsEagle\nfrom engine.common import Base, Follower\n\nclass Model({}): ...\n"
    )
    sources = {
        "engine/interface.py": INTERFACE,
        "engine/common.py": "from engine.interface import SupportsEagle\n\nclass Base:\n    pass\n\n"
                            "class Follower(SupportsEagle):\n    pass\n",
        "engine/nvidia/model.py": text.format("Base, SupportsEagle"),
        "engine/amd/model.py": text.format(bases),
    }  # fmt: skip
    findings = judged("SIG504", sources)
    assert [finding.location.path for finding in findings] == ["engine/amd/model.py"] * found
