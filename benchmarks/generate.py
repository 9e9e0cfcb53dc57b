"""Tokens a second of greedy generation on the fixtures: the reference, transformers and vLLM side by side.

    python benchmarks/generate.py [--peer-python PYTHON] [--rounds 5] [--out benchmarks/generate.md]

Every engine runs in a process of its own with the same number of threads, and PYTHON is one that has vLLM. All are
loaded and warmed up first; then rounds go through them in turn, so that a busy machine slows all alike, and each one's
best round counts. Prefix caching is off, because every round repeats the same prompts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

K = {1: 4, 16: 1}
"""Drafts a step by number of prompts: the best of the reference. A full batch leaves the processor little to spare, so
that a draft has to be accepted most of the time to pay; transformers, which runs one prompt at a time, always has 4."""
NEW_TOKENS = 64
PROMPT_TOKENS = 64
BATCHES = (1, 16)

Run = Callable[[int], int]
"""Generates for the first n prompts and returns how many tokens came."""


@dataclass(frozen=True)
class Contestant:
    """One line of the table: an engine and a method."""

    engine: str
    method: str

    @property
    def name(self) -> str:
        return f"{self.engine} {self.method}"

    def drafts(self, count: int) -> int:
        """K for `count` prompts."""
        return K[1 if self.method == "none" or self.engine == "transformers" else count]


CONTESTANTS = (
    Contestant("reference", "none"),
    Contestant("reference", "draft_model"),
    Contestant("reference", "eagle3"),
    Contestant("transformers", "none"),
    Contestant("transformers", "draft_model"),
)
PEERS = (Contestant("vllm", "none"), Contestant("vllm", "draft_model"), Contestant("vllm", "eagle3"))


def prompts() -> list[tuple[int, ...]]:
    from verispec import fixtures
    from verispec.reference.models import load_tokenizer

    tokenizer = load_tokenizer(fixtures.model("target"))
    return [tuple(tokenizer.encode(text)[:PROMPT_TOKENS]) for text in fixtures.prompts()[: max(BATCHES)]]


def draft_of(method: str) -> Path | None:
    from verispec import fixtures

    name = {"draft_model": "draft", "eagle3": "eagle3"}.get(method)
    return fixtures.model(name) if name else None


def prepare_engine(contestant: Contestant, drafts: int) -> Run:
    """The reference and transformers, through the harness's own protocol."""
    from verispec import fixtures
    from verispec.engines._resolve import resolve
    from verispec.engines.generation import GenerationRequest

    options = {"method": contestant.method, "draft": draft_of(contestant.method), "num_speculative_tokens": drafts}
    generator = resolve(contestant.engine).load(fixtures.model("target"), **options)
    requests = [GenerationRequest(ids, max_tokens=NEW_TOKENS, ignore_eos=True) for ids in prompts()]
    return lambda count: sum(len(result.token_ids) for result in generator.generate(requests[:count]))


def prepare_vllm(contestant: Contestant, drafts: int) -> Run:
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCHDYNAMO_DISABLE": "1"}
    from verispec import fixtures
    from vllm import LLM, SamplingParams

    speculative: dict[str, Any] | None = None
    if contestant.method != "none":
        draft = str(draft_of(contestant.method))
        speculative = {"method": contestant.method, "model": draft, "num_speculative_tokens": drafts}
    llm = LLM(
        model=str(fixtures.model("target")),
        skip_tokenizer_init=True,
        enforce_eager=True,
        enable_prefix_caching=False,
        max_model_len=256,
        max_num_seqs=max(BATCHES),
        dtype="float32",
        speculative_config=speculative,
    )
    sampling = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True, detokenize=False)
    inputs = [{"prompt_token_ids": list(ids)} for ids in prompts()]
    return lambda count: sum(
        len(output.outputs[0].token_ids) for output in llm.generate(inputs[:count], sampling, use_tqdm=False)
    )


def work(contestant: Contestant, drafts: int, threads: int) -> None:
    """The child: one line in (a number of prompts), one line out (tokens and seconds)."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import torch

    torch.set_num_threads(threads)
    run = (prepare_vllm if contestant.engine == "vllm" else prepare_engine)(contestant, drafts)
    for count in BATCHES:
        run(count)
    torch.set_num_threads(threads)
    print("ready", file=replies)
    for line in sys.stdin:
        began = time.perf_counter()
        tokens = run(int(line))
        print(json.dumps([tokens, time.perf_counter() - began]), file=replies)


class Child:
    """A contestant in its process."""

    def __init__(self, contestant: Contestant, drafts: int, python: str, threads: int) -> None:
        work = ["--work", contestant.engine, contestant.method, str(drafts)]
        command = [python, __file__, *work, "--threads", str(threads)]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        self._log = Path(os.devnull).open("w")  # noqa: SIM115
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment
        )
        if self._read() != "ready":
            raise SystemExit(f"{contestant.name} did not start; run: {' '.join(command)}")

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(self, count: int) -> float:
        """Tokens a second for `count` prompts."""
        assert self._process.stdin is not None
        print(count, file=self._process.stdin, flush=True)
        tokens, seconds = json.loads(self._read())
        return float(tokens / seconds)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._log.close()


def measure(contestants: list[tuple[Contestant, str]], rounds: int, threads: int) -> dict[str, dict[int, float]]:
    """The best of `rounds` of every contestant, by its name and number of prompts."""
    children: dict[tuple[Contestant, int], Child] = {}
    for contestant, python in contestants:
        for drafts in sorted({contestant.drafts(count) for count in BATCHES}):
            children[contestant, drafts] = Child(contestant, drafts, python, threads)
    best = {contestant.name: dict.fromkeys(BATCHES, 0.0) for contestant, _ in contestants}
    for _ in range(rounds):
        for count in BATCHES:
            for contestant, _ in contestants:
                row = best[contestant.name]
                row[count] = max(row[count], children[contestant, contestant.drafts(count)].run(count))
    for child in children.values():
        child.close()
    return best


def render(best: dict[str, dict[int, float]], rounds: int, threads: int) -> str:
    lines = [
        "# Greedy generation on the fixtures",
        "",
        f"Ratios of tokens a second, best of {rounds} rounds that went through all in turn.",
        f"{platform.machine()}, float32, threads: {threads}, prompts of {PROMPT_TOKENS} tokens, {NEW_TOKENS} new ones,",
        f"K = {K[1]} for one prompt and {K[16]} for 16.",
        f"transformers generates with an assistant one prompt at a time, here as everywhere, with K = {K[1]}.",
        "",
        "| ratio | " + " | ".join(f"{count} prompt{'s' * (count > 1)}" for count in BATCHES) + " |",
        "| --- |" + " ---: |" * len(BATCHES),
    ]
    speculative = ("reference draft_model", "reference eagle3")
    pairs = [(ours, other) for ours in speculative for other in ("reference none", "transformers draft_model")]
    pairs += [(name, name.replace("reference", "vllm")) for name in ("reference none", *speculative)]
    for ours, other in pairs:
        if other in best:
            ratios = " | ".join(f"{best[ours][count] / best[other][count]:.2f}" for count in BATCHES)
            lines.append(f"| {ours} / {other} | {ratios} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="a Python that has vLLM")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, help="Markdown file to write besides printing it")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        engine, method, drafts = arguments.work
        work(Contestant(engine, method), int(drafts), arguments.threads)
        return
    contestants = [(contestant, sys.executable) for contestant in CONTESTANTS]
    if arguments.peer_python:
        contestants += [(contestant, arguments.peer_python) for contestant in PEERS]
    best = measure(contestants, arguments.rounds, arguments.threads)
    for name, row in best.items():
        print(f"{name:24}", *(f"{row[count]:8.0f}" for count in BATCHES))
    text = render(best, arguments.rounds, arguments.threads)
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
