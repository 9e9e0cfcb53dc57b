"""The same stem everywhere: an op's contract, oracle, kernels and suite are found by its one name."""

from __future__ import annotations

from pathlib import Path

from verispec.reference import contracts

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "contract": ("reference/contracts", "{}.py"),
    "oracle": ("reference/oracle", "{}.py"),
    "csrc": ("reference/csrc", "{}.cpp"),
    "triton": ("reference/triton", "{}.py"),
    "suite": ("suites", "*/test_{}.py"),
}
WANTED = {
    "flat": ("contract", "oracle", "csrc", "triton", "suite"),
    "request_state": ("contract", "oracle", "csrc", "triton"),
    "fused": ("contract", "oracle", "csrc", "triton", "suite"),
    "shared": ("contract", "oracle"),
}
"""Files that an op of each family has under its name. The shared ops are plain functions or parts of
other kernels; contracts of other families describe end-to-end samplers and engines, which have no stem."""

MODEL_KERNELS = ("decoder_layer", "linear", "paged_attention", "rms_norm")
"""Kernels of the CPU runner's models: they are not ops of speculative decoding, and no suite tests them."""


def present(column: str, op: str) -> bool:
    folder, pattern = FOLDERS[column]
    return any((ROOT / folder).glob(pattern.format(op)))


def test_no_cell_is_missing() -> None:
    rows = [(op, {column: present(column, op) for column in FOLDERS}) for op in contracts.names()]
    table = "\n".join(f"{op:42}" + "".join(f"{c if has else '-':10}" for c, has in cells.items()) for op, cells in rows)
    missing = [(op, c) for op, cells in rows for c in WANTED.get(contracts.load(op).family, ()) if not cells[c]]
    assert not missing, f"missing cells: {missing}\n{table}"


def test_no_file_is_left_over() -> None:
    """No code finds a kernel, an oracle or a header whose name is no op."""
    helpers = {"checked_op", "module", "rows", "__init__", *MODEL_KERNELS}
    stems = {
        (column, path.stem)
        for column in ("oracle", "csrc", "triton")
        for path in (ROOT / FOLDERS[column][0]).glob(FOLDERS[column][1].format("*"))
        if not path.stem.startswith("_") and path.stem not in helpers
    }
    assert {stem for _, stem in stems} <= set(contracts.names()), sorted(stems)
