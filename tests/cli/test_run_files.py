"""Results files from the outside: whose they are, what they hold after a kill, and what a resumed run may say."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from judging import OP, ZOO, importable, in_process, verdict_on
from run_files import write

from verispec import exits
from verispec.errors import VerispecError
from verispec.report.verdict import summarise
from verispec.run import runfile
from verispec.run.events import Stopped
from verispec.run.files import KEPT, last_run_file, new_run_file, remember
from verispec.run.plan import Plan
from verispec.run.progress import Lines
from verispec.run.record import Record
from verispec.run.session import Files, Options, Session, execute

pytestmark = pytest.mark.timeout(900)

CONTROL = "oracle_engine:OracleEngine"
FAULTY = "broken_engines:LosesWrites"
ONLY = (f"{OP}:EXP-2",)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run with failures."""
    path = tmp_path_factory.mktemp("run") / "run.jsonl"
    assert verdict_on(FAULTY, path, only=ONLY).failures == 6
    return path


@pytest.fixture
def cut(failing: Path, tmp_path: Path) -> Path:
    """The same run, killed after its first two cases."""
    path = tmp_path / "cut.jsonl"
    path.write_text("".join(failing.read_text().splitlines(keepends=True)[:3]))
    return path


class Replacing(Lines):
    """Replaces the results file by that of another run, without failures, as soon as a case has its result."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def judged(self, record: Record) -> None:
        super().judged(record)
        other = self._path.with_name("other.jsonl")
        write(other, Record("sampler/x:EXP-1", "pass")).close(
            {"complete": True, "reason": "", "left": 0, "warnings": [], "unmatched": []}
        )
        other.replace(self._path)


def test_the_printed_path_has_no_detours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    assert Files(out=Path("../run.jsonl")).target(Plan("reference")) == tmp_path.resolve() / "run.jsonl"
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "run.jsonl")
    assert Files(resume=tmp_path / "link.jsonl").target(Plan("reference")).name == "link.jsonl", "a link stays one"


def test_the_result_of_a_run_is_its_own(tmp_path: Path) -> None:
    """Not even a file that somebody replaces by force can change it."""
    path = tmp_path / "run.jsonl"
    with importable():
        run, _ = execute(Plan(FAULTY, only=ONLY), Options(Files(path)), Replacing(path))
    assert summarise(run).failures == 6
    assert summarise(run).exit_code() == exits.BAD
    assert summarise(runfile.read(path)).exit_code() == exits.GOOD, "the file is another run's by now"


def test_a_second_run_cannot_have_the_same_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.jsonl"
    first = write(path)
    code, out, err = in_process(capsys, "run", "--engine", CONTROL, "--only", *ONLY, "--out", str(path))
    assert (code, out) == (exits.CANNOT_TELL, "")
    assert "V-RUN-BUSY" in err
    code, _, err = in_process(capsys, "run", "--resume", str(path))
    assert (code, "V-RUN-BUSY" in err) == (exits.CANNOT_TELL, True)
    first.release()


@pytest.mark.parametrize("command", ["run", "smoke"])
def test_files_that_are_no_run_files_are_kept(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("my notes")
    code, _, err = in_process(capsys, command, "--engine", CONTROL, "--out", str(tmp_path / "notes.txt"))
    assert (code, "V-RUN-OVERWRITE" in err) == (exits.USAGE, True)
    assert (tmp_path / "notes.txt").read_text() == "my notes"
    code, _, err = in_process(capsys, command, "--engine", CONTROL, "--out", str(tmp_path))
    assert (code, "V-RUN-WRITE" in err) == (exits.CANNOT_TELL, True)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == ["notes.txt"]


LIES: tuple[Sequence[str], ...] = (
    ("--only", f"{OP}:EXP-2:dtype=int64"),
    ("--only", f"{OP}:EXP-2", "--only", f"{OP}:EXP-3"),
    ("--suite", "sampler"),
    ("--seed", "8"),
    ("--engine", CONTROL),
    ("--engine", "reference"),
    ("--device", "cpu"),
    ("--last-failed",),
)


@pytest.mark.parametrize("whole", [False, True], ids=["cut", "whole"])
@pytest.mark.parametrize("lie", LIES, ids=" ".join)
def test_a_resumed_run_is_what_it_was(
    lie: Sequence[str], whole: bool, cut: Path, failing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where no case is left."""
    path = cut
    if whole:
        shutil.copy(failing, path)
    if lie == ("--last-failed",):
        remember(failing, "reference")
    before = path.read_bytes()
    code, out, err = in_process(capsys, "run", "--resume", str(path), *lie)
    assert (code, out) == (exits.USAGE, "")
    assert "V-RUN-RESUME" in err
    assert path.read_bytes() == before


@pytest.mark.parametrize("words", [(), ("--engine", FAULTY), ("--only", *ONLY, "--seed", "7")], ids=" ".join)
def test_a_resumed_run_needs_no_options(words: Sequence[str], cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = runfile.read(cut).records
    code, out, _ = in_process(capsys, "run", "--resume", str(cut), "--json", *words)
    told = json.loads(out)
    assert (code, told["complete"]) == (exits.BAD, True)
    assert sum(told["counts"].values()) == 8
    assert told["counts"]["fail"] == 6
    assert told["header"]["engine"]["asked"] == FAULTY
    assert runfile.read(cut).records[:2] == before


def test_an_engine_that_was_mended_is_another_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where its version is the same and no case is left."""
    module, path = tmp_path / "mine.py", tmp_path / "run.jsonl"
    module.write_text("from broken_engines import LosesWrites as Engine\n\nclass Mine(Engine):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    words = ["run", "--engine", "mine:Mine", "--only", *ONLY, "--out", str(path)]
    assert in_process(capsys, *words)[0] == exits.BAD
    before = path.read_bytes()
    assert in_process(capsys, "run", "--resume", str(path))[0] == exits.BAD, "the same engine may be resumed"
    assert runfile.read(path).records
    before = path.read_bytes()
    module.write_text("from oracle_engine import OracleEngine as Engine\n\nclass Mine(Engine):\n    pass\n")
    code, _, err = in_process(capsys, "run", "--resume", str(path))
    assert (code, "another engine: digest was" in err) == (exits.USAGE, True), err
    assert path.read_bytes() == before


def test_every_run_has_a_file_of_its_own(cache: Path) -> None:
    assert new_run_file(Plan("a")) != new_run_file(Plan("a")), "two runs of one process and second"
    plans = [Plan("a"), Plan("a", smoke=True), Plan("a", only=("x",)), Plan("b"), Plan("a:b"), Plan("a b")]
    paths = [new_run_file(plan) for plan in plans]
    assert len({path.parent / path.name.partition("-")[0] for path in paths}) == len(plans)
    assert all(path.is_relative_to(cache) for path in paths)
    assert len(new_run_file(Plan("vllm@" + "x" * 300)).parent.name) < 255


def test_old_run_files_are_removed_but_not_those_of_another_kind() -> None:
    full = [new_run_file(Plan("a")).with_name(f"full-{n:02}.jsonl") for n in range(KEPT + 3)]
    smoke = new_run_file(Plan("a")).with_name("smoke-00.jsonl")
    busy = write(full[0])
    for path in (*full[1:], smoke):
        write(path).release()
    remember(full[-1], "a")
    assert [path.exists() for path in full] == [True, False, False, *[True] * KEPT]
    assert smoke.exists()
    busy.release()


def test_the_last_run_is_found_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(VerispecError, match="V-RUN-LAST"):
        last_run_file()
    words = ("run", "--engine", FAULTY, "--only", *ONLY)
    code, out, err = in_process(capsys, *words)
    assert code == exits.BAD
    path = last_run_file()
    assert f"results file: {path}" in out
    assert f"results file: {path}" in " ".join(err.split()), "it is named before the first case, for after a kill"
    assert path == last_run_file(FAULTY)

    code, out, _ = in_process(capsys, "run", "--engine", FAULTY, "--last-failed", "--json")
    told = json.loads(out)
    assert (code, told["counts"]) == (exits.BAD, {"fail": 6})
    assert path.exists()
    assert last_run_file() != path
    assert "6 failing cases of 6" in in_process(capsys, "report", "last")[1]
    assert in_process(capsys, "run", "--resume", "last", "--json")[0] == exits.BAD


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--within", "5"), "without an older run no case has a known time"),
        (("--within", "5", "--only", "sampler"), "--within selects the cases itself, and so does --only"),
        (("--within", "5", "--resume", "last"), "--within selects the cases itself, and so does --resume"),
        (("--last-failed", "--suite", "sampler"), "--last-failed selects the cases itself, and so does --suite"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_two_selections_are_none(words: Sequence[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = in_process(capsys, "run", "--engine", FAULTY, *words)
    assert (code, out) == (exits.USAGE, "")
    assert "V-RUN-SELECT" in err
    assert text in " ".join(err.split())


def test_outputs_for_continuous_integration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    names = ("junit", "sarif", "markdown")
    files = [word for name in names for word in (f"--{name}", str(tmp_path / name))]
    words = ("run", "--engine", FAULTY, "--only", *ONLY, "--out", str(tmp_path / "r"), "--github", *files)
    code, out, _ = in_process(capsys, *words)
    assert code == exits.BAD
    file = "tests/faulty_engines/broken_engines.py"
    found = re.search(rf"^::error file={file},line=(\d+),title=EXP-2%2C expand_batch_to_tokens::", out, re.MULTILINE)
    assert found is not None
    assert (tmp_path / "junit").read_text().count("<failure") == 6
    sarif = json.loads((tmp_path / "sarif").read_text())
    (result,) = sarif["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (result["ruleId"], place["artifactLocation"]["uri"]) == ("EXP-2", file)
    assert place["region"] == {"startLine": int(found[1])}
    assert (tmp_path / "markdown").read_text().startswith("# ")


def test_a_report_that_cannot_be_written_keeps_the_run_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, page = tmp_path / "run.jsonl", tmp_path / "page.md"
    words = ("run", "--engine", FAULTY, "--only", *ONLY, "--out", str(out), "--junit", "/dev/full", "--markdown")
    code, told, err = in_process(capsys, *words, str(page))
    assert (code, "V-CLI-WRITE /dev/full" in err) == (exits.CANNOT_TELL, True)
    assert "exit 1" in told.splitlines()
    assert page.read_text().startswith("# ")
    assert runfile.read(out).footer["complete"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("run", "--junit", "nowhere/a.xml"), "the folder does not exist"),
        (("run", "--sarif", "."), "it is a folder"),
        (("smoke", "--markdown", "nowhere/a.md"), "the folder does not exist"),
        (("bench", "--svg", "nowhere/a.svg"), "the folder does not exist"),
        (("bench", "--out", "nowhere/a.json"), "the folder does not exist"),
        (("history", "nights", "--html", "nowhere/a.html"), "the folder does not exist"),
        (("report", "last", "--out", "nowhere/a.html"), "the folder does not exist"),
        (("fleet", "fleet.toml", "--html", "nowhere/a.html"), "the folder does not exist"),
        (("signatures", ".", "--sarif", "nowhere/a.sarif"), "the folder does not exist"),
        (("signatures", ".", "--write-baseline", "nowhere/a.toml"), "the folder does not exist"),
        (("certify", "--out", "/dev/null/folder"), "the folder cannot be made"),
    ],
    ids=lambda value: "-".join(value[::2]) if isinstance(value, tuple) else "",
)
def test_a_place_that_no_file_can_have_is_refused_before_the_start(
    words: tuple[str, ...], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("fleet.toml").write_text('[[engine]]\nname = "reference"\n')
    code, out, err = in_process(capsys, *words)
    assert (code, out) == (exits.USAGE, ""), err
    assert f"V-CLI-WRITE {words[-2]} {words[-1]}: {reason}" in err


def test_the_first_failure_and_the_time_stop_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("run", "--engine", FAULTY, "--only", *ONLY, "--json", "--out")
    began = time.monotonic()
    code, out, _ = in_process(capsys, *words, str(tmp_path / "first"), "-x")
    enough = 5 + 3 * (time.monotonic() - began)
    told = json.loads(out)
    assert (code, told["counts"]["fail"], told["complete"]) == (exits.BAD, 1, False)
    hangs = ("run", "--engine", "broken_engines:Hangs", "--only", f"{OP}:EXP-1:counts=wide", "--json", "--out")
    code, out, _ = in_process(capsys, *hangs, str(tmp_path / "time"), "--max-time", f"{enough:.0f}")
    told = json.loads(out)
    assert (code, told["complete"], "fail" in told["counts"]) == (exits.CANNOT_TELL, False, False)
    assert runfile.read(tmp_path / "time").footer["reason"] == "stopped after the time of --max-time"


def test_a_time_that_is_over_before_the_engine_started_is_told(tmp_path: Path) -> None:
    """No header, so no results file: there is nothing that a footer could end."""
    path = tmp_path / "run.jsonl"
    writer = runfile.Writer(path)
    session = Session(Plan(CONTROL, only=ONLY), Options(Files(path)), writer, {}, None)
    with pytest.raises(VerispecError, match="V-RUN-NO-TIME") as caught:
        session.hear(Stopped("stopped after the time of --max-time"), Lines())
    assert caught.value.exit_code == exits.CANNOT_TELL
    writer.release()


def limited(bytes_of_file: int) -> Callable[[], None]:
    """Give a process a limit on the size of each file that it writes, as a full disk does."""

    def limit() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_of_file, bytes_of_file))

    return limit


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "No usable temporary directory"), (3000, "the event log cannot be written: File too large")],
)
def test_a_full_disk_ends_with_125(size: int, said: str, tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "verispec", "run", "--engine", FAULTY, "--only", *ONLY, "--out", str(out)],
        env={**os.environ, "PYTHONPATH": str(ZOO)},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited(size),
    )
    assert done.returncode == exits.CANNOT_TELL, done.stderr
    assert said in done.stderr
    assert ("Traceback" in done.stderr) == (size == 0), "where no report can be written, it is printed"
    assert not out.exists() or out.stat().st_size <= size
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_kills_at_any_moment_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred kills of one run, each followed by a resume that lies and is refused."""
    rng = random.Random(7)
    words = ("run", "--engine", FAULTY, "--only", f"{OP}:EXP-1", "--only", f"{OP}:EXP-2")
    began = time.monotonic()
    expected = verdict_on(FAULTY, tmp_path / "whole.jsonl", only=words[4::2])
    usual = time.monotonic() - began
    path = tmp_path / "run.jsonl"
    lies = [lie for lie in LIES if lie != ("--last-failed",)]
    seen: dict[str, Any] = {}
    resumed = 0
    for attempt in range(100):
        again = ("run", "--resume", str(path)) if seen else (*words, "--seed", "7", "--out", str(path))
        child = subprocess.Popen(
            [sys.executable, "-m", "verispec", *again],
            env={**os.environ, "PYTHONPATH": str(ZOO)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(rng.uniform(0, usual))
        child.send_signal(signal.SIGKILL)
        child.wait()
        try:
            run = runfile.read(path)
        except VerispecError as error:
            assert not seen, f"a results file was damaged: {error}"
            continue
        now = {record.id: record.to_json() for record in run.records}
        assert seen.items() <= now.items(), "what was found before is there still"
        seen = now
        resumed += 1
        before = path.read_bytes()
        lie = lies[attempt % len(lies)]
        code, out, err = in_process(capsys, "run", "--resume", str(path), *lie)
        assert (code, out, "V-RUN-RESUME" in err) == (exits.USAGE, "", True)
        assert path.read_bytes() == before
        if run.footer.get("complete"):
            path.unlink()
            seen = {}
    assert resumed > 10
    final = verdict_on(FAULTY, path, only=words[4::2], **({"resume": path} if seen else {}))
    assert {r.id: r.outcome for r in final.run.records} == {r.id: r.outcome for r in expected.run.records}
