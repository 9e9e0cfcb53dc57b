"""Traits that the failing calls of a cause share: places of wrong elements, and a mistake that gives them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from verispec.errors import without_remark
from verispec.run.record import AGREEING, ALTERNATIVELY, AS_IF, PARTLY, TRAITS, Record

EXPLAINED = f"all outputs are {AS_IF}"
"""Words before mistakes that give all outputs of a call."""
BOUND = re.compile(r" is (below (0\.|1e-)|above (0\.|1\b))")
"""Words for floats that are small, or near 1: they tell the mistake beside one that has the same effect there."""
FEWEST = 3
"""Cases below which a trait that they share may be chance."""
EVIDENCE = 5.0
"""Least evidence, in powers of ten, that all wrong elements do not lie in one kind of rows by chance.

A call has about 400 kinds, so that one in 250 causes names a kind by chance at most."""
MOST = 2
"""Mistakes that explain a cause equally well, above which the report names none."""


def told_together(headline: Record, group: Sequence[Record], failing: Sequence[Record]) -> str:
    """Return the message of a cause's case, with the traits that all calls share in its last parentheses.

    Args:
        headline: the case.
        group: all cases of the cause.
        failing: all failing cases of the op; those with the same wrong output count where a cause has few cases.
    """
    message = headline.message
    begin, end = without_remark(message)
    same = [r for r in failing if r.failure.get("output") == headline.failure.get("output")]
    places = shared_places(group) or (shared_places(same) if all(r in same for r in group) else "")
    mistake = shared_mistake(group)
    said = [text for text in end.split("; ") if text and text not in places]
    if mistake and mistake.partition(AS_IF)[2] in message:
        mistake = ""
    elif mistake:  # that of one call is not the fault of all
        said = [text for text in said if AS_IF not in text]
    said = [text for text in said if AS_IF not in text or _is_usual(text.partition(AS_IF)[2], group)]
    if not any(text.startswith(EXPLAINED) for text in said) or BOUND.search(places):
        said += [places]
    said = [text for text in [*said, mistake] if text]
    return f"{begin} ({'; '.join(said)})" if said else message


def _is_usual(words: str, group: Sequence[Record]) -> bool:
    """Return False if the mistakes of one call disagree with most of the others that were tried."""
    found = [r.failure["details"][AGREEING] for r in group if AGREEING in r.failure.get("details", {})]
    each = words.split(ALTERNATIVELY)
    return len(found) < FEWEST or 2 * sum(any(one in agreeing for one in each) for agreeing in found) >= len(found)


def shared_places(group: Sequence[Record]) -> str:
    """Return the kind of rows in which all wrong elements of all cases lie; empty if there is none.

    One case seldom has enough rows to tell that from chance. Of several kinds take the one of which the most is wrong,
    then the least likely one by chance.
    """
    found = [r.failure["details"][TRAITS] for r in group if r.failure.get("details", {}).get(TRAITS)]
    if len(found) < FEWEST:
        return ""
    common = [text for text in found[0] if all(text in traits for traits in found)]
    evidence, precision = ({text: sum(traits[text][i] for traits in found) for text in common} for i in (0, 1))
    likely = [text for text in common if evidence[text] >= EVIDENCE]
    best = max(likely, key=lambda text: (round(precision[text] / len(found), 1), evidence[text]), default="")
    return best and f"{best} in all {len(found)} calls that tell"


def shared_mistake(group: Sequence[Record]) -> str:
    """Return the mistakes that give all outputs of the most cases, of nine in ten at least; empty if there is none.

    A mistake that is made in some requests alone gives the wrong elements alone.
    """
    details = [r.failure["details"] for r in group if AGREEING in r.failure.get("details", {})]
    whole = [detail[AGREEING] for detail in details]
    partly = [[*detail[AGREEING], *detail[PARTLY]] for detail in details]
    return _shared(whole, "all outputs are") or _shared(partly, "the wrong values are")


def _shared(found: Sequence[Sequence[str]], outputs: str) -> str:
    counts = Counter(words for agreeing in found for words in agreeing)
    most = max(counts.values(), default=0)
    best = [words for words, count in counts.items() if count == most]
    if most < FEWEST or 10 * most < 9 * len(found) or len(best) > MOST:
        return ""
    return f"in {most} of {len(found)} calls {outputs} as if {ALTERNATIVELY.join(best)}"
