"""Strict JSON, one value a line: the form of the event log and of results files."""

from __future__ import annotations

import json
import math
from typing import Any


def to_line(value: Any) -> str:
    """Return `value` as one line of strict JSON; NaN, infinities and values without a JSON form become text."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):  # a lone surrogate (undecodable output of an engine) has no UTF-8 form
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value if isinstance(value, (int, float, bool, type(None))) else _plain(str(value))
