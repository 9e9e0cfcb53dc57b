"""Float64 reference models: a model in float64, fed with an engine's output, and the effect of rounding.

transformers computes norms and rotary tables in float32 even for a float64 model; a reference model computes them
in float64 (`widen`), so that nothing in it is rounded to less. What float32 costs is then measured: the same text
through the same model in plain float32.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from transformers import PreTrainedModel

from verispec.cases.request_parameters import distribution
from verispec.engines.protocol.generation import GenerationRequest
from verispec.judge import Failure, Kind, Mismatch
from verispec.reference.models import load_target, mask_token
from verispec.suites.e2e._draft_heads import DraftHead, draft_head, inner_states
from verispec.suites.e2e._recurrence import is_mamba2, mamba2

Array = np.ndarray[Any, Any]
Item = TypeVar("Item")
Tokens = Sequence[int]
Forward = Callable[[tuple[int, ...], tuple[int, ...]], Array]
"""Prompt and emitted tokens to logits [emitted, V]: token i is chosen from row i, given all before it."""

Text = tuple[tuple[int, ...], tuple[int, ...]]
"""Prompt and emitted tokens."""
Together = Callable[[Sequence[Text]], Array]
"""Texts of equal lengths to logits [texts, emitted, V], row by row as `Forward` returns them."""

SAFETY = 8.0
"""Maximum error of an engine's logits, as a multiple of the error of a plain float32 forward pass.

An argmax can change if two logits differ by at most twice the error. The other factor of 4 allows for the engine's own
order of summation (paged attention, fused projections), which a plain forward pass does not share."""

SPREAD = 2.5
"""Largest rounding of a text, as a multiple of that of the texts of its kind, of which few are measured.

Of 32 texts of 48 tokens at temperatures of 0.6 and 1, one had 2.4 times the median."""
EVERY = 16
"""Of so many texts one is measured."""

CONTINUED = 2048
"""Tokens of texts that are continued together: each step reads all weights."""
TOGETHER = 512
"""Tokens that are read in one pass: their activations stay in a fast cache."""


class ReferenceModel:
    """A model's logits for every token of a text in float64, and the error of float32.

    Args:
        exact: the model in float64.
        single: the model in float32.
        together: both for texts of equal lengths; None for a model that reads one text at a time.
    """

    def __init__(self, exact: Forward, single: Forward, *, together: tuple[Together, Together] | None = None) -> None:
        self._forwards = exact, single
        self._together = together
        self._announced: dict[Text, Sequence[Text]] = {}
        """The texts that are read together, for each of them."""
        self._read: tuple[dict[Text, Array], dict[Text, Array]] = ({}, {})
        """Rows of announced texts, in float64 and in float32."""

    def announce(self, texts: Iterable[tuple[Tokens, Tokens]]) -> None:
        """Compute the rows of these texts in few passes, once `logits` or `rounding` is asked for one of them.

        Earlier announcements are forgotten, unless all of these texts are among them.
        """
        wanted = {(tuple(prompt), tuple(tokens)): None for prompt, tokens in (texts if self._together else ())}
        if wanted.keys() <= self._announced.keys():
            return
        alike: dict[tuple[int, int], list[Text]] = defaultdict(list)
        for text in wanted:
            alike[len(text[0]), len(text[1])].append(text)
        self._announced = {}
        self._read = ({}, {})
        for (before, emitted), group in alike.items():
            for part in batched(group, max(TOGETHER // (before + emitted), 1)):
                self._announced |= dict.fromkeys(part, part)

    def _rows(self, which: int, text: Text) -> Array:
        """Return the rows of a text: 0 in float64, 1 in float32."""
        if self._together is None or text not in self._announced:
            return self._forwards[which](*text)
        found = self._read[which]
        if text not in found:
            part = self._announced[text]
            try:
                found |= dict(zip(part, self._together[which](part), strict=True))
            except IndexError:  # an emitted id outside of the vocabulary, which concerns its own text alone
                self._announced = {}
                return self._forwards[which](*text)
        return found[text]

    @lru_cache(maxsize=256)  # noqa: B019 - it lives as long as the process
    def logits(self, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Array:
        """Return the logits that each token is chosen from, [len(tokens), V] float64."""
        return self._rows(0, (prompt, tokens))

    @lru_cache(maxsize=256)  # noqa: B019
    def rounding(self, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> float:
        """Return the largest distance of a float32 logit from its float64 one in this text, times `SAFETY`."""
        exact, single = self.logits(prompt, tokens), self._rows(1, (prompt, tokens))
        known = np.isfinite(exact)
        return SAFETY * float(np.abs(single[known] - exact[known]).max())

    def rounding_of_all(self, texts: Sequence[tuple[Tokens, Tokens]]) -> float:
        """Return a bound of `rounding` for all of `texts`, which are of one kind, from one in `EVERY` of them.

        Statistical tests pay for rounding in each of many tokens, so that a coarse bound costs little.
        """
        worst = 0.0
        for prompt, tokens in texts[::EVERY]:
            exact, single = self.logits(tuple(prompt), tuple(tokens)), self._forwards[1](tuple(prompt), tuple(tokens))
            known = np.isfinite(exact)
            worst = max(worst, float(np.abs(single[known] - exact[known]).max()))
        return SPREAD * SAFETY * worst

    def distributions(self, request: GenerationRequest, tokens: Tokens, at: Sequence[int] | None = None) -> Array:
        """Return the distribution of each token, or of those `at` some places, [places, V].

        The request's temperature, top-k and top-p apply.
        """
        rows = self.logits(request.prompt_token_ids, tuple(tokens))
        return distribution(rows if at is None else rows[list(at)], request)

    def judge_greedy(self, prompt: Tokens, tokens: Tokens, what: str) -> None:
        """Check that every token is the argmax, or within rounding of it.

        Raises:
            Mismatch: at the first token that is not.
        """
        if not tokens:
            raise Mismatch(Failure(Kind.VALUE, f"{what} emitted nothing"))
        rows = self.logits(tuple(prompt), tuple(tokens))
        behind = rows.max(axis=1) - rows[np.arange(len(tokens)), list(tokens)]
        if not behind.any():
            return
        bound = self.rounding(tuple(prompt), tuple(tokens))
        for i in np.flatnonzero(behind > bound)[:1]:
            best, margin = int(rows[i].argmax()), float(behind[i])
            message = (
                f"{what} emitted {tokens[i]} at position {i}; the target's token is {best}, "
                f"ahead by {margin:.3g} where rounding explains {bound:.2g}{equal_in(*rows[i][[best, tokens[i]]])}"
            )
            details = {"position": int(i), "token": int(tokens[i]), "argmax": best, "margin": margin, "bound": bound}
            wrong = int((behind > bound).sum())
            raise Mismatch(Failure(Kind.VALUE, message, wrong=wrong, total=len(tokens), details=details))

    def judge_equal(self, prompt: Tokens, expected: Tokens, got: Tokens, what: str) -> None:
        """Check that two greedy outputs agree up to the first tie within rounding.

        Raises:
            Mismatch: with the margin at the first difference.
        """
        for i, (a, b) in enumerate(zip(expected, got, strict=False)):
            if a == b:
                continue
            row = self.logits(tuple(prompt), tuple(expected))[i]
            margin, bound = abs(float(row[a] - row[b])), self.rounding(tuple(prompt), tuple(expected))
            if margin > bound:
                message = f"{what}: token {i} is {b}, expected {a}; margin {margin:.3g}, rounding explains {bound:.2g}"
                raise Mismatch(Failure(Kind.RELATION, message, details={"position": i, "margin": margin}))
            return
        if len(expected) != len(got):
            raise Mismatch(Failure(Kind.RELATION, f"{what}: {len(got)} tokens, expected {len(expected)}"))


def equal_in(best: float, logit: float) -> str:
    """Return the words for a type of 16 bits in which two logits are equal; none where there is no such type."""
    both = torch.tensor([best, logit])
    for dtype in (torch.float16, torch.bfloat16):
        rounded = both.to(dtype)
        if rounded[0] == rounded[1]:
            return f"; the two logits are equal in {str(dtype).removeprefix('torch.')}"
    return ""


@cache
def reference_model(folder: Path, single: torch.dtype = torch.float32) -> ReferenceModel:
    """Return the float64 reference model of a target or a draft model; `single` is what its engine computes in."""
    exact, plain = (partial(_rows_of_all, folder, dtype) for dtype in (torch.float64, single))
    return ReferenceModel(partial(_alone, exact), partial(_alone, plain), together=(exact, plain))


@cache
def reference_head(folder: Path, target: Path) -> ReferenceModel:
    """Return the float64 reference model of a head's first draft, from the target's own hidden states."""
    together = [partial(_first_rows_of_all, *models) for models in head_and_target(folder, target)]
    return ReferenceModel(*(partial(_alone, rows) for rows in together), together=(together[0], together[1]))


@cache
def reference_chain(
    folder: Path, target: Path, depth: int, reads_first: bool = False, mistake: str = ""
) -> ReferenceModel:
    """Return the float64 reference model of a head's chains; row [i, j] drafts token i + j of the text.

    Each chain starts from the target's hidden states, and reads the text's tokens as if it had drafted them. See
    `draft_head` for `reads_first`, and `CHAIN_MISTAKES` and `STATE_MISTAKES` for chains that are wrong.
    """
    together = [
        partial(_chains_of_all, *models, depth, mistake=mistake)
        for models in head_and_target(folder, target, reads_first)
    ]
    return ReferenceModel(*(partial(_alone, rows) for rows in together), together=(together[0], together[1]))


@cache
def reference_masked(folder: Path, depth: int) -> ReferenceModel:
    """Return the float64 reference model of parallel drafting; row [i, j] drafts token i + j of the text.

    Row j of a chain is that of mask token j behind the text up to token i - 1, and of its last token for j = 0.
    """
    mask_id = mask_token(folder)
    return ReferenceModel(
        *(partial(_masked_rows, model(folder, dtype), mask_id, depth) for dtype in (torch.float64, torch.float32))
    )


def head_and_target(
    folder: Path, target: Path, reads_first: bool = False
) -> Iterator[tuple[DraftHead, PreTrainedModel]]:
    """Yield head and target in float64, then in float32."""
    for dtype in (torch.float64, torch.float32):
        reads = model(target, dtype)
        yield draft_head(folder, reads, reads_first), reads


def greedy_text(folder: Path, prompt: tuple[int, ...], length: int) -> tuple[int, ...]:
    """Return the float64 target's own greedy continuation, with end-of-sequence tokens like any other."""
    return greedy_texts(folder, [prompt], length)[0]


_greedy: dict[tuple[Path, tuple[int, ...], int], tuple[int, ...]] = {}
"""Continuations by folder, prompt and length."""


def greedy_texts(folder: Path, prompts: Sequence[tuple[int, ...]], length: int) -> list[tuple[int, ...]]:
    """Return `greedy_text` of each prompt; those of equal lengths are continued together."""
    alike: dict[int, dict[tuple[int, ...], None]] = defaultdict(dict)
    for prompt in prompts:
        if (folder, prompt, length) not in _greedy:
            alike[len(prompt)][prompt] = None
    options = {"do_sample": False, "pad_token_id": 0, "max_new_tokens": length}
    for before, group in alike.items():
        for part in batched(group, max(CONTINUED // (before + length), 1)):
            with quiet():
                ids = torch.tensor(part)
                output = model(folder, torch.float64).generate(ids, attention_mask=torch.ones_like(ids), **options)
            for prompt, tokens in zip(part, output[:, before:].tolist(), strict=True):
                _greedy[folder, prompt, length] = tuple(tokens)
    return [_greedy[folder, prompt, length] for prompt in prompts]


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of at most `size`, in order."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


@cache
def model(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """Load a checkpoint that never stops by itself; for float64, with every part in float64."""
    loaded = load_target(folder, dtype, "cpu")
    # None among the arguments of `generate` would be filled in from here.
    loaded.generation_config.eos_token_id = None
    return widen(loaded) if dtype == torch.float64 else loaded


def widen(loaded: Any) -> Any:
    """Make the norms, the rotary tables and the recurrent layers of a model compute in its own dtype."""
    for module in loaded.modules():
        if is_mamba2(module):
            module.forward = partial(mamba2, module)
        elif hasattr(module, "variance_epsilon"):
            module.forward = partial(_norm, module)
        elif hasattr(module, "inv_freq"):
            module.forward = partial(_rotary, module)
    return loaded


def _norm(module: Any, x: torch.Tensor) -> torch.Tensor:
    normed: torch.Tensor = module.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + module.variance_epsilon)
    return normed


def _rotary(module: Any, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    angles = position_ids[..., None].to(x.dtype) * module.inv_freq.to(x.dtype)
    both = torch.cat((angles, angles), dim=-1)
    return both.cos() * module.attention_scaling, both.sin() * module.attention_scaling


@contextmanager
def quiet() -> Iterator[None]:
    """Run the block without gradients, with one thread, and in the arithmetic that a plain program has.

    Small models gain nothing from a second thread, and wait for it on a busy machine. An engine in this process may
    have left autocast on, or faster products of lower precision: the measured rounding would then excuse its own.
    """
    threads, default = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(), torch.autocast("cpu", enabled=False), _whole_products():
            yield
    finally:
        torch.set_default_dtype(default)
        torch.set_num_threads(threads)


@contextmanager
def _whole_products() -> Iterator[None]:
    """Run the block with float32 products that the CPU's library computes in float32, not in bfloat16 or TF32."""
    products: Any = getattr(torch.backends.mkldnn, "matmul", None)  # absent before torch 2.9
    before = getattr(products, "fp32_precision", None)
    if before is None:
        yield
        return
    products.fp32_precision = "ieee"
    try:
        yield
    finally:
        products.fp32_precision = before


def _alone(together: Together, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Array:
    rows: Array = together([(prompt, tokens)])[0]
    return rows


def _rows_of_all(folder: Path, dtype: torch.dtype, texts: Sequence[Text]) -> Array:
    with quiet():
        ids = torch.tensor([[*prompt, *tokens[:-1]] for prompt, tokens in texts])
        output = model(folder, dtype)(ids, logits_to_keep=len(texts[0][1]), use_cache=False)
        rows: Array = output.logits.double().numpy()
    return rows


@cache
def continuations(folder: Path, prompt: tuple[int, ...], depth: int) -> Array:
    """Return float64 logits [V] * depth + [depth + 1, V] after every continuation of `depth` tokens.

    Row i of a continuation is what its token i is chosen from; for small vocabularies only.
    """
    loaded = model(folder, torch.float64)
    size = loaded.config.vocab_size
    tails = torch.cartesian_prod(*[torch.arange(size)] * depth).reshape(-1, depth)
    with quiet():
        ids = torch.cat((torch.tensor(prompt).repeat(len(tails), 1), tails), dim=1)
        rows: Array = loaded(ids, logits_to_keep=depth + 1, use_cache=False).logits.double().numpy()
    return rows.reshape(*(size,) * depth, depth + 1, size)


def _first_rows_of_all(head: DraftHead, target: PreTrainedModel, texts: Sequence[Text]) -> Array:
    """Return the logits of first drafts, [texts, emitted, V]."""
    rows: Array = _chains_of_all(head, target, 1, texts)[:, :, 0]
    return rows


CHAIN_MISTAKES = {
    "later drafts read the head's state on the other side of its last norm": "norm",
    "later drafts read the target's state of the first one": "state",
    "all later drafts read the head's state of the first one": "once",
    "later drafts had the position of the first one": "position",
    "later drafts had positions one too high": "high",
    "later drafts had positions one too low": "low",
    "each row of the head read the token of its own position, not the next one": "token",
}
"""Mistakes of a head's chains in words, to follow "as if", with their names for `reference_chain`."""
STATE_MISTAKES = {
    "eagle3": {
        "it read the states behind its layers of the target, not those before them": "behind",
        "it read layers of the target one too low": "lower",
    },
    "mtp": {
        "the layer read the target's state behind the final norm, not before it": "normed",
        "the layer read the target's state before the last layer, not behind it": "lower",
    },
}
"""Mistakes in the choice of the target's states, likewise, by method."""


def _chains_of_all(
    head: DraftHead, target: PreTrainedModel, depth: int, texts: Sequence[Text], mistake: str = ""
) -> Array:
    """Return the head's logits [texts, emitted, depth, V]; the target reads texts of equal lengths together."""
    with quiet():
        states = states_for(head, target, texts, mistake)
        return np.stack(
            [_chain_rows(head, own, depth, *text, mistake) for own, text in zip(states, texts, strict=True)]
        )


def states_for(head: DraftHead, target: PreTrainedModel, texts: Sequence[Text], mistake: str = "") -> torch.Tensor:
    """Return the target's states [texts, tokens, layers * H] of texts of equal lengths, without the last two tokens."""
    ids = torch.tensor([[*prompt, *tokens][:-2] for prompt, tokens in texts])
    states = inner_states(target, ids, [layer + {"behind": 1, "lower": -1}.get(mistake, 0) for layer in head.layers])
    normed: torch.Tensor = target.model.norm(states) if mistake == "normed" else states
    return normed


def _chain_rows(
    head: DraftHead,
    states: torch.Tensor,
    depth: int,
    prompt: tuple[int, ...],
    tokens: tuple[int, ...],
    mistake: str = "",
) -> Array:
    """Return the head's logits [emitted, depth, V]; -inf in columns without a token of the head.

    The row of position i reads token i + 1 and drafts token i + 2, first from the target's state of position i. Each
    further row of a chain reads the head's own state of the row before. It attends to that row and to all that it sees.
    """
    ids = torch.tensor([*prompt, *tokens, *[0] * depth])
    first, known = len(prompt) - 2, len(prompt) + len(tokens) - 2
    ends = torch.arange(first, known)
    found = []
    hidden = combined = head.combine(states)
    read, positions = ids[:known] if mistake == "token" else ids[1 : known + 1], torch.arange(known)
    sees = torch.ones(known, known, dtype=torch.bool).tril()
    last = ends
    for step in range(1, depth + 1):
        following = head.rows(head.embed(read, positions), hidden, positions, sees)
        found.append(head.logits(following[last]))
        read = torch.cat((read, ids[ends + step + 1]))
        if step == 1 or mistake != "once":
            fed = combined[ends] if mistake == "state" else head.fed(following[last], is_wrong=mistake == "norm")
        hidden = torch.cat((hidden, fed))
        positions = torch.cat((positions, ends + {"position": 0, "high": step + 1, "low": step - 1}.get(mistake, step)))
        added = torch.cat((sees[last], torch.eye(len(ends), dtype=torch.bool)), dim=1)
        sees = torch.cat((torch.nn.functional.pad(sees, (0, len(ends))), added))
        last = torch.arange(len(sees) - len(ends), len(sees))
    rows: Array = torch.stack(found, dim=1).double().numpy()
    return rows


def _masked_rows(
    loaded: PreTrainedModel, mask_id: int, depth: int, prompt: tuple[int, ...], tokens: tuple[int, ...]
) -> Array:
    """Return the logits [emitted, depth, V] behind each text that was known, followed by `depth` - 1 mask tokens."""
    rows = []
    with quiet():
        for known in range(len(tokens)):
            ids = torch.tensor([[*prompt, *tokens[:known], *[mask_id] * (depth - 1)]])
            rows.append(loaded(ids, logits_to_keep=depth, use_cache=False).logits[0].double())
    stacked: Array = torch.stack(rows).numpy()
    return stacked
