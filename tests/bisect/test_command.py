"""``verispec bisect`` as it is called: small histories with a regression, and all that makes histories hard."""

from __future__ import annotations

import io
import json
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from toy_git import ToyRepository
from toy_kernels import BAD_CALL, BAD_TREE, CALL, GOOD_TREE, KERNEL, OTHER_BAD_CALL

from verispec import exits
from verispec.bisect import CaseProbe, RevisionResult
from verispec.cli import main
from verispec.errors import VerispecError
from verispec.static import Report, Tree

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Calls the command with these words; exit code, output and error output."""

    def calling(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(["bisect", *words])
        output = capsys.readouterr()
        return int(stopped.value.code or 0), output.out, output.err

    return calling


@pytest.fixture
def toy(tmp_path: Path) -> ToyRepository:
    return ToyRepository(tmp_path / "repo")


def unrelated(toy: ToyRepository, number: int, start: int = 0) -> None:
    for index in range(start, start + number):
        toy.commit({f"docs/{index}.md": "words", "pkg/unrelated.py": f"x = {index}\n"}, f"unrelated {index}")


def outcome(call: Call, toy: ToyRepository, *words: str) -> dict[str, Any]:
    code, output, said = call("--repo", str(toy.folder), "--json", *words)
    assert code in {exits.GOOD, exits.CANNOT_TELL}, said
    written = json.loads(output)
    assert written["exit_code"] == code
    return dict(written)


def test_the_commit_that_brought_the_error_is_named(call: Call, toy: ToyRepository) -> None:
    good = toy.commit(GOOD_TREE, "start")
    unrelated(toy, 5)
    culprit = toy.commit({"pkg/caller.py": BAD_CALL}, "pass the mode")
    unrelated(toy, 6, 5)
    before = {path: path.stat().st_mtime_ns for path in toy.folder.rglob("*") if ".git/" not in str(path)}
    refs = toy.git("for-each-ref")
    code, output, _ = call("--repo", str(toy.folder), "--good", good, "--bad", "HEAD", "--rule", "SIG101")
    assert code == exits.GOOD
    for part in (
        f"{culprit[:12]} is the first bad revision",
        "Ada <ada@example.org>",
        "pass the mode",
        "SYNTHETIC_MODE",
        "pkg/caller.py:5",
        "pkg/kernels.py:6",
        "revisions tested of 13",
    ):
        assert part in output
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert toy.git("for-each-ref") == refs


def test_one_finding_and_no_rule_at_all_find_it_too(call: Call, toy: ToyRepository) -> None:
    good = toy.commit(GOOD_TREE)
    unrelated(toy, 2)
    culprit = toy.commit({"pkg/caller.py": BAD_CALL})
    unrelated(toy, 2, 2)
    found = outcome(call, toy, "--good", good)
    assert found["first_bad"]["name"] == culprit
    (finding,) = found["appeared"]
    again = outcome(call, toy, "--good", good, "--finding", finding["fingerprint"][:8])
    assert again["first_bad"]["name"] == culprit
    assert again["appeared"] == found["appeared"]


def test_one_finding_is_told_from_its_like_elsewhere(call: Call, toy: ToyRepository) -> None:
    """Another package has a kernel of the same name, called wrongly in the same way all along."""
    like = {name.replace("pkg/", "like/"): text.replace("pkg.", "like.") for name, text in BAD_TREE.items()}
    good = toy.commit({**GOOD_TREE, **like})
    unrelated(toy, 2)
    culprit = toy.commit({"pkg/caller.py": BAD_CALL})
    found = outcome(call, toy, "--good", good)
    assert found["first_bad"]["name"] == culprit
    (finding,) = found["appeared"]
    again = outcome(call, toy, "--good", good, "--finding", finding["fingerprint"])
    assert again["first_bad"]["name"] == culprit


def test_an_old_error_does_not_hide_a_new_one(call: Call, toy: ToyRepository) -> None:
    old = CALL.replace("launch", "old").replace("BLOCK=128", "BLOCK=128, OLD=1")
    good = toy.commit({**GOOD_TREE, "pkg/old.py": old})
    unrelated(toy, 2)
    culprit = toy.commit({"pkg/caller.py": BAD_CALL})
    unrelated(toy, 2, 2)
    found = outcome(call, toy, "--good", good, "--rule", "SIG101")
    assert found["first_bad"]["name"] == culprit
    assert [finding["location"]["path"] for finding in found["appeared"]] == ["pkg/caller.py"]


def test_several_new_errors_give_the_first_and_count_the_others(call: Call, toy: ToyRepository) -> None:
    good = toy.commit(GOOD_TREE)
    first = toy.commit({"pkg/caller.py": BAD_CALL})
    unrelated(toy, 2)
    second = toy.commit({"pkg/other.py": OTHER_BAD_CALL.replace("launch", "other")})
    found = outcome(call, toy, "--good", good)
    assert found["first_bad"]["name"] == first
    assert found["later"] == 1
    assert outcome(call, toy, "--good", good, "--rule", "SIG102")["first_bad"]["name"] == second


def signatures(toy: ToyRepository, revision: str) -> str:
    command = [sys.executable, "-m", "verispec", "signatures", f"{toy.folder}#{revision}", "--json"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_moved_and_renamed_files_do_not_mislead(call: Call, toy: ToyRepository) -> None:
    good = toy.commit(GOOD_TREE)
    unrelated(toy, 1)
    culprit = toy.commit({"pkg/caller.py": BAD_CALL})
    toy.commit({"pkg/caller.py": None, "pkg/renamed.py": "# moved\n" + BAD_CALL}, "rename")
    lines = "\n\n# a new head\n"
    moved = {name.replace("pkg/", "pkg/deep/"): lines + text for name, text in GOOD_TREE.items()}
    moved["pkg/deep/caller.py"] = BAD_CALL.replace("pkg.kernels", "pkg.deep.kernels")
    gone = dict.fromkeys(["pkg/kernels.py", "pkg/renamed.py"])
    toy.commit({**gone, **moved}, "move the package")
    renamed = outcome(call, toy, "--good", good, "--bad", "HEAD~1")
    assert renamed["first_bad"]["name"] == culprit
    found = outcome(call, toy, "--good", good)
    assert found["first_bad"]["name"] == culprit
    (finding,) = found["appeared"]
    assert finding["location"]["path"] == "pkg/caller.py"  # as it looked when it appeared
    fingerprint = json.loads(signatures(toy, "HEAD"))["findings"][0]["fingerprint"]
    assert outcome(call, toy, "--good", good, "--finding", fingerprint)["first_bad"]["name"] == culprit


def test_an_error_that_a_merge_makes_is_the_merges(call: Call, toy: ToyRepository) -> None:
    """One branch adds a parameter to the kernel that all callers must pass, the other adds a caller without it."""
    good = toy.commit(GOOD_TREE)
    toy.git("checkout", "-q", "-b", "side")
    toy.commit({"pkg/second.py": CALL.replace("launch", "second")}, "a second caller")
    toy.git("checkout", "-q", "main")
    wider = {
        "pkg/kernels.py": KERNEL.replace("n, BLOCK", "n, limit, BLOCK"),
        "pkg/caller.py": CALL.replace("(out, n, BLOCK", "(out, n, n, BLOCK"),
    }
    toy.commit(wider, "a limit")
    merge = toy.merge("side", "join them")
    unrelated(toy, 3)
    code, output, _ = call("--repo", str(toy.folder), "--good", good)
    assert code == exits.GOOD
    assert f"{merge[:12]} is the first bad revision" in output
    assert "It is a merge" in output


def test_an_error_on_a_merged_branch_is_found_there(call: Call, toy: ToyRepository) -> None:
    good = toy.commit(GOOD_TREE)
    toy.git("checkout", "-q", "-b", "side")
    culprit = toy.commit({"pkg/caller.py": BAD_CALL})
    toy.commit({"docs/side.md": "words"})
    toy.git("checkout", "-q", "main")
    unrelated(toy, 3)
    toy.merge("side")
    unrelated(toy, 2, 3)
    assert outcome(call, toy, "--good", good)["first_bad"]["name"] == culprit


def test_a_revision_whose_file_cannot_be_parsed_is_not_called_good(call: Call, toy: ToyRepository) -> None:
    good = toy.commit(GOOD_TREE)
    toy.commit({"pkg/other.py": "def elsewhere(:\n@triton.jit"}, "broken elsewhere")
    broken = toy.commit({"pkg/caller.py": "def broken(:\n@triton.jit"}, "broken")
    bad = toy.commit({"pkg/caller.py": BAD_CALL})
    found = outcome(call, toy, "--good", good)
    assert found["exit_code"] == exits.CANNOT_TELL
    assert [revision["name"] for revision in found["candidates"]] == [broken, bad]
    assert found["verdicts"][broken] == "cannot tell"
    _, output, _ = call("--repo", str(toy.folder), "--good", good)
    assert "one of these" in output


def test_a_revision_whose_file_is_missing_is_not_called_good(call: Call, toy: ToyRepository) -> None:
    good = toy.commit(GOOD_TREE)
    missing = toy.commit({"pkg/caller.py": CALL + "# lost\n"})
    elsewhere = toy.commit({"pkg/caller.py": CALL, "pkg/other.py": "import triton\n# lost\n"})
    bad = toy.commit({"pkg/caller.py": BAD_CALL, "pkg/other.py": None})
    for revision, path in ((missing, "pkg/caller.py"), (elsewhere, "pkg/other.py")):
        blob = toy.git("rev-parse", f"{revision}:{path}")
        (toy.folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    found = outcome(call, toy, "--good", good)
    assert found["verdicts"][elsewhere] == "good"
    assert found["first_bad"]["name"] == bad


@pytest.mark.parametrize(
    ("trees", "words", "code"),
    [
        ([GOOD_TREE, GOOD_TREE], (), "V-BIS-BAD-IS-GOOD"),
        ([BAD_TREE, BAD_TREE], (), "V-BIS-GOOD-IS-BAD"),
        ([GOOD_TREE, BAD_TREE], ("--rule", "SIG102"), "V-BIS-BAD-IS-GOOD"),
        ([GOOD_TREE, BAD_TREE], ("--finding", "0123456789abcdef"), "V-BIS-BAD-IS-GOOD"),
        ([GOOD_TREE, BAD_TREE], ("--rule", "SIG101", "--finding", "01"), "V-BIS-FAULT"),
        ([GOOD_TREE, BAD_TREE], ("--package", "toy"), "V-BIS-HISTORY"),
        ([GOOD_TREE, BAD_TREE], ("--rule", "SIG000"), "V-RULE-UNKNOWN"),
    ],
)
def test_what_cannot_be_searched_is_said_so(
    call: Call, toy: ToyRepository, trees: list[Mapping[str, str]], words: tuple[str, ...], code: str
) -> None:
    good, _ = (toy.commit(tree) for tree in trees)
    exit_code, output, said = call("--repo", str(toy.folder), "--good", good, *words)
    assert exit_code == exits.USAGE
    assert output == ""
    assert code in said


def test_good_and_bad_the_wrong_way_round(call: Call, toy: ToyRepository) -> None:
    first, second = toy.commit(BAD_TREE), toy.commit(GOOD_TREE)
    code, _, said = call("--repo", str(toy.folder), "--good", second, "--bad", first)
    assert code == exits.USAGE
    assert "V-BIS-SWAPPED" in said


def test_only_what_changed_is_read_again(call: Call, toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    from verispec.static.readers import extraction

    facts = extraction.facts

    def reading_one(path: str, data: bytes, **depth: bool) -> object:
        read.append(path)
        return facts(path, data, **depth)

    monkeypatch.setattr(extraction, "facts", reading_one)
    many = {f"pkg/same{index}.py": f"import triton\nx = {index}\n" for index in range(50)}
    good = toy.commit({**GOOD_TREE, **many})
    unrelated(toy, 12)
    toy.commit({"pkg/caller.py": BAD_CALL})
    found = outcome(call, toy, "--good", good)
    assert found["judged"] <= 6
    assert len([path for path in read if "same" in path]) <= 2 * len(many)  # each content once, or once deeper
    assert len(read) < 2 * (len(many) + len(GOOD_TREE)) + 2 * found["judged"]
    read.clear()
    assert outcome(call, toy, "--good", good)["first_bad"] == found["first_bad"]
    assert read == []  # the next search knows all of it


def test_revisions_with_the_same_sources_are_judged_once(
    call: Call, toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[object] = []
    from verispec.bisect import static_probe

    check_tree = static_probe.check_tree

    def judging(tree: Tree, **options: Any) -> Report:
        judged.append(tree)
        return check_tree(tree, **options)

    monkeypatch.setattr(static_probe, "check_tree", judging)
    good = toy.commit(GOOD_TREE)
    for number in range(9):
        toy.commit({"README.md": f"words {number}"})
    toy.commit({"pkg/caller.py": BAD_CALL})
    assert outcome(call, toy, "--good", good)["judged"] > 2
    assert len(judged) == 2


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of sdists of a project `toy`, broken in 0.20.0 and repaired in 0.21.0."""
    folder = tmp_path / "index"
    folder.mkdir()
    for version in ("0.18.1", "0.19.0", "0.19.1", "0.20.0", "0.20.1", "0.20.2", "0.21.0"):
        files = BAD_TREE if version.startswith("0.20") else GOOD_TREE
        with tarfile.open(folder / f"toy-{version}.tar.gz", "w:gz") as archive:
            for name, text in {**files, "PKG-INFO": f"Version: {version}\n"}.items():
                info = tarfile.TarInfo(f"toy-{version}/{name}")
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.mark.usefixtures("index")
def test_the_release_that_brought_the_error_is_named(call: Call) -> None:
    code, output, _ = call("--package", "toy", "--good", "0.18.1", "--bad", "0.20.2", "--rule", "SIG101")
    assert code == exits.GOOD
    assert "0.20.0 is the first bad revision" in output
    assert "SYNTHETIC_MODE" in output
    code, _, said = call("--package", "toy", "--good", "0.19.1", "--bad", "0.21.0")
    assert code == exits.USAGE
    assert "V-BIS-BAD-IS-GOOD" in said


FAKE = """#!{python}
import subprocess, sys, time
repo, _, name = sys.argv[-1].partition("@")[2].partition("#")
mode = subprocess.run(["git", "-C", repo, "show", name + ":mode"], capture_output=True, text=True).stdout.strip()
if mode == "hang":
    time.sleep(60)
print(sys.argv[1:], file=sys.stderr)
sys.exit({{"good": 0, "bad": 1, "skip": 125, "usage": 2, "crash": 139}}[mode])
"""


@pytest.fixture
def repro(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of Python, a program that ends as the file ``mode`` of the revision says."""
    script = tmp_path / "python"
    script.write_text(FAKE.format(python=sys.executable))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr("verispec.bisect.case_probe.sys.executable", str(script))


CASE = "sampler/rejection_greedy_sample:RGS-1:b=3"


@pytest.mark.usefixtures("repro")
def test_a_case_is_run_for_every_revision(call: Call, toy: ToyRepository) -> None:
    modes = ["good", "good", "skip", "crash", "hang", "good", "bad", "bad"]
    names = [toy.commit({"mode": mode, "n": str(number)}) for number, mode in enumerate(modes)]
    found = outcome(call, toy, "--good", names[0], "--case", CASE, "--timeout", "5")
    assert found["first_bad"]["name"] == names[6]
    assert found["sought"] == CASE
    probe = CaseProbe(CASE, lambda name: f"{toy.folder}#{name}", timeout=3)
    expected = [RevisionResult(mode) if mode in {"good", "bad"} else RevisionResult.CANNOT_TELL for mode in modes]
    assert [probe(name) for name in names] == expected


@pytest.mark.usefixtures("repro")
def test_a_case_that_cannot_be_run_ends_the_search(call: Call, toy: ToyRepository) -> None:
    name = toy.commit({"mode": "usage"})
    probe = CaseProbe(CASE, lambda name: f"{toy.folder}#{name}", engine="vllm-cpu")
    with pytest.raises(VerispecError, match="V-BIS-CASE") as caught:
        probe(name)
    assert f"['-m', 'verispec', 'repro', '{CASE}', '--json', '--engine', 'vllm-cpu@{toy.folder}#{name}']" in str(
        caught.value
    )
