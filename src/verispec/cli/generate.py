"""``verispec generate``: generate with an engine and show the accepted tokens."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from verispec import exits
from verispec.engines import Unsupported, UnsupportedCall
from verispec.engines.protocol.generation import (
    METHODS,
    SAMPLERS,
    GenerationRequest,
    GenerationResult,
    Generator,
    LoadOptions,
    SpeculationMetrics,
    TokenKind,
)
from verispec.errors import VerispecError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

app = typer.Typer(add_completion=False)

STYLES = {
    TokenKind.ACCEPTED: "green",
    TokenKind.RECOVERED: "red",
    TokenKind.BONUS: "blue",
    TokenKind.PLAIN: "default",
}
_WARM_UP_TOKENS = 4
_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


@app.command()
def generate(
    target: Annotated[Path, typer.Option(help="Checkpoint folder of the target, tokenizer included.")],
    prompt: Annotated[str, typer.Option(help="Text to continue.")],
    method: Annotated[str, typer.Option(help=f"Proposer of draft tokens: {', '.join(METHODS)}.")] = "none",
    draft: Annotated[Path | None, typer.Option(help="Folder of the draft model or of the head.")] = None,
    parallel_drafting: Annotated[
        bool, typer.Option("--parallel-drafting", help="Draft all tokens in one pass, by a model with a mask token.")
    ] = False,
    num_drafts: Annotated[
        str, typer.Option("-k", "--num-drafts", help="Drafts per step; auto chooses them by their acceptance.")
    ] = "3",
    max_tokens: Annotated[int, typer.Option(help="Maximum number of tokens to generate.")] = 128,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="Keep the k most likely tokens; 0 keeps all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Keep the most likely tokens with this total probability.")] = 1.0,
    min_p: Annotated[float, typer.Option(help="Keep tokens with this fraction of the best one's probability.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the random samples.")] = 0,
    sampler: Annotated[
        str,
        typer.Option(help=f"Random samples from a generator or from a counter-based RNG: {', '.join(SAMPLERS)}."),
    ] = "flat",
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Keep generating after the end-of-sequence token.")
    ] = False,
    dtype: Annotated[str, typer.Option(help="Dtype of weights and KV cache.")] = "float32",
    engine: Annotated[str, typer.Option(help="Engine that generates; see 'verispec engines'.")] = "reference",
    device: Annotated[str | None, typer.Option(help="cpu or cuda; the engine's default if omitted.")] = None,
    compare: Annotated[bool, typer.Option(help="Generate again without speculation to measure the speed-up.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, without streaming.")] = False,
) -> None:
    """Generate text and show the origin of each token.

    Accepted, recovered and bonus tokens have different colours. A summary follows: acceptance by position, tokens per
    step, tokens per second, and the speed-up over the same engine without speculation, measured in the same run.

    Examples:

        MODELS=$(python -c "from verispec import fixtures; print(fixtures.model('target').parent)")

        verispec generate --target $MODELS/target --prompt "def " --method draft_model --draft $MODELS/draft
    """
    from verispec.engines.adapters.reference import require_packages

    require_packages("torch", "transformers", "tokenizers", "safetensors")
    from verispec.reference.models import load_tokenizer

    plainly: dict[str, Any] = {"dtype": dtype, "sampler": sampler}
    depth = int(num_drafts) if num_drafts.lstrip("-").isdigit() else num_drafts
    options: dict[str, Any] = {"method": method, "draft": draft, "num_speculative_tokens": depth, **plainly}
    options["parallel_drafting"] = parallel_drafting
    LoadOptions(**options)
    tokenizer = load_tokenizer(target)
    request = GenerationRequest(
        tuple(tokenizer.encode(prompt)), max_tokens, temperature, top_k, top_p, min_p, seed, ignore_eos=ignore_eos
    )
    console = Console(highlight=False, soft_wrap=True)
    stream = None if as_json else _Stream(tokenizer, console)
    generator = _load(engine, device, target, options)
    if stream is not None:
        stream.start(prompt)
    result, seconds, metrics = _timed(generator, request, stream)
    plain = None
    if compare and method != "none":
        plain, plain_seconds, _ = _timed(_load(engine, device, target, plainly), request, None)
    report = {
        "text": tokenizer.decode(result.token_ids),
        "token_ids": result.token_ids,
        "kinds": result.kinds,
        "finish_reason": result.finish_reason,
        "method": method,
        "drafted": metrics.num_draft_tokens,
        "accepted": metrics.num_accepted_tokens,
        "acceptance_per_position": metrics.acceptance_per_position,
        "mean_length": metrics.mean_length,
        "tokens_per_second": len(result.token_ids) / seconds,
    }
    if plain is not None:
        report["plain_tokens_per_second"] = len(plain.token_ids) / plain_seconds
        report["speed_up"] = report["tokens_per_second"] / report["plain_tokens_per_second"]
        report["same_tokens_as_plain"] = plain.token_ids == result.token_ids
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        _print_summary(console, report, greedy=request.greedy)


class _Stream:
    """Prints tokens as they arrive, coloured by kind."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, console: Console) -> None:
        self._tokenizer = tokenizer
        self._console = console
        self._token_ids: list[int] = []
        self._shown = ""
        self.seconds = 0.0

    def start(self, prompt: str) -> None:
        legend = Text()
        for kind, style in STYLES.items():
            legend.append(f" {kind} ", style=f"reverse {style}")
        self._console.print(legend)
        self._console.print(Text(prompt, style="dim"), end="")

    def emit(self, index: int, token_ids: Sequence[int], kinds: Sequence[TokenKind]) -> None:
        """Print new tokens; bytes of an incomplete character wait for the rest of it."""
        began = time.perf_counter()
        for token, kind in zip(token_ids, kinds or [TokenKind.PLAIN] * len(token_ids), strict=True):
            self._token_ids.append(token)
            text = self._tokenizer.decode(self._token_ids)
            if not text.endswith(_INCOMPLETE):
                self._console.print(Text(text[len(self._shown) :], style=STYLES[kind]), end="")
                self._shown = text
        self.seconds += time.perf_counter() - began


def _load(engine: str, device: str | None, target: Path, options: dict[str, Any]) -> Generator:
    from transformers.utils import logging

    from verispec.engines.registry import resolve

    logging.disable_progress_bar()
    try:
        generator = resolve(engine, device).load(target, **options)
    except UnsupportedCall as refusal:
        generator = Unsupported(refusal.reason)
    if isinstance(generator, Unsupported):
        raise VerispecError(
            "V-GEN-ENGINE",
            generator.reason,
            where=f"--engine {engine}",
            hint="omit --engine to generate with the reference",
            exit_code=exits.CANNOT_TELL,
        )
    loaded: Generator = generator
    return loaded


def _timed(
    generator: Generator, request: GenerationRequest, stream: _Stream | None
) -> tuple[GenerationResult, float, SpeculationMetrics]:
    """Generate after a warm-up; the time excludes printing, the counts exclude the warm-up."""
    short = GenerationRequest(request.prompt_token_ids, max_tokens=_WARM_UP_TOKENS, ignore_eos=True)
    generator.generate([short])
    before = generator.metrics()
    began = time.perf_counter()
    [result] = generator.generate([request], None if stream is None else stream.emit)
    seconds = time.perf_counter() - began - (stream.seconds if stream else 0.0)
    metrics = generator.metrics().since(before)
    generator.close()
    return result, seconds, metrics


def _print_summary(console: Console, report: dict[str, Any], *, greedy: bool) -> None:
    lines = [""]
    if report["drafted"]:
        positions = "  ".join(f"{i + 1}: {rate:.0%}" for i, rate in enumerate(report["acceptance_per_position"]))
        lines += [
            f"drafts       {report['accepted']} of {report['drafted']} accepted",
            f"acceptance   {positions}",
            f"mean length  {report['mean_length']:.2f} tokens per verified step",
        ]
    lines.append(f"speed        {report['tokens_per_second']:.0f} tokens per second")
    if "speed_up" in report:
        lines[-1] += f", {report['plain_tokens_per_second']:.0f} without speculation: {report['speed_up']:.2f} times"
        if greedy:
            same = "the same tokens as" if report["same_tokens_as_plain"] else "NOT the same tokens as"
            lines.append(f"output       {same} without speculation")
    console.print("\n".join(lines))
