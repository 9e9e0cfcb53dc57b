"""Row sets: draft and bonus rows with exact probabilities, from which requests of a sampler are made.

Half of the sets are high-entropy, half are low-entropy, and every set has its own sampling parameters. A request takes
one set, a number of its drafts, and draft tokens drawn from the set's draft probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from verispec.cases.distribution import limited

if TYPE_CHECKING:
    from verispec.engines.protocol.sampling import SamplerBatch

Array = np.ndarray[Any, Any]

LIMITS = ("none", "temperature", "top_k", "top_p", "both", "min_p", "masked")
"""Limits that shape the target: only T = 1; T from 0.3 to 2; top-k; top-p; both; min-p; -inf masks and ties."""

DISAGREEMENTS = (0.1, 0.2, 0.9, 4.0, 2.0, 0.1, 3.0, 0.4)
"""Standard deviation of a drafter's logits around the target's, by set."""

SPREADS = (1.8, 1.8, 3.0, 3.0)
"""Standard deviation of a row's logits, by set: a wide one shows a wrong temperature."""

FLAT = 0.3
"""Standard deviation of the logits of a flat rest."""
ONE_LIKELY = (0.4, 0.75)
"""Range of the probability of its one likely token."""

EXCLUDED = 4.0
"""Amount, in nats, that a drafter's logits lose at tokens that the target's limits exclude."""

GAP = 3e-5
"""Distance of a limit from the next token's mass that no float32 sum crosses."""
TRIES = 200


@dataclass(frozen=True)
class RowSets:
    """M sets of K draft rows and one bonus row.

    Attributes:
        logits: [M, K + 1, V] float32, -inf where masked.
        draft_probs: [M, K, V] float32; one-hot where drafts are certain.
        certain: True if drafts are certain, so that engines get no draft probabilities.
        temperature: [M] float32.
        top_k: [M] int32, V keeps all; None without top-k.
        top_p: [M] float32, 1 keeps all; None without top-p.
        min_p: [M] float32, 0 keeps all; None without min-p.
    """

    logits: Array
    draft_probs: Array
    certain: bool
    temperature: Array
    top_k: Array | None = None
    top_p: Array | None = None
    min_p: Array | None = None

    @property
    def sets(self) -> int:
        """The number of sets, M."""
        return int(self.logits.shape[0])

    @property
    def drafts(self) -> int:
        """The number of draft tokens per set, K."""
        return int(self.draft_probs.shape[1])

    @property
    def vocab_size(self) -> int:
        """The vocabulary size, V."""
        return int(self.logits.shape[2])

    @cached_property
    def p(self) -> Array:
        """Target probabilities under each set's temperature and limits, [M, K + 1, V] float64."""
        return np.stack([[self._row(m, row) for row in self.logits[m]] for m in range(self.sets)])

    @cached_property
    def unlimited(self) -> Array | None:
        """Target probabilities under the temperature alone, [M, K + 1, V] float64; None without limits."""
        if self.top_k is None and self.top_p is None and self.min_p is None:
            return None
        return RowSets(self.logits, self.draft_probs, self.certain, self.temperature).p

    def _row(self, m: int, logits: Array) -> Array:
        return limited(
            logits,
            float(self.temperature[m]),
            0 if self.top_k is None else int(self.top_k[m]),
            1.0 if self.top_p is None else float(self.top_p[m]),
            0.0 if self.min_p is None else float(self.min_p[m]),
        )

    @cached_property
    def q(self) -> Array:
        """Draft probabilities, [M, K, V] float64."""
        return self.draft_probs.astype(np.float64)

    @cached_property
    def slack(self) -> Array:
        """Maximum error of the log-probabilities of a float32 engine, [M].

        Four roundings and the exponent's: x / T is rounded to 2^-24 of itself, and so is the distance to the largest.
        """
        possible = np.where(np.isfinite(self.logits) & (self.p > 1e-9), np.abs(self.logits), 0.0)
        slack: Array = 2.0**-22 * (4.0 + possible.max((1, 2)) / self.temperature)
        return slack

    @cached_property
    def _cumulative(self) -> Array:
        """Cumulative draft probabilities of all rows as one ascending array: row r lies in (r, r + 1]."""
        rows = np.cumsum(self.q.reshape(-1, self.vocab_size), 1)
        rows /= rows[:, -1:]
        return (rows + np.arange(len(rows))[:, None]).ravel()

    def choose(self, rng: np.random.Generator, requests: int) -> tuple[Array, Array]:
        """Choose a row set and a number of drafts for each request.

        Of ten requests three have K drafts, four none, three any number. Four of ten take the set of their neighbour,
        so that noise which neighbours share shows as equal tokens.

        Args:
            rng: source of the choices.
            requests: B.

        Returns:
            Sets [B] and draft counts [B], int64.
        """
        kind = rng.random(requests)
        any_number = rng.integers(0, self.drafts + 1, requests)
        lengths = np.where(kind < 0.3, self.drafts, np.where(kind < 0.7, 0, any_number))
        is_new = rng.random(requests) < 0.6
        is_new[:1] = True
        sets = rng.integers(0, self.sets, requests)
        return sets[np.maximum.accumulate(np.where(is_new, np.arange(requests), 0))], lengths

    def draw(self, rng: np.random.Generator, sets: Array) -> Array:
        """Draw the drafts of requests.

        Args:
            rng: source of the tokens.
            sets: [B] row set of each request.

        Returns:
            [B, K] int64 token ids.
        """
        rows = sets[:, None] * self.drafts + np.arange(self.drafts)
        found = np.searchsorted(self._cumulative, rows + rng.random(rows.shape), side="right")
        tokens: Array = np.minimum(found - rows * self.vocab_size, self.vocab_size - 1)
        return tokens

    def batch(
        self, sets: Array, lengths: Array, drafts: Array, seeds: Any = None, greedy: Array | None = None
    ) -> SamplerBatch:
        """Return the batch of requests that take `lengths` [B] of the drafts [B, K] of `sets` [B].

        Args:
            sets: row set of each request.
            lengths: number of drafts that each request brings.
            drafts: draft tokens.
            seeds: seeds of the requests; None is unseeded.
            greedy: [B] bool, requests at temperature 0.
        """
        import torch

        from verispec.engines.protocol.sampling import SamplerBatch

        step = np.arange(self.drafts + 1)
        rows = (sets[:, None] * (self.drafts + 1) + step)[step <= lengths[:, None]]
        draft_rows = (sets[:, None] * self.drafts + step[:-1])[step[:-1] < lengths[:, None]]
        temperature = self.temperature[sets].copy()
        if greedy is not None:
            temperature[greedy] = 0.0

        def chosen(values: Array | None) -> torch.Tensor | None:
            return None if values is None else torch.from_numpy(values[sets])

        flat = self.logits.reshape(-1, self.vocab_size)
        probs = self.draft_probs.reshape(-1, self.vocab_size)
        return SamplerBatch(
            torch.from_numpy(flat[rows]),
            [ids[:length].tolist() for ids, length in zip(drafts, lengths, strict=True)],
            torch.from_numpy(temperature),
            None if self.certain else torch.from_numpy(probs[draft_rows]),
            chosen(self.top_k),
            chosen(self.top_p),
            chosen(self.min_p),
            list(seeds) if seeds is not None else None,
        )


def random_row_sets(
    rng: np.random.Generator, sets: int, drafts: int, vocab_size: int, *, limits: str = "none", certain: bool = False
) -> RowSets:
    """Return row sets for one of `LIMITS`: even sets are low-entropy, odd ones high-entropy.

    A low-entropy row has a normal background and 64 likely tokens. In every fourth set it has one likely token and a
    flat rest instead, which shows a wrong temperature: log p varies most there. Part of a tile may be lost at an end of
    the vocabulary: its last and first tokens are the third and fourth of the 64, and every second of the others. The
    drafters of the sets disagree more and more: drafts with a small p/q show acceptance numbers of too few bits, and
    drafts that are kept whatever the target says.

    Args:
        rng: source of all values.
        sets: M.
        drafts: K.
        vocab_size: V.
        limits: one of `LIMITS`.
        certain: True for drafts of probability 1.
    """
    shape = (sets, drafts + 1, vocab_size)
    logits = rng.normal(0, 1.0, shape) * np.resize(SPREADS, (sets, 1, 1))
    likely = min(64, max(vocab_size // 4, 1))
    for m in range(0, sets, 2):
        if m % 4 == 2:
            logits[m] *= FLAT / SPREADS[m % len(SPREADS)]
        for i, row in enumerate(logits[m]):
            if m % 4 == 2:
                top, place = rng.uniform(*ONE_LIKELY), int(rng.integers(vocab_size))
                place = (0, place, vocab_size - 1, place)[(m // 4 + i) % 4]
                row[place] = np.log(top / (1.0 - top)) + np.log(np.exp(row).sum())
                continue
            at = rng.choice(vocab_size, likely, replace=False)
            for rank, end in ((-3, vocab_size - 1), (-4, 0)) if likely >= 4 else ():
                at[at == end], at[rank] = at[rank], end
            row[at] = 6.0 + np.sort(rng.exponential(rng.uniform(2.0, 5.0), likely))
    apart = np.resize(DISAGREEMENTS, (sets, 1, 1))
    draft_logits = logits[:, :drafts] + apart * rng.normal(0, 1.0, (sets, drafts, vocab_size))
    if limits == "masked":
        _mask_and_tie(rng, logits)
    logits = logits.astype(np.float32)
    temperature = np.geomspace(0.3, 2.0, sets)[rng.permutation(sets)] if limits != "none" else np.ones(sets)
    temperature = temperature.astype(np.float32)
    options: dict[str, Array] = {}
    for name in _PARTS.get(limits, ()):
        options[name] = _limit(rng, name, logits, temperature, options.get("top_k"))
    if certain:
        ids = rng.integers(0, vocab_size, (sets, drafts))
        usual = logits[:, :drafts].argmax(-1)
        probs = np.eye(vocab_size, dtype=np.float32)[np.where(rng.random(ids.shape) < 0.8, usual, ids)]
    else:
        scaled = draft_logits / temperature[:, None, None]
        scaled[RowSets(logits, scaled, certain, temperature, **options).p[:, :drafts] == 0] -= EXCLUDED
        weights = np.exp(scaled - scaled.max(-1, keepdims=True))
        probs = (weights / weights.sum(-1, keepdims=True)).astype(np.float32)
    return RowSets(logits, probs, certain, temperature, **options)


_PARTS = {"top_k": ("top_k",), "top_p": ("top_p",), "both": ("top_k", "top_p"), "min_p": ("min_p",)}


def _mask_and_tie(rng: np.random.Generator, logits: Array) -> None:
    """Mask a third of every row, and give two tokens of the rest the largest logit."""
    vocab_size = logits.shape[-1]
    for row in logits.reshape(-1, vocab_size):
        order = rng.permutation(vocab_size)
        row[order[: vocab_size // 3]] = -np.inf
        row[order[-min(2, vocab_size - vocab_size // 3) :]] = row.max()


def _limit(rng: np.random.Generator, name: str, logits: Array, temperature: Array, top_k: Array | None) -> Array:
    """Return one value per set whose cut lies clear of every row's next token, so that rounding does not move it."""
    vocab_size = logits.shape[-1]
    chosen = []
    for m, (rows, heat) in enumerate(zip(logits, temperature.tolist(), strict=True)):
        k = 0 if top_k is None else int(top_k[m])
        for _ in range(TRIES):
            if name == "top_k":
                value = float(min(rng.choice([1, 5, 50, 200, vocab_size // 2, vocab_size]), vocab_size))
            elif name == "top_p":
                value = float(np.float32(rng.choice([rng.uniform(0.2, 0.9), rng.uniform(0.9, 0.995), 1.0])))
            else:
                value = float(np.float32(rng.choice([0.0, rng.uniform(0.01, 0.3)])))
            if all(_is_clear(name, max(value, 0.0), limited(row, heat, k)) for row in rows):
                break
        else:
            value = {"top_k": float(vocab_size), "top_p": 1.0, "min_p": 0.0}[name]
        chosen.append(value)
    return np.array(chosen, dtype=np.int32 if name == "top_k" else np.float32)


def _is_clear(name: str, value: float, p: Array) -> bool:
    ordered = np.sort(p)[::-1]
    if name == "top_k":
        k = max(int(value), 1)
        return k >= len(p) or bool(ordered[k - 1] > ordered[k] * (1 + GAP))
    if name == "top_p":
        return value >= 1 or bool(np.abs(np.cumsum(ordered) - value).min() > GAP)
    return bool(np.abs(ordered / ordered[0] - value).min() > GAP * max(value, GAP))
