"""Tokens per second of generation on a GPU: the reference's runner beside transformers, in one process.

    python benchmarks/generate_gpu.py [--rounds 4] [--profile] [--out benchmarks/generate_gpu.md]
    python benchmarks/generate_gpu.py --temperature 0.8 --top-p 0.95 --out benchmarks/sampled_gpu.md

Each engine that drafts first finds its best number of draft tokens K. Then rounds go through all of them in turn, and
the best round of each counts. `--profile` prints the reference's host functions instead, for one prompt with drafts.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "runners"))

import torch
from generate import CANDIDATES, NEW_TOKENS, OWN, PROMPT_TOKENS, draft_of, prompts
from graph_runners import EagerGPURunner

from verispec import fixtures
from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.reference.models import load_target
from verispec.reference.models.decode_graphs import RECORD_AT
from verispec.reference.runners.gpu import GPURunner

BATCHES = (1, 16, 128)
PARTS = "reference draft_model, steps in parts"
Run = Callable[[int], int]


@dataclass(frozen=True)
class Style:
    """Sampling of all requests; temperature 0 is greedy."""

    temperature: float
    top_p: float

    def __str__(self) -> str:
        limit = "" if self.top_p == 1 else f" and top-p {self.top_p:g}"
        return f"temperature {self.temperature:g}{limit}" if self.temperature else "greedy"


class LaunchedGPURunner(GPURunner):
    """Launches each step in parts: passes of models as graphs, verification and drafting kernel by kernel."""

    def _replay(self, *_: Any) -> bool:
        return False


def ids_of(count: int) -> list[tuple[int, ...]]:
    """Return prompts of equal length, the same ones again from the seventeenth on."""
    few = prompts()
    return [few[i % len(few)] for i in range(count)]


def reference(kind: type[GPURunner], style: Style, method: str, drafts: int) -> Run:
    options = LoadOptions(
        method=method,
        sampler="request_state" if style.temperature else "flat",
        draft=draft_of(method),
        num_speculative_tokens="auto" if drafts == OWN else drafts,
        max_num_seqs=max(BATCHES),
        max_num_batched_tokens=max(BATCHES) * PROMPT_TOKENS,  # transformers reads all prompts at once too
    )
    runner = kind(fixtures.model("target"), options)
    fields = {"max_tokens": NEW_TOKENS, "ignore_eos": True, "temperature": style.temperature, "top_p": style.top_p}
    requests = [GenerationRequest(ids, seed=seed, **fields) for seed, ids in enumerate(ids_of(max(BATCHES)))]
    return lambda count: sum(len(result.token_ids) for result in runner.generate(requests[:count]))


def transformers(style: Style, assisted: bool, drafts: int) -> Run:
    device = torch.device("cuda")
    target, assistant = (load_target(fixtures.model(name), torch.float32, device) for name in ("target", "draft"))
    if drafts != OWN:
        assistant.generation_config.num_assistant_tokens = drafts
        assistant.generation_config.num_assistant_tokens_schedule = "constant"
        assistant.generation_config.assistant_confidence_threshold = 0.0

    def run(count: int) -> int:
        ids = torch.tensor(ids_of(count), device=device)
        more: dict[str, Any] = {"assistant_model": assistant} if assisted else {}
        if style.temperature:
            more |= {"temperature": style.temperature, "top_p": style.top_p, "top_k": 0}
        with torch.inference_mode():
            output = target.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=style.temperature > 0,
                max_new_tokens=NEW_TOKENS,
                eos_token_id=None,
                pad_token_id=0,
                **more,
            )
        return int(output.numel() - ids.numel())

    return run


def speed(run: Run, count: int) -> float:
    """Return tokens per second."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    tokens = run(count)
    torch.cuda.synchronize()
    return tokens / (time.perf_counter() - began)


def best_of(make: Callable[[int], Run], candidates: tuple[int, ...], count: int) -> tuple[int, Run]:
    """Return the best K for `count` prompts and the runs with it."""
    found = []
    for drafts in candidates:
        run = make(drafts)
        run(count)
        found.append((max(speed(run, count) for _ in range(2)), drafts, run))
    _, drafts, run = max(found, key=lambda entry: entry[:2])
    return drafts, run


def measure(style: Style, rounds: int) -> tuple[dict[str, dict[int, float]], dict[str, dict[int, int]]]:
    """Return the best speed of each engine, and its K, by number of prompts."""
    plain = {
        "reference none": reference(GPURunner, style, "none", 1),
        "reference none, steps in parts": reference(LaunchedGPURunner, style, "none", 1),
        "reference none, transformers' layers": reference(EagerGPURunner, style, "none", 1),
        "transformers none": transformers(style, False, OWN),
    }
    runs: dict[str, dict[int, Run]] = {name: dict.fromkeys(BATCHES, run) for name, run in plain.items()}
    chosen: dict[str, dict[int, int]] = {}

    def add(name: str, make: Callable[[int], Run], candidates: tuple[int, ...], counts: tuple[int, ...]) -> None:
        found = {count: best_of(make, candidates, count) for count in counts}
        chosen[name] = {count: drafts for count, (drafts, _) in found.items()}
        runs[name] = {count: run for count, (_, run) in found.items()}

    own = (*CANDIDATES, OWN)
    for method in ("draft_model", "eagle3"):
        add(f"reference {method}", lambda k, method=method: reference(GPURunner, style, method, k), own, BATCHES)
    add(PARTS, lambda k: reference(LaunchedGPURunner, style, "draft_model", k), CANDIDATES[:3], BATCHES)
    add("transformers draft_model", lambda k: transformers(style, True, k), own, BATCHES[:1])
    best: dict[str, dict[int, float]] = {name: {} for name in runs}
    for by_count in runs.values():  # shapes that come once a run are recorded too
        for count, run in by_count.items():
            for _ in range(RECORD_AT):
                run(count)
    for _ in range(rounds):
        for name, by_count in runs.items():
            for count, run in by_count.items():
                best[name][count] = max(best[name].get(count, 0.0), speed(run, count))
    return best, chosen


def render(best: dict[str, dict[int, float]], chosen: dict[str, dict[int, int]], style: Style, rounds: int) -> str:
    titles = " | ".join(f"{count} prompt{'s' * (count > 1)}" for count in BATCHES)
    lines = [
        f"# {'Sampled' if style.temperature else 'Greedy'} generation on a GPU",
        "",
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, float32, {style}, prompts of {PROMPT_TOKENS}",
        f"tokens, {NEW_TOKENS} new ones; best of {rounds} rounds that went through all engines in one process.",
        "Each engine drafts as many tokens as suit it best (in brackets; own: the engine chooses).",
        "transformers assists one prompt at a time.",
        "",
        f"| tokens per second | {titles} |",
        "| --- |" + " ---: |" * len(BATCHES),
    ]
    for name, by_count in best.items():
        cells = []
        for count in BATCHES:
            drafts = chosen.get(name, {}).get(count)
            note = "" if drafts is None else f" ({drafts or 'own'})"
            cells.append(f"{by_count[count]:,.0f}{note}" if count in by_count else "-")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    pairs = [
        ("reference draft_model", "transformers draft_model"),
        ("reference eagle3", "transformers draft_model"),
        ("reference draft_model", "reference none"),
        ("reference eagle3", "reference none"),
        ("reference none", "transformers none"),
        ("reference draft_model", "transformers none"),
        ("reference none", "reference none, steps in parts"),
        ("reference draft_model", PARTS),
        ("reference none", "reference none, transformers' layers"),
    ]
    lines += ["", f"| ratio | {titles} |", "| --- |" + " ---: |" * len(BATCHES)]
    for ours, other in pairs:
        cells = [f"{best[ours][c] / best[other][c]:.2f}" if c in best[other] else "-" for c in BATCHES]
        lines.append(f"| {ours} / {other} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def profile(style: Style) -> None:
    """Print the host functions of one prompt with drafts, the most expensive ones first."""
    run = reference(GPURunner, style, "draft_model", 3)
    run(1)
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(4):
        run(1)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--profile", action="store_true", help="print the host functions of a drafted prompt")
    parser.add_argument("--out", type=Path, help="Markdown file to write besides printing it")
    arguments = parser.parse_args()
    style = Style(arguments.temperature, arguments.top_p)
    if arguments.profile:
        profile(style)
        return
    text = render(*measure(style, arguments.rounds), style, arguments.rounds)
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
