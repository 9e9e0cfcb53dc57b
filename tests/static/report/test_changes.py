"""--since, --core-since, comments, baselines and --exclude: which findings of a tree are reported."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from toy_git import ToyRepository
from toy_kernels import BAD_CALL, BAD_TREE, CALL, GOOD_TREE, KERNEL

from verispec import exits
from verispec.cli import main
from verispec.report.signatures import SCHEMA

COMMENT = "# verispec: ignore[SIG101] the flag comes with the next kernel"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def toy(tmp_path: Path) -> ToyRepository:
    return ToyRepository(tmp_path / "repo")


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Any:
    """The exit code and the JSON of a call."""

    def calling(*words: str) -> tuple[int, dict[str, Any]]:
        with pytest.raises(SystemExit) as stopped:
            main(["signatures", *words, "--json"])
        written = json.loads(capsys.readouterr().out)
        jsonschema.validate(written, json.loads(SCHEMA.read_text()))
        return int(stopped.value.code or 0), written

    return calling


def write(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def paths(written: dict[str, Any]) -> list[str]:
    return [finding["location"]["path"] for finding in written["findings"]]


SECOND = {"pkg/caller2.py": CALL}
SECOND_BAD = {"pkg/caller2.py": BAD_CALL}
OTHER_PACKAGE = {"other/__init__.py": "", "other/kernels.py": KERNEL, "other/caller.py": CALL.replace("pkg.", "other.")}
OTHER_BAD = {**OTHER_PACKAGE, "other/caller.py": BAD_CALL.replace("pkg.", "other.")}
TWICE = BAD_CALL + "    draft_kernel[(n,)](out, n, BLOCK=64, SYNTHETIC_MODE=True)\n"
RENAMED = BAD_CALL.replace("launch", "launch_drafts")


@pytest.mark.parametrize(
    ("before", "change", "new"),
    [
        ({**BAD_TREE, **SECOND}, SECOND_BAD, ["pkg/caller2.py"]),
        ({**BAD_TREE, **SECOND}, {"pkg/caller.py": CALL, **SECOND_BAD}, ["pkg/caller2.py"]),
        ({**BAD_TREE, **OTHER_PACKAGE}, OTHER_BAD, ["other/caller.py"]),
        ({**BAD_TREE, **OTHER_PACKAGE}, {"pkg/caller.py": CALL, **OTHER_BAD}, ["other/caller.py"]),
        (BAD_TREE, {"pkg/caller.py": TWICE}, ["pkg/caller.py"]),
        (BAD_TREE, {"pkg/caller.py": "\n\n" + BAD_CALL}, []),
        (BAD_TREE, {"pkg/caller.py": None, "pkg/calls.py": BAD_CALL}, []),
        (BAD_TREE, {"pkg/caller.py": RENAMED}, []),
        ({**BAD_TREE, **SECOND}, {"pkg/caller.py": None, **SECOND_BAD}, ["pkg/caller2.py"]),
    ],
    ids=[
        "second caller",
        "one repaired, one broken",
        "same names elsewhere",
        "same names elsewhere, old one repaired",
        "twice in one function",
        "lines moved",
        "file moved",
        "function renamed",
        "deleted, and an old caller broken",
    ],
)
def test_a_new_fault_is_not_hidden_by_an_old_one(
    check: Any, toy: ToyRepository, before: dict[str, str], change: dict[str, str | None], new: list[str]
) -> None:
    toy.commit(before)
    toy.commit(change)
    code, written = check("repo", "--since", "HEAD~1")
    assert paths(written) == new
    assert code == (exits.BAD if new else exits.GOOD)


FALLBACK = """
import triton
class Wrapper:
    def __init__(self, func):
        self.func = func
    def __getitem__(self, grid):
        return self.func
def draft_impl(out, n, BLOCK):
    out[:] = n
import pkg.caller
pkg.caller.draft_kernel = Wrapper(draft_impl)
"""
LOST = FALLBACK.replace("(out, n, BLOCK)", "(out, n)")


def test_a_finding_is_placed_in_the_file_that_changed(check: Any, toy: ToyRepository) -> None:
    toy.commit({**GOOD_TREE, "pkg/fallback.py": FALLBACK})
    toy.commit({"pkg/fallback.py": LOST})
    _, written = check("repo", "--since", "HEAD~1")
    assert paths(written) == ["pkg/fallback.py"]
    _, written = check("repo")
    assert paths(written) == ["pkg/caller.py"]


def test_what_a_new_host_breaks(check: Any, tmp_path: Path) -> None:
    write(tmp_path / "old", {**GOOD_TREE})
    write(
        tmp_path / "new",
        {**GOOD_TREE, "pkg/caller.py": BAD_CALL, "pkg/kernels.py": KERNEL.replace("BLOCK", "BLOCK, SYNTHETIC_MODE")},
    )
    write(tmp_path / "plugin", {"plugin/__init__.py": "", "plugin/patch.py": FALLBACK})
    assert check("plugin", "--core", "old")[0] == exits.GOOD
    code, written = check("plugin", "--core", "new", "--core-since", "old")
    assert code == exits.BAD
    # The author of the plugin can act on the plugin's own file only.
    assert paths(written) == ["plugin/patch.py"]
    assert check("plugin", "--core", "new", "--core-since", "new")[1]["findings"] == []


def test_one_cause_is_one_finding(check: Any, tmp_path: Path) -> None:
    write(
        tmp_path / "tree", {**BAD_TREE, **SECOND_BAD, "pkg/third.py": CALL.replace("BLOCK=128", "BLOCK=128, OTHER=1")}
    )
    _, written = check("tree")
    assert sorted(len(finding["also"]) for finding in written["findings"]) == [0, 1]
    (shared,) = (finding for finding in written["findings"] if finding["also"])
    assert {side["location"]["path"] for side in shared["sides"]} >= {"pkg/caller.py", "pkg/caller2.py"}


@pytest.mark.parametrize(
    ("call", "silent", "said"),
    [
        (BAD_CALL.replace("=True)", f"=True)  {COMMENT}"), True, ""),
        (BAD_CALL.replace("    draft", f"    {COMMENT}\n    draft"), True, ""),
        (BAD_CALL.replace("=True)", "=True)  # verispec: ignore[SIG101]"), False, "V-IGNORE-INCOMPLETE"),
        (BAD_CALL.replace("=True)", "=True)  # verispec: ignore because"), False, "V-IGNORE-INCOMPLETE"),
        (BAD_CALL.replace("=True)", "=True)  # verispec: ignore[SIG102] because"), False, "V-IGNORE-UNUSED"),
        (f"{COMMENT}\n\n{BAD_CALL}", False, "V-IGNORE-UNUSED"),
    ],
    ids=["same line", "line above", "no reason", "no rule", "other rule", "elsewhere"],
)
def test_a_comment_silences_one_finding(check: Any, tmp_path: Path, call: str, silent: bool, said: str) -> None:
    write(tmp_path / "tree", {**GOOD_TREE, "pkg/caller.py": call})
    code, written = check("tree")
    assert code == (exits.GOOD if silent else exits.BAD)
    assert written["stats"]["ignored"] == silent
    assert [diagnostic["code"] for diagnostic in written["diagnostics"]] == ([said] if said else [])


def test_a_comment_whose_other_side_cannot_be_read_is_not_called_useless(check: Any, tmp_path: Path) -> None:
    call = BAD_CALL.replace("=True)", f"=True)  {COMMENT}")
    write(tmp_path / "tree", {**GOOD_TREE, "pkg/caller.py": call, "pkg/kernels.py": KERNEL + "\n("})
    code, written = check("tree")
    assert code == exits.CANNOT_TELL
    assert [diagnostic["code"] for diagnostic in written["diagnostics"]] == ["V-SRC-UNPARSABLE"]


def test_a_baseline_accepts_what_there_is_and_nothing_else(check: Any, tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", BAD_TREE)
    assert check("tree", "--write-baseline", "accepted.json")[0] == exits.BAD
    code, written = check("tree", "--baseline", "accepted.json")
    assert (code, written["findings"], written["known"] > 0) == (exits.GOOD, [], True)
    write(tree, SECOND_BAD)
    code, written = check("tree", "--baseline", "accepted.json")
    assert (code, paths(written)) == (exits.BAD, ["pkg/caller2.py"])
    write(tree, {**GOOD_TREE, "pkg/caller2.py": CALL})
    code, written = check("tree", "--baseline", "accepted.json")
    assert (code, [d["code"] for d in written["diagnostics"]]) == (exits.GOOD, ["V-BASELINE-STALE"])


@pytest.mark.parametrize("text", ["", "[]", '{"format": "x"}', '{"format": "verispec/baseline/1", "findings": [1]}'])
def test_a_baseline_that_is_none(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, {"tree/a.py": "", "accepted.json": text})
    with pytest.raises(SystemExit) as stopped:
        main(["signatures", "tree", "--baseline", "accepted.json"])
    assert stopped.value.code == exits.USAGE
    assert "V-BASELINE" in capsys.readouterr().err


@pytest.mark.parametrize("pattern", ["vendor", "*/caller.py", "vendor/pkg", "ven*"])
def test_excluded_files_are_not_checked(check: Any, tmp_path: Path, pattern: str) -> None:
    write(tmp_path / "tree", {f"vendor/{name}": text for name, text in BAD_TREE.items()} | {"own/__init__.py": ""})
    assert check("tree")[0] == exits.BAD
    code, written = (
        check("tree", "--exclude", pattern)
        if pattern != "*/caller.py"
        else check("tree", "--exclude", "*/pkg/caller.py")
    )
    assert (code, written["findings"]) == (exits.GOOD, [])
    _, written = check("tree", "--exclude", "nowhere")
    assert [diagnostic["code"] for diagnostic in written["diagnostics"]] == ["V-EXCLUDE-UNUSED"]


def test_core_since_needs_a_core(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, {"tree/a.py": ""})
    with pytest.raises(SystemExit) as stopped:
        main(["signatures", "tree", "--core-since", "tree"])
    assert stopped.value.code == exits.USAGE
    assert "V-CORE-SINCE" in capsys.readouterr().err


TABLE = """
import engine.fallback as fb
from engine.registry import register_kernels

def install():
    register_kernels({{{entries}}})
"""
REGISTRY = """
import sys

class Wrapper:
    def __init__(self, func):
        self.func = func
    def __getitem__(self, grid):
        return self.func

def register_kernels(table):
    for name, function in table.items():
        for module in list(sys.modules.values()):
            setattr(module, name, Wrapper(function))
"""
ENGINE = {
    "engine/__init__.py": "",
    "engine/registry.py": REGISTRY,
    "engine/fallback.py": "def greedy(out, n): ...\ndef random(out, n): ...\n",
    "engine/sampler.py": """
import triton

@triton.jit
def greedy_kernel(out, n): ...

@triton.jit
def random_kernel(out, n): ...

def run(out, n):
    greedy_kernel[(1,)](out, n)
    random_kernel[(1,)](out, n)
""",
}


def table(*names: str) -> str:
    return TABLE.format(entries=", ".join(f'"engine.sampler.{name}_kernel": fb.{name}' for name in names))


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ({"engine/platform.py": table("random", "greedy")}, []),
        ({"engine/platform.py": table("random")}, ["engine.sampler.greedy_kernel"]),
        # Moved to another table.
        ({"engine/platform.py": table("random"), "engine/other.py": table("greedy")}, []),
        # The launch is gone too.
        (
            {
                "engine/platform.py": table("random"),
                "engine/sampler.py": ENGINE["engine/sampler.py"].replace("    greedy_kernel[(1,)](out, n)\n", ""),
            },
            [],
        ),
    ],
)
def test_an_entry_that_a_table_lost(check: Any, toy: ToyRepository, after: dict[str, str], found: list[str]) -> None:
    toy.commit({**ENGINE, "engine/platform.py": table("greedy", "random")})
    toy.commit(after)
    code, written = check(str(toy.folder), "--since", "HEAD^1")
    assert [(f["rule"], f["symbol"]) for f in written["findings"]] == [("SIG208", symbol) for symbol in found]
    assert code == (exits.BAD if found else exits.GOOD)
    code, written = check(str(toy.folder), "--since", "HEAD^1", "--rule", "SIG101")
    assert written["findings"] == []
