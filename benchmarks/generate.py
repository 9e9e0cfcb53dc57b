"""Tokens per second of greedy generation on the fixtures: reference, transformers and vLLM side by side.

    python benchmarks/generate.py [--peer-python PYTHON] [--rounds 5] [--out benchmarks/generate.md]

Every engine runs in a separate process with the same number of threads; PYTHON is an interpreter with vLLM. First each
speculating engine finds its best number of draft tokens K among the same candidates, for one prompt and for many. Then
rounds alternate between all of them, so that a busy machine slows all alike, and the best round of each counts. Prefix
caching is off, because every round repeats the same prompts.
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

CANDIDATES = (1, 2, 3, 4, 5)
"""Values of K that every engine tries."""
OWN = 0
"""A further value: transformers follows its assistant's confidence, the reference acceptance and costs."""
TRIALS = 2
NEW_TOKENS = 64
PROMPT_TOKENS = 64
BATCHES = (1, 16)
LOSS = f"""\
Drafts do not pay for {BATCHES[-1]} prompts: the processor computes at its peak, so that every row of the target costs
the same for every proposer, rejected rows too, and drafting adds to that."""

Run = Callable[[int], int]
"""Generates for the first n prompts and returns the number of tokens."""


@dataclass(frozen=True)
class Contestant:
    """One line of the table: an engine and a method."""

    engine: str
    method: str

    @property
    def name(self) -> str:
        return f"{self.engine} {self.method}"

    @property
    def candidates(self) -> tuple[int, ...]:
        """Values of K to try."""
        if self.method == "none":
            return CANDIDATES[:1]
        return CANDIDATES if self.engine == "vllm" else (*CANDIDATES, OWN)

    @property
    def searched(self) -> tuple[int, ...]:
        """Numbers of prompts for which K can matter; transformers assists one prompt at a time."""
        return BATCHES[:1] if self.engine == "transformers" else BATCHES


CONTESTANTS = (
    Contestant("reference", "none"),
    Contestant("reference", "draft_model"),
    Contestant("reference", "eagle3"),
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


def prepare_reference(contestant: Contestant, drafts: int) -> Run:
    from verispec import fixtures
    from verispec.engines.protocol.generation import GenerationRequest
    from verispec.engines.registry import resolve

    options: dict[str, Any] = {"method": contestant.method, "draft": draft_of(contestant.method)}
    options["num_speculative_tokens"] = "auto" if drafts == OWN else drafts
    generator = resolve("reference").load(fixtures.model("target"), **options)
    requests = [GenerationRequest(ids, max_tokens=NEW_TOKENS, ignore_eos=True) for ids in prompts()]
    return lambda count: sum(len(result.token_ids) for result in generator.generate(requests[:count]))


def prepare_transformers(contestant: Contestant, drafts: int) -> Run:
    import torch

    from verispec import fixtures
    from verispec.reference.models import load_target

    target, assistant = (load_target(fixtures.model(name)) for name in ("target", "draft"))
    if drafts != OWN:
        assistant.generation_config.num_assistant_tokens = drafts
        assistant.generation_config.num_assistant_tokens_schedule = "constant"
        assistant.generation_config.assistant_confidence_threshold = 0.0
    inputs = [torch.tensor([ids]) for ids in prompts()]

    def run(count: int) -> int:
        with torch.inference_mode():
            outputs = [
                target.generate(
                    ids,
                    assistant_model=assistant,
                    do_sample=False,
                    max_new_tokens=NEW_TOKENS,
                    eos_token_id=None,
                    pad_token_id=0,
                )
                for ids in inputs[:count]
            ]
        return sum(len(output[0]) for output in outputs) - sum(ids.shape[1] for ids in inputs[:count])

    return run


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


PREPARE = {"reference": prepare_reference, "transformers": prepare_transformers, "vllm": prepare_vllm}


def work(contestant: Contestant, drafts: int, threads: int) -> None:
    """Run the worker: read a number of prompts per line, write tokens and seconds per line."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import torch

    torch.set_num_threads(threads)
    run = PREPARE[contestant.engine](contestant, drafts)
    for count in contestant.searched:
        run(count)
    torch.set_num_threads(threads)
    print("ready", file=replies)
    for line in sys.stdin:
        began = time.perf_counter()
        tokens = run(int(line))
        print(json.dumps([tokens, time.perf_counter() - began]), file=replies)


class Child:
    """A contestant in its own process."""

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
        """Return tokens per second for `count` prompts."""
        assert self._process.stdin is not None
        print(count, file=self._process.stdin, flush=True)
        tokens, seconds = json.loads(self._read())
        return float(tokens / seconds)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._log.close()


Choice = dict[str, dict[int, int]]
Speeds = dict[str, dict[int, float]]
"""Speeds by contestant, then by number of prompts."""


def search(contestant: Contestant, python: str, threads: int) -> tuple[dict[int, int], dict[int, Child]]:
    """Return the best K for each number of prompts, and the worker process for it."""
    children = {}
    best: dict[int, tuple[float, int]] = {}
    for drafts in contestant.candidates:
        children[drafts] = child = Child(contestant, drafts, python, threads)
        for count in contestant.searched:
            speed = max(child.run(count) for _ in range(TRIALS))
            best[count] = max(best.get(count, (0.0, 0)), (speed, drafts))
        for other in children.keys() - {drafts for _, drafts in best.values()}:
            children.pop(other).close()
    chosen = {count: best.get(count, best[BATCHES[0]])[1] for count in BATCHES}
    print(f"{contestant.name:24} K = {chosen}", flush=True)
    return chosen, {count: children[drafts] for count, drafts in chosen.items()}


def measure(contestants: list[tuple[Contestant, str]], rounds: int, threads: int) -> tuple[Choice, Speeds]:
    """Return the K of every contestant, and its best round."""
    found = {contestant.name: search(contestant, python, threads) for contestant, python in contestants}
    best = {name: dict.fromkeys(BATCHES, 0.0) for name in found}
    for _ in range(rounds):
        for count in BATCHES:
            for name, (_, children) in found.items():
                best[name][count] = max(best[name][count], children[count].run(count))
    for _, children in found.values():
        for child in set(children.values()):
            child.close()
    return {name: chosen for name, (chosen, _) in found.items()}, best


def render(chosen: Choice, best: Speeds, rounds: int, threads: int) -> str:
    titles = " | ".join(f"{count} prompt{'s' * (count > 1)}" for count in BATCHES)
    lines = [
        "# Greedy generation on the fixtures",
        "",
        f"Ratios of tokens per second, best of {rounds} alternating rounds.",
        f"{platform.machine()}, float32, threads: {threads}, prompts of {PROMPT_TOKENS} tokens, {NEW_TOKENS} new ones.",
        "transformers generates with an assistant for one prompt at a time.",
        "",
        f"| ratio | {titles} |",
        "| --- |" + " ---: |" * len(BATCHES),
    ]
    speculative = ("reference draft_model", "reference eagle3")
    pairs = [(ours, other) for ours in speculative for other in ("reference none", "transformers draft_model")]
    pairs += [(name, name.replace("reference", "vllm")) for name in ("reference none", *speculative)]
    pairs += [(name.replace("reference", "vllm"), "vllm none") for name in speculative]
    for ours, other in pairs:
        if other in best:
            ratios = " | ".join(f"{best[ours][count] / best[other][count]:.2f}" for count in BATCHES)
            lines.append(f"| {ours} / {other} | {ratios} |")
    lines += [
        "",
        f"Every engine uses its best number of draft tokens, of K = {', '.join(map(str, CANDIDATES))};",
        "transformers and the reference may also choose the number themselves.",
        "",
        f"| K | {titles} |",
        "| --- |" + " ---: |" * len(BATCHES),
    ]
    for name, row in chosen.items():
        if not name.endswith("none"):
            lines.append(f"| {name} | {' | '.join(str(row[count] or 'its own') for count in BATCHES)} |")
    if max(best[name][BATCHES[-1]] for name in speculative) < best["reference none"][BATCHES[-1]]:
        lines += ["", LOSS]
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
    chosen, best = measure(contestants, arguments.rounds, arguments.threads)
    for name, row in best.items():
        print(f"{name:24}", *(f"{row[count]:8.0f}" for count in BATCHES))
    text = render(chosen, best, arguments.rounds, arguments.threads)
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
