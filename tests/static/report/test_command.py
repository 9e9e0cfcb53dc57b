"""``verispec signatures`` as it is called: trees in, exit codes and files out."""

from __future__ import annotations

import json
import os
import re
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from toy_git import ToyRepository
from toy_kernels import BAD_CALL, BAD_TREE, CALL, GOOD_TREE, KERNEL

from verispec import exits
from verispec.cli import main
from verispec.report.signatures import SCHEMA


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.chdir(tmp_path)


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Calls the command with these words; exit code, output and error output."""

    def calling(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(["signatures", *words])
        output = capsys.readouterr()
        return int(stopped.value.code or 0), output.out, output.err

    return calling


def write(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def found(output: str) -> list[dict[str, Any]]:
    written = json.loads(output)
    jsonschema.validate(written, json.loads(SCHEMA.read_text()))
    return [finding for finding in written["findings"] if finding["level"] == "error"]


def test_a_good_tree_and_a_bad_one(call: Call, tmp_path: Path) -> None:
    assert call(str(write(tmp_path / "good", GOOD_TREE)))[0] == exits.GOOD
    code, output, _ = call(str(write(tmp_path / "bad", BAD_TREE)))
    assert code == exits.BAD
    for part in (
        "SIG101",
        "bad/pkg/caller.py:5",
        "bad/pkg/kernels.py:6",
        "SYNTHETIC_MODE",
        "draft_kernel(out_ptr, n, BLOCK)",
    ):
        assert part in output


def test_every_kind_of_tree_says_the_same(call: Call, tmp_path: Path) -> None:
    toy = ToyRepository(tmp_path / "repo")
    toy.commit(BAD_TREE)
    project = write(tmp_path / "toy-1.0", {**BAD_TREE, "PKG-INFO": "Name: toy\n"})
    with tarfile.open(tmp_path / "toy-1.0.tar.gz", "w:gz") as archive:
        archive.add(project, "toy-1.0")
    reports = []
    for tree in ("repo", "repo#HEAD", "toy-1.0.tar.gz"):
        code, output, _ = call(tree, "--json")
        assert code == exits.BAD
        reports.append(found(output))
    assert reports[0] == reports[1] == reports[2]
    assert [finding["rule"] for finding in reports[0]] == ["SIG101"]


def test_all_files_are_written_at_once(call: Call, tmp_path: Path) -> None:
    write(tmp_path / "bad", BAD_TREE)
    code, output, said = call("bad", "--github", "--sarif", "out.sarif", "--junit", "out.xml")
    assert code == exits.BAD
    assert re.search(r"^::error file=bad/pkg/caller.py,line=5,", output, re.MULTILINE)
    (run,) = json.loads(Path("out.sarif").read_text())["runs"]
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "bad/pkg/caller.py"
    assert ET.parse("out.xml").find("testsuite/testcase/failure") is not None
    assert "wrote out.sarif" in said
    code, _, said = call("bad", "--sarif", "nowhere/out.sarif")
    assert code == exits.USAGE
    assert "V-CLI-WRITE" in said


def test_findings_are_printed_although_a_file_cannot_be_written(call: Call, tmp_path: Path) -> None:
    write(tmp_path / "bad", BAD_TREE)
    code, output, said = call("bad", "--sarif", "/dev/full", "--junit", "out.xml")
    assert (code, "SIG101 bad/pkg/caller.py" in output) == (exits.CANNOT_TELL, True)
    assert "V-CLI-WRITE /dev/full" in said
    assert "No space left on device" in said
    assert ET.parse("out.xml").find("testsuite/testcase/failure") is not None


def test_since_reports_only_what_is_new(call: Call, tmp_path: Path) -> None:
    toy = ToyRepository(tmp_path / "repo")
    toy.commit(BAD_TREE)
    other = {"pkg/other.py": CALL.replace("launch", "other").replace("BLOCK=128", "BLOCK=128, EXTRA=1")}
    moved = {"pkg/caller.py": None, "pkg/moved.py": "# one line more\n" + BAD_CALL}
    toy.commit(moved, "move the old error")
    code, output, _ = call("repo", "--since", "HEAD~1", "--json")
    assert (code, found(output)) == (exits.GOOD, [])
    assert json.loads(output)["known"] >= 1
    package = {
        "pkg/deep/kernels.py": KERNEL,
        "pkg/deep/moved.py": BAD_CALL.replace("pkg.", "pkg.deep."),
        "pkg/kernels.py": None,
        "pkg/moved.py": None,
    }
    toy.commit(package, "move the package, and with it the dotted names")
    code, output, _ = call("repo", "--since", "HEAD~1", "--json")
    assert (code, found(output)) == (exits.GOOD, [])
    toy.commit({"pkg/kernels.py": KERNEL}, "a kernel of the old name")
    toy.commit(other, "add a new error")
    code, output, _ = call("repo#HEAD", "--since", "HEAD~1", "--json")
    assert code == exits.BAD
    assert [finding["location"]["path"] for finding in found(output)] == ["pkg/other.py"]
    code, output, _ = call("repo/pkg", "--since", "HEAD", "--json")
    assert (code, found(output)) == (exits.GOOD, [])
    code, output, _ = call("repo#HEAD", "--since", "repo#HEAD~1", "--json")
    assert (code, len(found(output))) == (exits.BAD, 1)


def test_since_takes_another_tree_too(call: Call, tmp_path: Path) -> None:
    write(tmp_path / "old", GOOD_TREE)
    write(tmp_path / "new", BAD_TREE)
    assert call("new", "--since", "old")[0] == exits.BAD
    assert call("new", "--since", "new")[0] == exits.GOOD
    code, _, said = call("new", "--since", "nonsense")
    assert code == exits.USAGE
    assert "V-GIT" in said or "V-SRC" in said


def test_a_plugin_is_judged_against_its_core(call: Call, tmp_path: Path) -> None:
    write(tmp_path / "core", {"pkg/__init__.py": "", "pkg/kernels.py": KERNEL})
    write(tmp_path / "plugin", {"plug/__init__.py": "", "plug/caller.py": BAD_CALL})
    code, output, _ = call("plugin", "--core", "core", "--json")
    assert code == exits.BAD
    assert [finding["location"]["path"] for finding in found(output)] == ["plug/caller.py"]
    assert json.loads(output)["core"].endswith("core")
    assert json.loads(output)["core_paths"] == ["pkg/kernels.py"]
    _, output, _ = call("plugin", "--core", "core")
    said = " ".join(output.split())  # lines are folded
    assert f"kernel: {tmp_path}/core/pkg/kernels.py:6" in said
    assert "call: plugin/plug/caller.py:5" in said
    assert call("plugin")[0] == exits.GOOD  # without the core the kernel's parameters are unknown


def test_rules_and_levels_are_chosen(call: Call, tmp_path: Path) -> None:
    write(tmp_path / "bad", BAD_TREE)
    assert call("bad", "--rule", "SIG102")[0] == exits.GOOD
    assert call("bad", "--rule", "SIG102", "--rule", "SIG101")[0] == exits.BAD
    code, _, said = call("bad", "--rule", "SIG000")
    assert code == exits.USAGE
    assert "V-RULE-UNKNOWN" in said


def test_a_tree_without_source_is_not_called_good(call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, output, _ = call("empty")
    assert code == exits.CANNOT_TELL
    assert "V-SRC-EMPTY" in output


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (b"def f(:\n@triton.jit\n", "V-SRC-UNPARSABLE"),
        (b"\xff\xfe@triton.jit\n\x00", "V-SRC-UNPARSABLE"),
        (b"import triton\n@triton.jit\ndef f(): x = " + b"(" * 50_000 + b")" * 50_000, "V-SRC-"),
        (b"import triton\n@triton.jit\ndef f(): x = " + b"-" * 200_000 + b"1", "V-SRC-"),
    ],
)
def test_the_rest_is_judged_beside_a_file_that_cannot_be(call: Call, tmp_path: Path, source: bytes, code: str) -> None:
    write(tmp_path / "bad", BAD_TREE)
    (tmp_path / "bad" / "broken.py").write_bytes(source)
    exit_code, output, _ = call("bad")
    assert exit_code == exits.BAD
    assert "SIG101" in output
    assert re.search(rf"{code}\S* \S*broken.py", output)


def test_a_mistake_is_one_diagnostic_and_no_traceback(call: Call) -> None:
    for words in (["nowhere"], ["nowhere#HEAD"], [".#HEAD"], ["--core", "nowhere"]):
        code, output, said = call(*words)
        assert code == exits.USAGE
        assert output == ""
        assert said.startswith("verispec: V-")
        assert "hint" in said


def test_a_baseline_counts_what_it_leaves_out_as_it_is_shown(call: Call, tmp_path: Path) -> None:
    """Two calls of one kernel lack the same argument: one finding, of two fingerprints."""
    second = BAD_CALL.replace("def launch", "def launch_again")
    write(tmp_path / "bad", {**BAD_TREE, "pkg/second.py": second})
    shown = len(
        json.loads(call("bad", "--level", "note", "--json", "--write-baseline", "accepted.json")[1])["findings"]
    )
    code, output, _ = call("bad", "--baseline", "accepted.json", "--json")
    assert (code, json.loads(output)["findings"], json.loads(output)["known"]) == (exits.GOOD, [], shown)
    assert f"{shown} known finding{'s' * (shown > 1)} left out" in call("bad", "--baseline", "accepted.json")[1]
