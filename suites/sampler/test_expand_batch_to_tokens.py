"""expand_batch_to_tokens: what every implementation must do (contract EXP)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.judge import OpUnderTest

DTYPES = ["float32", "int32", "int64", "bool"]


def reach(params: Mapping[str, Any]) -> str | None:
    """Callers expand float32 temperatures and top-p and int32 top-k; the other dtypes are contract only."""
    if params.get("dtype") in ("float32", "int32"):
        return "temperature and top-p (float32) and top-k (int32) of every batch that is not all greedy are expanded"
    return None


def values(rng: np.random.Generator, dtype: str, b: int) -> np.ndarray[Any, Any]:
    """Values that a conversion would show: fractions in floats, beyond 2^24 in integers."""
    if dtype == "float32":
        return rng.choice([0.0, 0.25, 0.7, 1.0, 1.5], size=b).astype(np.float32)
    if dtype == "bool":
        return rng.random(b) < 0.5
    return rng.integers(-(2**31), 2**31 - 1, size=b, dtype=np.int64)


def arguments(
    input_: np.ndarray[Any, Any], counts: np.ndarray[Any, Any], replace: tuple[float, float] = (0, 0)
) -> dict[str, Any]:
    return {
        "input_ptr": input_,
        "cu_num_tokens_ptr": np.cumsum(counts),
        "replace_from": replace[0],
        "replace_to": replace[1],
        "MAX_NUM_TOKENS": 128,
    }


def check(op: OpUnderTest, dtype: str, args: dict[str, Any], counts: np.ndarray[Any, Any], **options: Any) -> None:
    dtypes = {"input_ptr": dtype, "output_ptr": dtype, **options.pop("dtypes", {})}
    op.agrees(args, dtypes=dtypes, shapes={"output_ptr": (int(counts.sum()),)}, **options)


@case("EXP-1", b=[1, 3, 64, 257], dtype=DTYPES, reach=reach)
def test_each_token_receives_the_value_of_its_request(op: OpUnderTest, seed: int, b: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 9, size=b)
    check(op, dtype, arguments(values(rng, dtype, b), counts), counts)


@case("EXP-2", dtype=DTYPES, cu=["int32", "int64"], reach=reach)
def test_the_buffer_itself_is_written(op: OpUnderTest, dtype: str, cu: str) -> None:
    counts = np.array([2, 1, 2])
    input_ = np.array([1, 0, 1], dtype=bool) if dtype == "bool" else np.array([3, 5, 7])
    check(op, dtype, arguments(input_, counts), counts, dtypes={"cu_num_tokens_ptr": cu})
