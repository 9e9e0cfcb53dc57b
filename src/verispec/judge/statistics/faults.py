"""The catalogue of named faults: what a sampler does wrong, and the bet that finds it.

A bet is a distribution f that the fault would follow. Its capital is the product of f/p over the outcomes seen, p being
the distribution that losslessness states. Under p the capital has expectation at most 1 at any time, so it exceeds 1e6
with a probability of at most 1e-6 (Ville's inequality).
"""

from __future__ import annotations

from dataclasses import dataclass

SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
"""Of how many draws a fault spoils, for bets (1 - s) + s f/p."""
ALMOST = (0.95, 0.3, 0.1)
"""Shares for faults whose f is 0 where p is not: a single exception must not ruin the bet."""
TEMPERATURES = (0.8, 0.9, 0.95, 0.98, 0.99, 1.01, 1.02, 1.05, 1.1, 1.25)
TAILS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 3e-8)
FACTORS = (0.7, 0.9, 0.95, 0.98, 0.99, 1.01, 1.02, 1.05, 1.1, 1.3)
BITS = (4.0, 8.0, 12.0)


@dataclass(frozen=True, slots=True)
class SamplerFault:
    """A way in which a sampler is not lossless.

    Attributes:
        name: action of the sampler, as a phrase.
        ratio: the formula of f/p, or of f.
        unit: meaning of a size: "share", "factor", "below" or "bits".
        sizes: the sizes that are bet on.
        issues: issues that report the fault.
        witness: rows that show the fault with few tokens.
    """

    name: str
    ratio: str
    unit: str = "share"
    sizes: tuple[float, ...] = SHARES
    issues: tuple[str, ...] = ()
    witness: str = "any"

    def describe(self, size: float) -> str:
        """Return the fault at one size, as a phrase."""
        if self.unit == "factor":
            return f"{self.name} x{size:g}"
        if self.unit == "below":
            return self.name.replace("{}", f"{size:g}")
        if self.unit == "bits":
            return f"{self.name} of {size:g} bits"
        return self.name if size >= min(ALMOST[0], 0.9) else f"{self.name} ({size:.2g} of draws)"


FAULTS: dict[str, SamplerFault] = {
    "target": SamplerFault(
        "recovered from the target instead of the residual",
        "p / residual; on text min(1, q/p) + 1 - overlap",
        sizes=SHARES[:5],
        issues=("vllm#7240", "DeepSpec#31"),
        witness="overlap near 1/2",
    ),
    "other residual": SamplerFault(
        "recovered from the residual of the row before", "residual of row i - 1", sizes=ALMOST, witness="K at least 2"
    ),
    "first residual": SamplerFault("recovered from the residual of the first row", "residual of row 0", sizes=ALMOST),
    "next residual": SamplerFault(
        "recovered from the residual of the row after", "residual of row i + 1", sizes=ALMOST
    ),
    "draft noise": SamplerFault(
        "draft and recovery share their noise",
        "residual(t) times the integral of (1 + H)^-2 from q/residual on",
        sizes=ALMOST,
        issues=("vllm#54282",),
        witness="p = (.10, .55, .35), q = (.60, .35, .05)",
    ),
    "reused u": SamplerFault(
        "the acceptance number is reused as the quantile of the residual",
        "part of the token's interval of the residual's CDF in (p/q, 1), over 1 - p/q",
        sizes=ALMOST,
        issues=("vllm-ascend#16370",),
    ),
    "neighbour noise": SamplerFault(
        "neighbours in a batch share their noise", "[t = the neighbour's token]", sizes=(0.9, 0.5, 0.1, 0.03)
    ),
    "far noise": SamplerFault(
        "requests 64 apart share their noise", "[t = that request's token]", sizes=(0.9, 0.5, 0.1)
    ),
    "step noise": SamplerFault(
        "noise is reused from step to step",
        "[t = the same place's token in the step before]",
        sizes=(0.9, 0.5, 0.1),
        issues=("vllm#47386", "sglang#33395"),
    ),
    "neighbour row": SamplerFault("the rows of the neighbouring request are read", "p of the neighbour", sizes=ALMOST),
    "unsigned": SamplerFault("the residual is |p - q|", "|p - q| over its sum", sizes=ALMOST),
    "draft row": SamplerFault("the token is drawn from the draft's distribution", "q", sizes=ALMOST),
    "greedy": SamplerFault(
        "the most likely token is taken", "[t = argmax p] / max p", sizes=(0.95, *SHARES[1:]), witness="flat rows"
    ),
    "temperature": SamplerFault("temperature", "p^(1/c - 1) / sum p^(1/c)", "factor", TEMPERATURES, ("vllm#55005",)),
    "tail lost": SamplerFault(
        "tokens below {} are lost",
        "[p >= tau] / (1 - mass of the tail)",
        "below",
        TAILS,
        ("vllm#43150", "vllm#34854", "Megatron-LM#7182"),
        "one likely token, the rest at 1e-8",
    ),
    "first lost": SamplerFault(
        "token 0 is never drawn", "[t > 0] / (1 - p(0))", sizes=ALMOST, witness="a likely token 0"
    ),
    "last lost": SamplerFault(
        "the last token of the vocabulary is never drawn",
        "[t < V - 1] / (1 - p(V - 1))",
        sizes=ALMOST,
        witness="a likely last token",
    ),
    "tail gained": SamplerFault("tokens below {} are drawn too often", "[p < tau] / mass of the tail", "below", TAILS),
    "excluded": SamplerFault(
        "tokens that the request's limits or masks exclude are drawn",
        "[p = 0] / number of excluded tokens; for drafts a = 1 where p = 0",
        sizes=SHARES[1:],
        witness="top-k or top-p",
    ),
    "unlimited": SamplerFault(
        "the request's top-k, top-p and min-p are ignored",
        "the rule with p before its limits",
        sizes=ALMOST,
        witness="top-k or top-p",
    ),
    "last row": SamplerFault(
        "the bonus token is drawn from the last draft's row", "p of row k - 1 at the bonus", sizes=ALMOST
    ),
    "first row": SamplerFault("the bonus token is drawn from the first row", "p of row 0 at the bonus", sizes=ALMOST),
    "bonus residual": SamplerFault(
        "the bonus token is drawn from a residual", "max(p - q of the last draft, 0)", sizes=ALMOST
    ),
    "ratio": SamplerFault("acceptance ratio", "min(1, c p/q)", "factor", FACTORS, ("vllm#40269",)),
    "kept": SamplerFault("drafts are kept whatever the target says", "a + s (1 - a); on text q/p", sizes=SHARES[1:]),
    "dropped": SamplerFault("drafts are rejected whatever the target says", "(1 - s) a", sizes=SHARES[1:]),
    "one u": SamplerFault(
        "one acceptance number serves all positions of a request", "min(1, a_i / least a accepted before)", sizes=ALMOST
    ),
    "neighbour u": SamplerFault(
        "neighbours in a batch share their acceptance numbers", "P(u < a | the neighbour's decision)", sizes=ALMOST
    ),
    "few bits": SamplerFault(
        "acceptance numbers", "ceil(a 2^b) / 2^b", "bits", BITS, ("sglang#35771",), "drafts with p/q near 1e-3"
    ),
    "other q": SamplerFault(
        "q is read from the row before", "min(1, p_i / q of row i - 1)", sizes=ALMOST, witness="K >= 2"
    ),
    "next q": SamplerFault(
        "q is read from the row after", "min(1, p_i / q of row i + 1)", sizes=ALMOST, witness="K >= 2"
    ),
    "other p": SamplerFault(
        "p is read from the row before", "min(1, p of row i - 1 / q_i)", sizes=ALMOST, witness="K >= 2"
    ),
    "next p": SamplerFault("p is read from the row after", "min(1, p of row i + 1 / q_i)", sizes=ALMOST),
    "argmax rule": SamplerFault("drafts are accepted by argmax", "[draft = argmax p]", sizes=ALMOST),
    "token rule": SamplerFault("a block is verified token by token", "min(1, p/q) in place of h", sizes=ALMOST),
    "token residual": SamplerFault(
        "the block's residual ignores the joint ratio", "max(p - q, 0) over its sum", sizes=ALMOST
    ),
    "no ratio": SamplerFault("drafts are accepted with probability p", "p in place of p/q", sizes=ALMOST),
}


@dataclass(frozen=True, slots=True)
class Bet:
    """One fault at one size, at one kind of outcome ("acceptance", "recovered token", "bonus token", "token")."""

    where: str
    key: str
    size: float

    @property
    def fault(self) -> SamplerFault:
        """The fault that this bet is on."""
        return FAULTS[self.key]

    @property
    def label(self) -> str:
        """The bet as a phrase, for reports."""
        return f"{self.where}: {self.fault.describe(self.size)}"


def bets(where: str, keys: tuple[str, ...]) -> list[Bet]:
    """Return bets on all sizes of the faults `keys`, in order; `where` is the kind of token."""
    return [Bet(where, key, size) for key in keys for size in FAULTS[key].sizes]
