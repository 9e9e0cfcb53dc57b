"""A history of 36 commits: two merges, revisions that cannot be parsed, and faults that only a type checker sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from toy_git import ToyRepository
from toy_kernels import CALL, GOOD_TREE

from verispec import exits
from verispec.cli import main

PLAIN = {
    "pkg/step.py": "def step(ids: list[int], *, seed: int = 0) -> list[int]:\n    return ids\n",
    "pkg/use.py": "from pkg.step import step\n\n\ndef run() -> list[int]:\n    return step([1], seed=3)\n",
}
BROKEN = "def broken(:\n"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[ToyRepository, dict[str, str]]:
    """Return the repository, and the commits by what they did.

    A side branch brings SIG101; SIG102 comes in a commit that does not parse, between two that do; a plain call breaks
    near the end; a fault comes from joining two good sides.
    """
    toy = ToyRepository(tmp_path_factory.mktemp("history") / "repo")
    done = {"start": toy.commit({**GOOD_TREE, **PLAIN}, "start")}

    def noise(number: int) -> None:
        for _ in range(number):
            count = len(toy.git("rev-list", "--all").split())
            toy.commit({f"pkg/noise{count}.py": f"x = {count}\n"}, f"noise {count}")

    noise(3)
    toy.commit({"pkg/elsewhere.py": BROKEN}, "a file that takes no part does not parse")
    noise(2)
    toy.commit({"pkg/elsewhere.py": "x = 1\n"}, "it parses again")
    noise(2)
    toy.git("checkout", "-q", "-b", "side")
    noise(2)
    done["keyword"] = toy.commit({"pkg/caller.py": CALL.replace("BLOCK=128", "BLOCK=128, NEW=1")}, "a keyword too many")
    noise(1)
    toy.git("checkout", "-q", "main")
    noise(3)
    done["merge"] = toy.merge("side")
    toy.commit({"pkg/caller.py": CALL}, "repaired")
    done["repaired"] = toy.git("rev-parse", "HEAD").strip()
    noise(3)
    done["before"] = toy.git("rev-parse", "HEAD").strip()
    done["hidden"] = toy.commit({"pkg/caller.py": CALL.replace("out, ", "") + BROKEN}, "does not parse, lacks out")
    done["shown"] = toy.commit({"pkg/caller.py": CALL.replace("out, ", "")}, "parses, lacks out")
    noise(2)
    toy.commit({"pkg/caller.py": CALL}, "repaired again")
    done["again"] = toy.git("rev-parse", "HEAD").strip()
    noise(3)
    done["types"] = toy.commit({"pkg/use.py": PLAIN["pkg/use.py"].replace("seed", "sead")}, "a plain call breaks")
    noise(2)
    toy.git("checkout", "-q", "-b", "other")
    toy.commit({"pkg/use.py": PLAIN["pkg/use.py"]}, "repaired on a branch")
    toy.git("checkout", "-q", "main")
    noise(1)
    toy.merge("other")
    while len(toy.git("rev-list", "HEAD").split()) < 36:
        noise(1)
    done["end"] = toy.git("rev-parse", "HEAD").strip()
    return toy, done


def found(toy: ToyRepository, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    with pytest.raises(SystemExit) as stopped:
        main(["bisect", "--repo", str(toy.folder), "--json", *words])
    written = json.loads(capsys.readouterr().out)
    return int(stopped.value.code or 0), [candidate["name"] for candidate in written["candidates"]]


def test_the_history_is_as_long_as_it_says(history: tuple[ToyRepository, dict[str, str]]) -> None:
    assert len(history[0].git("rev-list", "HEAD").split()) == 36
    assert len(history[0].git("rev-list", "--merges", "HEAD").split()) == 2


def test_a_fault_of_a_side_branch(history: tuple[ToyRepository, dict[str, str]], capsys) -> None:
    toy, done = history
    assert found(toy, capsys, "--good", done["start"], "--bad", done["merge"]) == (exits.GOOD, [done["keyword"]])


def test_a_fault_behind_a_commit_that_does_not_parse(history: tuple[ToyRepository, dict[str, str]], capsys) -> None:
    toy, done = history
    code, candidates = found(toy, capsys, "--good", done["repaired"], "--bad", done["shown"])
    assert code == exits.CANNOT_TELL
    assert sorted(candidates) == sorted([done["hidden"], done["shown"]])


def test_git_bisect_run_skips_it_too(history: tuple[ToyRepository, dict[str, str]], tmp_path: Path) -> None:
    """The exit code of `signatures` is what ``git bisect run`` reads: 125 is a revision to skip."""
    toy, done = history
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", toy.folder, clone], check=True)
    environment = os.environ | {"VERISPEC_CACHE_DIR": str(tmp_path / "cache")}

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", clone, *words], capture_output=True, text=True, check=False, env=environment
        )
        return done.stdout + done.stderr

    git("bisect", "start", done["shown"], done["repaired"])
    said = git("bisect", "run", sys.executable, "-m", "verispec", "signatures", ".", "--level", "error")
    assert "only 'skip'ped commits left" in said
    assert done["hidden"] in said
    assert done["shown"] in said


@pytest.mark.parametrize("words", [("--types",), ("--rule", "SIG601")])
def test_a_fault_of_plain_python(history: tuple[ToyRepository, dict[str, str]], capsys, words: tuple[str, ...]) -> None:
    pytest.importorskip("pyrefly", reason="the extra verispec[types] is not installed")
    toy, done = history
    bad = toy.git("rev-parse", f"{done['types']}~0").strip()
    last = toy.git("rev-list", "--ancestry-path", f"{bad}..{done['end']}").split()[-1]
    assert found(toy, capsys, "--good", done["again"], "--bad", last, *words) == (exits.GOOD, [done["types"]])


def test_without_types_there_is_nothing(history: tuple[ToyRepository, dict[str, str]], capsys) -> None:
    toy, done = history
    with pytest.raises(SystemExit) as stopped:
        main(["bisect", "--repo", str(toy.folder), "--good", done["again"], "--bad", done["types"]])
    assert stopped.value.code == exits.USAGE
    assert "V-BIS-BAD-IS-GOOD" in capsys.readouterr().err


UNPACKING = {
    "pkg/verify.py": "def verify(logits):\n    return logits, 1\n",
    "pkg/runner.py": (
        "from pkg.verify import verify\n\n\ndef run(logits):\n    ids, count = verify(logits)\n    return ids\n"
    ),
}


@pytest.mark.parametrize("words", [(), ("--rule", "SIG701")])
def test_a_use_that_relies_on_the_good_end(tmp_path: Path, capsys, words: tuple[str, ...]) -> None:
    """A finding of --since has two sides in time, and stays until it is repaired."""
    toy = ToyRepository(tmp_path / "repo")
    good = toy.commit({**GOOD_TREE, **UNPACKING}, "start")
    toy.commit({"pkg/noise.py": "x = 1\n"}, "noise")
    first = toy.commit({"pkg/verify.py": "def verify(logits):\n    return logits, 1, 2\n"}, "a third result")
    toy.commit({"pkg/noise.py": "x = 2\n"}, "noise")
    last = toy.commit({"pkg/verify.py": "def verify(logits):\n    x = 1\n    return logits, x, 2\n"}, "its body")
    assert found(toy, capsys, "--good", good, "--bad", last, *words) == (exits.GOOD, [first])
    with pytest.raises(SystemExit) as stopped:
        main(["bisect", "--repo", str(toy.folder), "--good", good, "--bad", last, "--rule", "SIG101"])
    assert stopped.value.code == exits.USAGE
