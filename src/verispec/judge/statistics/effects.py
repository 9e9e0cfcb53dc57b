"""Effects: faults and sizes that a test of a sampler promises to find. A test ends once it has excluded all of them.

The sizes are at most those of the planted faults, so an earlier end loses none of these. A wrong exclusion of a fault
that is present has the probability of a false alarm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verispec.judge.statistics.faults import ALMOST, Bet

Sizes = Mapping[str, Mapping[str, Sequence[float]]]

_ROWS = ALMOST[:1]
"""Size of faults that concern every draw."""

FINE: Sizes = {
    "acceptance": {
        "ratio": (0.98, 1.02),
        "kept": (0.03,),
        "dropped": (0.03,),
        "few bits": (4.0,),
        **dict.fromkeys(("one u", "neighbour u", "other p", "next p", "neighbour row", "argmax rule"), _ROWS),
    },
    "recovered token": {
        "target": (0.03,),
        "greedy": (0.1,),
        "temperature": (0.9, 1.1),
        "tail lost": (1e-4,),
        **dict.fromkeys(("first lost", "last lost"), _ROWS),
        **dict.fromkeys(("neighbour noise", "far noise", "step noise"), (0.9,)),
        **dict.fromkeys(("other residual", "first residual", "next residual", "reused u", "neighbour row"), _ROWS),
        **dict.fromkeys(("unsigned", "draft row"), _ROWS),
    },
    "bonus token": {
        "greedy": (0.03,),
        "temperature": (0.95, 1.05),
        "tail lost": (1e-4,),
        **dict.fromkeys(("first lost", "last lost"), _ROWS),
        **dict.fromkeys(("neighbour noise", "far noise", "step noise"), (0.9,)),
        **dict.fromkeys(("last row", "first row", "bonus residual", "neighbour row"), _ROWS),
    },
}
"""Promised by a test at temperatures of its own, without other limits."""

COARSE: Sizes = {
    "acceptance": {
        "ratio": (0.9, 1.1),
        "kept": (0.1,),
        "dropped": (0.1,),
        **dict.fromkeys(("one u", "neighbour u", "other p", "next p", "neighbour row", "argmax rule"), _ROWS),
    },
    "recovered token": {
        "target": (0.3,),
        "temperature": (0.8, 1.25),
        "neighbour noise": (0.9,),
        **dict.fromkeys(("first lost", "last lost"), _ROWS),
        **dict.fromkeys(("other residual", "first residual", "next residual", "reused u", "neighbour row"), _ROWS),
        **dict.fromkeys(("unsigned", "draft row"), _ROWS),
    },
    "bonus token": {
        "greedy": (0.3,),
        "temperature": (0.8, 1.25),
        "neighbour noise": (0.9,),
        **dict.fromkeys(("first lost", "last lost"), _ROWS),
        **dict.fromkeys(("last row", "first row", "bonus residual", "neighbour row"), _ROWS),
    },
}
"""Promised by a test of one kind of limit; the finer sizes concern code that limits share with their absence."""

DRAWN: Sizes = {
    "acceptance": dict.fromkeys(("other q", "next q", "no ratio"), _ROWS),
    "recovered token": {"draft noise": _ROWS},
}
"""Added in `FINE` tests where drafts are drawn: with certain drafts these faults do nothing."""

TEXT: Sizes = {"token": {"temperature": (0.8, 1.25), "greedy": (0.3,)}}
"""Promised by a test of texts whose drafts have unknown distributions; witness models show finer sizes."""

LARGE: Sizes = {
    "acceptance": dict.fromkeys(("other q", "next q", "no ratio"), _ROWS),
    "recovered token": {"tail lost": (1e-5,)},
    "bonus token": {"tail lost": (1e-5,)},
}
"""Added to `COARSE` in a test of a large vocabulary; the finer sizes concern code that it shares with small ones."""

LIMITED: Sizes = {where: {"unlimited": _ROWS} for where in ("acceptance", "recovered token", "bonus token")}
"""Added where requests have limits."""

BLOCKS: Sizes = {
    "acceptance": {"ratio": (0.95, 1.05), "kept": (0.03,), "dropped": (0.03,), "token rule": _ROWS},
    "recovered token": {"target": (0.1,), "token residual": _ROWS, "draft row": _ROWS, "temperature": (0.9, 1.1)},
    "bonus token": {"greedy": (0.1,), "temperature": (0.95, 1.05), "last row": _ROWS, "first row": _ROWS},
}
"""Promised by a test of block verification without limits."""

DECISIONS: Sizes = {"acceptance": {"ratio": (0.98, 1.02), "kept": (0.03,), "dropped": (0.03,)}}
"""Promised by a test of acceptance in small vocabularies."""


def effects(*promised: Sizes) -> list[Bet]:
    """Return the bets on everything that is promised."""
    return [
        Bet(where, key, size)
        for sizes in promised
        for where, faults in sizes.items()
        for key, some in faults.items()
        for size in some
    ]


def of_steps(limits: str, *, certain: bool) -> list[Bet]:
    """Return the sizes of faults that a test of steps with known drafts promises to find.

    Args:
        limits: one of `verispec.cases.row_sets.LIMITS`.
        certain: True if drafts have probability 1.
    """
    if limits in ("none", "temperature"):
        return effects(FINE) if certain else effects(FINE, DRAWN)
    return effects(COARSE) if limits == "masked" else effects(COARSE, LIMITED)
