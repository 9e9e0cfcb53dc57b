"""``verispec generate`` on the fixtures: the stream, the figures, and errors that say what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from verispec import exits, fixtures
from verispec.cli import main

PROMPT = "def read(self, size=-1):\n    return self.raw.read(size)\n\ndef read(self, size=-1):\n    return"


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """The fixtures are so small that a second thread only costs."""
    torch.set_num_threads(1)


def generate(*arguments: str) -> int:
    command = ["generate", "--target", str(fixtures.model("target")), "--prompt", PROMPT, "--max-tokens", "20"]
    with pytest.raises(SystemExit) as stop:
        main([*command, *arguments])
    return int(stop.value.code or 0)


DRAFTERS = [
    ("ngram", None),
    ("draft_model", "draft"),
    ("draft_model --parallel-drafting", "draft_parallel"),
    ("eagle3", "eagle3"),
    ("mtp", "mtp"),
]


@pytest.mark.parametrize(("method", "draft"), DRAFTERS)
def test_json(method: str, draft: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ["--draft", str(fixtures.model(draft))] if draft else []
    assert generate("--method", *method.split(), *folder, "--ignore-eos", "--json") == exits.GOOD
    report = json.loads(capsys.readouterr().out)
    assert len(report["token_ids"]) == len(report["kinds"]) == 20
    assert report["same_tokens_as_plain"]
    assert report["speed_up"] == pytest.approx(report["tokens_per_second"] / report["plain_tokens_per_second"])
    assert 0 < report["accepted"] <= report["drafted"]
    assert set(report["kinds"]) >= {"accepted", "recovered"}


def test_the_stream_is_the_text_and_colours_tell_kinds_apart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    draft = ["--method", "draft_model", "--draft", str(fixtures.model("draft")), "--ignore-eos"]
    assert generate(*draft, "--json") == exits.GOOD
    text = json.loads(capsys.readouterr().out)["text"]
    assert generate(*draft) == exits.GOOD
    shown = capsys.readouterr().out
    legend, _, stream = shown.partition("\n")
    for kind, colour in (("accepted", "32"), ("recovered", "31"), ("bonus", "34")):
        assert f"{colour}m {kind} " in legend
    assert "\x1b[32m" in stream
    plain = re.sub(r"\x1b\[[0-9;]*m", "", stream)
    assert plain.startswith(PROMPT + text)
    for words in ("acceptance", "mean length", "tokens per second", "without speculation", "the same tokens as"):
        assert words in plain


def test_counted_random_numbers_repeat_whatever_is_drafted_before(capsys: pytest.CaptureFixture[str]) -> None:
    """The first token follows no draft: it is that of the seed alone, with a draft model and without."""
    sampled = ["--sampler", "request_state", "--temperature", "0.9", "--seed", "11", "--json"]
    reports = []
    for method in ([], [], ["--method", "draft_model", "--draft", str(fixtures.model("draft"))]):
        assert generate(*sampled, *method) == exits.GOOD
        reports.append(json.loads(capsys.readouterr().out))
    alone, again, drafted = (report["token_ids"] for report in reports)
    assert alone == again
    assert drafted[0] == alone[0]
    assert reports[2]["accepted"] > 0


def test_an_engine_without_counted_random_numbers_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("--engine", "transformers", "--sampler", "request_state") == exits.CANNOT_TELL
    error = capsys.readouterr().err
    assert "V-GEN-ENGINE" in error and "counted by position" in error


def test_method_none_has_nothing_to_compare(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("--json", "--temperature", "0.8", "--seed", "3") == exits.GOOD
    report = json.loads(capsys.readouterr().out)
    assert "speed_up" not in report
    assert set(report["kinds"]) == {"plain"}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--target", "/no/such/folder"], "V-MODEL-FOLDER"),
        (["--method", "ngram", "-k", "0"], "V-GEN-OPTION"),
        (["--method", "medusa"], "V-GEN-OPTION"),
        (["--sampler", "request-state"], "V-GEN-OPTION"),
        (["--method", "eagle3"], "V-GEN-OPTION"),
        (["--method", "eagle3", "--draft", "{draft}"], "V-MODEL-KIND"),
        (["--top-p", "0"], "V-GEN-REQUEST"),
        (["--prompt", "word " * 3000], "V-GEN-PROMPT"),
    ],
)
def test_errors(arguments: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    filled = [argument.format(draft=fixtures.model("draft")) for argument in arguments]
    assert generate(*filled) == exits.USAGE
    assert code in capsys.readouterr().err


def test_a_draft_model_of_another_vocabulary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    assert generate("--method", "draft_model", "--draft", str(tmp_path)) == exits.USAGE
    error = capsys.readouterr().err
    assert "V-GEN-VOCAB" in error and "50" in error
