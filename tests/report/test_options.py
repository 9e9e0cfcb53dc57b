"""The table of options says what a probe saw."""

from __future__ import annotations

from verispec.report.options import as_json, as_text, option_rows
from verispec.run.record import Record

RECORDS = [
    Record("e2e/options:GEN-37:option=seed", "pass"),
    Record("e2e/options:GEN-37:option=dtype", "unsupported", reason="float32 only"),
    Record("e2e/options:GEN-37:option=block", "fail", failure={"message": "accepted as standard"}),
    Record("e2e/options:GEN-37:option=max_num_seqs", "inconclusive", reason="tokens come at the end"),
    Record("e2e/options:GEN-37:option=method", "crash", reason="signal 11"),
]


def test_each_outcome_has_its_word() -> None:
    answers = {row.option: (row.answer, row.seen) for row in option_rows(RECORDS)}
    assert answers == {
        "block": ("not honoured", "accepted as standard"),
        "dtype": ("refused", "float32 only"),
        "max_num_seqs": ("not visible", "tokens come at the end"),
        "method": ("crash", "signal 11"),
        "seed": ("honoured", ""),
    }


def test_the_table_has_a_line_an_option() -> None:
    rows = option_rows(RECORDS)
    text = as_text("vllm", rows)
    assert text.splitlines()[1] == "block         not honoured  accepted as standard"
    assert len(text.splitlines()) == 1 + len(RECORDS)
    assert [row["option"] for row in as_json("vllm", rows)["options"]] == [row.option for row in rows]
