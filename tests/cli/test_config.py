"""Options from verispec.toml or pyproject.toml: found, resolved, overruled by the command line, never ignored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from judging import in_process

from verispec import config, exits
from verispec.cli import main
from verispec.config import Option
from verispec.errors import VerispecError

OPTIONS = (
    Option("engine", ("engine",)),
    Option("only", ("only",), many=True),
    Option("expect", ("expect",), is_path=True),
    Option("errors_only", ("errors_only", "errors-only")),
)


def defaults(path: Path, command: str = "run") -> dict[str, object]:
    found = config.find(path)
    return config.defaults(found, command, ["run", "smoke"], OPTIONS) if found else {}


def test_values_by_option(tmp_path: Path) -> None:
    text = '[run]\nengine = "vllm"\nonly = "a"\nexpect = "known.toml"\nerrors_only = true\n[smoke]\nengine = "mine"\n'
    (tmp_path / "verispec.toml").write_text(text)
    expected = {"engine": "vllm", "only": ["a"], "expect": str(tmp_path / "known.toml"), "errors_only": True}
    assert defaults(tmp_path) == expected
    assert defaults(tmp_path, "smoke") == {"engine": "mine"}


def test_the_nearest_file_up_to_the_repository_counts(tmp_path: Path) -> None:
    inner = tmp_path / "repo" / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "verispec.toml").write_text('[run]\nengine = "outside"\n')
    (tmp_path / "repo/pyproject.toml").write_text('[tool.verispec.run]\nengine = "project"\n')
    (tmp_path / "repo/.git").mkdir()
    assert defaults(inner) == {"engine": "project"}
    (tmp_path / "repo/a/verispec.toml").write_text('[run]\nengine = "near"\n')
    assert defaults(inner) == {"engine": "near"}
    (tmp_path / "repo/a/verispec.toml").unlink()
    (tmp_path / "repo/pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert defaults(inner) == {}  # a file outside of the repository is not this project's


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[run", "cannot be read"),
        ("[rnu]\n", "no command 'rnu'\n.*did you mean run"),
        ("[run]\nengin = 'x'\n", "no option 'engin'\n.*did you mean engine"),
        ("run = 3\n", "run is not a table"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "verispec.toml").write_text(text)
    with pytest.raises(VerispecError, match=f"(?s)verispec.toml.*{message}"):
        defaults(tmp_path)


def test_last_failed_replaces_a_configured_selection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last run knows the suites, also one of the user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))
    assert in_process(capsys, "new", "op", "clamp_lengths", "--in", "suites")[0] == exits.GOOD
    Path("verispec.toml").write_text(
        '[run]\nengine = "broken_engines:LosesWrites"\nonly = ["sampler/expand_batch_to_tokens:EXP-2"]\n'
        'suite = ["sampler", "suites"]\n'
    )
    code, out, _ = in_process(capsys, "run", "--json")
    assert (code, json.loads(out)["counts"]) == (exits.BAD, {"fail": 6, "pass": 2})
    code, out, _ = in_process(capsys, "run", "--last-failed", "--json")
    told = json.loads(out)
    assert (code, told["counts"]) == (exits.BAD, {"fail": 6})
    assert told["header"]["selection"]["suites"] == ["sampler", str(tmp_path / "suites")]
    assert in_process(capsys, "run", "--last-failed", "--only", "sampler/*")[0] == exits.USAGE


def test_the_command_line_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "verispec.toml").write_text('[explain]\njson = true\n[signatures]\nlevel = "error"\n')
    monkeypatch.chdir(tmp_path)
    for words, is_json in ((["explain", "EXP-2"], True), (["ops"], False)):
        with pytest.raises(SystemExit):
            main(words)
        assert capsys.readouterr().out.startswith("{") == is_json
