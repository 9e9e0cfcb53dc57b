"""Records of failing and passing cases, for tests of causes."""

from __future__ import annotations

from typing import Any

from verispec.run.record import Record

OP = "sampler/rejection_random_sample"


def failing(case: str, kind: str = "value", message: str = "wrong", **fields: Any) -> Record:
    failure = {"kind": kind, "message": message, **fields.pop("failure", {})}
    return Record(case, "crash" if kind == "crash" else "fail", failure=failure, **fields)


def passing(*cases: str) -> list[Record]:
    return [Record(case, "pass") for case in cases]
