"""The error budget: shares sum to at most 1, and as many cases spend them as declared."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import verispec.suites
from verispec.cases import CaseSpec
from verispec.errors import VerispecError
from verispec.judge.statistics import assert_distribution
from verispec.judge.statistics.budget import (
    LEVEL,
    P_VALUES,
    SHARES,
    allow_p_values,
    merged,
    p_value_level,
    weight_of,
)


def specs() -> Iterator[CaseSpec]:
    """Specs of all tests of all suites."""
    for found in pkgutil.walk_packages(verispec.suites.__path__, "verispec.suites."):
        if found.name.rpartition(".")[2].startswith("test_"):
            for test in vars(importlib.import_module(found.name)).values():
                if isinstance(spec := getattr(test, "__verispec_case__", None), CaseSpec):
                    yield spec


def test_p_values_are_counted_from_the_suites() -> None:
    assert sum(spec.p_values * len(list(spec.combinations())) for spec in specs()) == P_VALUES.cases


def test_a_case_uses_no_more_p_values_than_it_declares() -> None:
    level = p_value_level()
    assert math.isclose(level * P_VALUES.cases, LEVEL * P_VALUES.part)
    with allow_p_values(1):
        assert_distribution([500, 500], [0.5, 0.5], "coins")
        with pytest.raises(VerispecError, match="more p-values than it declares"):
            assert_distribution([500, 500], [0.5, 0.5], "coins")
    assert p_value_level() == level


def statistical_tests() -> Iterator[tuple[str, Any]]:
    """Suite, subject and clause of every test that takes a `trial`, with its case spec."""
    for found in pkgutil.walk_packages(verispec.suites.__path__, "verispec.suites."):
        stem = found.name.rpartition(".")[2]
        if not stem.startswith("test_"):
            continue
        for test in vars(importlib.import_module(found.name)).values():
            spec = getattr(test, "__verispec_case__", None)
            if spec is not None and "trial" in inspect.signature(test).parameters:
                suite = found.name.split(".")[2]
                yield f"{suite}/{stem.removeprefix('test_')}:{spec.clause}", spec


def test_every_statistical_case_has_its_share() -> None:
    cases: Counter[str] = Counter()
    for clause, spec in statistical_tests():
        if not clause.endswith(":WS-9"):  # A coupling decides exactly.
            cases[clause] += len(list(spec.combinations()))
    assert cases == {clause: share.cases for clause, share in SHARES.items()}


def test_shares_sum_to_one() -> None:
    assert math.isclose(sum(share.part for share in (*SHARES.values(), P_VALUES)), 1.0)


def test_weights_are_equal_parts_of_a_share() -> None:
    share = SHARES["sampler/whole_sampler:WS-14"]
    assert weight_of("sampler/whole_sampler:WS-14:mode=law;size=large") == share.part / share.cases


def test_a_clause_without_a_share_is_an_error() -> None:
    with pytest.raises(VerispecError, match="without a share"):
        weight_of("sampler/whole_sampler:WS-1:mode=law")


def test_merged_evidence_is_the_weighted_mean() -> None:
    assert math.isclose(merged([(0.25, math.log(8.0)), (0.5, math.log(2.0))]), math.log(3.0))
    assert merged([(0.5, math.inf), (0.5, 0.0)]) == math.inf
    assert merged([]) == -math.inf


def test_the_budget_of_statistical_tests_is_read_without_torch() -> None:
    """Every report adds evidence up by it, and importing torch would double the time of a short run."""
    code = "import sys; from verispec.judge.statistics.budget import merged; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
