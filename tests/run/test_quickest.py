"""The choice of the cases of an older run that fit into a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verispec.run.quickest import quickest
from verispec.run.record import Record

RECORDS = [
    Record("sampler/a:ANY-1:size=large", "pass", 9.0),
    Record("sampler/a:ANY-1:size=small", "fail", 1.0),
    Record("sampler/a:ANY-2", "pass", 4.0),
    Record("sampler/b:ANY-1", "pass", 0.5),
    Record("sampler/b:ANY-1:mode=other", "pass", 0.6),
]


@pytest.mark.parametrize(
    ("seconds", "places", "missing"),
    [
        (100, [0, 1, 2, 3, 4], ()),
        (6.2, [1, 2, 3, 4], ()),
        (5.5, [1, 2, 3], ()),
        (2.2, [1, 3, 4], ("sampler/a:ANY-2",)),
        (0.4, [], ("sampler/a:ANY-1", "sampler/a:ANY-2", "sampler/b:ANY-1")),
    ],
)
def test_each_clause_has_a_case_before_one_has_two(seconds: float, places: list[int], missing: tuple[str, ...]) -> None:
    found = quickest(RECORDS, seconds)
    assert found.cases == tuple(RECORDS[n].id for n in places)
    assert found.missing == missing
    assert found.seconds == pytest.approx(sum(RECORDS[n].seconds for n in places))


@given(st.lists(st.floats(0, 10), max_size=20), st.floats(0.1, 60))
def test_the_time_is_kept(times: list[float], seconds: float) -> None:
    records = [Record(f"sampler/a:ANY-{n % 3}:n={n}", "pass", took) for n, took in enumerate(times)]
    found = quickest(records, seconds)
    assert found.seconds <= seconds
    left = [record for record in records if record.id not in found.cases]
    assert all(found.seconds + record.seconds > seconds for record in left), "what fits runs"
