"""Messages of wrong input: they name the file, the place, what was found there, and what to do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from judging import in_process

from verispec import exits

FLEET = '[[engine]]\nname = "reference"\n'
ENTRY = '[[expect]]\ncase = "sampler/*"\nissue = "https://example.org/1"\noutcome = '


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


WRONG: dict[str, tuple[dict[str, str], str, int, str]] = {
    "fleet key": (
        {"f.toml": f'{FLEET}labl = "x"\nsuites = ["nosuite"]\n'},
        "fleet f.toml",
        exits.USAGE,
        "V-FLEET-FILE f.toml: [[engine]] 1 labl: there is no such key hint: did you mean label?",
    ),
    "fleet suite": (
        {"f.toml": f'{FLEET}suites = ["nosuite"]\n'},
        "fleet f.toml",
        exits.USAGE,
        "V-FLEET-FILE f.toml: [[engine]] 1 suites: there is no suite 'nosuite' hint: suites are e2e,",
    ),
    "fleet platform": (
        {"f.toml": f'{FLEET}platforms = ["gpu"]\n'},
        "fleet f.toml",
        exits.USAGE,
        'f.toml: [[engine]] 1 platforms: the file has no [[platform]] hint: add [[platform]] with name = "gpu"',
    ),
    "value of an option": (
        {},
        "report last --format pdf",
        exits.USAGE,
        "Error: Invalid value for '--format': 'pdf' is not one of 'text',",
    ),
    "folder of results": (
        {"cache": "a file"},
        "run --only sampler/philox:PHX-1",
        exits.CANNOT_TELL,
        "cause: Not a directory hint: name another file with --out, or another cache with VERISPEC_CACHE_DIR",
    ),
    "configured value": (
        {"verispec.toml": '[run]\nprocesses = "two"\n'},
        "run",
        exits.USAGE,
        "verispec.toml: [run] processes: Input should be a valid integer",
    ),
    "address": (
        {},
        "run --engine http://localhost:9?modle=x",
        exits.USAGE,
        "V-HTTP-URL --engine http://localhost:9?modle=x",
    ),
    "source": (
        {},
        "run --engine my:Engine@nofolder",
        exits.USAGE,
        "V-SRC-NOT-FOUND nofolder: no such folder, revision,",
    ),
    "source of one case": (
        {},
        "repro sampler/whole_sampler:WS-7:x=1 --engine vllm@nofolder",
        exits.USAGE,
        "V-SRC-NOT-FOUND nofolder:",
    ),
    "second exclusion": (
        {"t/a.py": "x = 1\n"},
        "signatures t --exclude none --exclude nosuch",
        exits.GOOD,
        "V-EXCLUDE-UNUSED nosuch: --exclude matches no file",
    ),
    "file as history": (
        {"a.jsonl": "{}\n"},
        "history a.jsonl",
        exits.USAGE,
        "V-HIST-PLACE a.jsonl: this is a file, and a history is a folder hint: verispec history FOLDER --add a.jsonl",
    ),
    "no history": ({}, "history nostore", exits.CANNOT_TELL, "V-HIST-EMPTY nostore: there is no such folder"),
    "cut header": (
        {"cut.jsonl": '{"type": "header", "verispec": "0.'},
        "report cut.jsonl",
        exits.CANNOT_TELL,
        "V-RUN-READ cut.jsonl: its first line, the header, is cut off: its run ended before",
    ),
    "empty file": ({"empty.jsonl": ""}, "report empty.jsonl", exits.CANNOT_TELL, "the results file is empty"),
    "no TOML": (
        {"e.toml": "[[expect]\n"},
        "run --expect e.toml",
        exits.USAGE,
        "V-EXPECT e.toml: the known-failures file is not TOML cause: Expected ']]'",
    ),
    "wrong entry": (
        {"e.toml": f'{ENTRY}"bad"\n'},
        "run --expect e.toml",
        exits.USAGE,
        "V-EXPECT e.toml: entry 1: outcome 'bad' is unknown hint: expected fail, crash,",
    ),
    "no folder": (
        {},
        "report last --out none/x.html",
        exits.USAGE,
        "the folder does not exist hint: make it first: mkdir -p none",
    ),
}


@pytest.mark.parametrize(("files", "words", "code", "said"), WRONG.values(), ids=WRONG)
def test_a_message_is_complete(
    files: dict[str, str], words: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    ended, out, err = in_process(capsys, *words.split())
    assert said in " ".join((out + err).split())
    assert ended == code


def test_one_commit_is_not_two(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("init -q", "-c user.name=a -c user.email=a@b commit -q --allow-empty -m x"):
        subprocess.run(["git", *words.split()], check=True)
    code, _, err = in_process(capsys, "bisect", "--good", "HEAD")
    assert (code, "V-BIS-SAME" in err, "swap" in err.lower()) == (exits.USAGE, True, False), err
