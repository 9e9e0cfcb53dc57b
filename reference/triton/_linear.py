"""Projections of float32 rows, with the norm before them and the gate or the sum after them in one kernel.

Few rows wait for the weights. Their kernel multiplies in float32 and keeps many loads of weights under way.

More rows go through tensor cores, as three products of TF32 each ("tf32x3"). Their sum is about as exact as float32. A
program splits the width into parts, whose sums do not wait for each other. Many rows keep tensor cores busy without
parts.

The bounds between kernels and the tiles are the fastest of those that were timed on an H100. The matrices were those of
the fixtures and of a Llama with 1.2 billion weights.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ._overlap import after_launches_before, overlapping

_FEW = 4
"""Rows up to which weights of any size are multiplied in float32."""
_FEW_OF_SMALL = 8
"""The same for small weights."""
_SMALL = 512 * 512
"""Entries of small weights."""
_PROGRAMS = 256
"""Programs that suffice for an H100 with its 132 multiprocessors; more have larger tiles instead."""
_WIDE = 4096
"""Outputs from which many rows fill tensor cores without parts."""


def linear(
    x: Any,
    weight: Any,
    bias: Any | None,
    out: Any,
    norm: Any | None = None,
    epsilon: float = 0.0,
    residual: Any | None = None,
    is_gated: bool = False,
) -> None:
    """Write a projection of `x` to `out`.

    Args:
        x: [T, K].
        weight: [N, K]; [2 * N, K] for a gated projection, the gate's rows first.
        bias: [N] or [2 * N]; None without it.
        out: [T, N].
        norm: [K] weight of an RMS norm of the rows of `x`; None for the rows as they are.
        epsilon: epsilon of the norm.
        residual: [T, N], added to the projection; None without it.
        is_gated: True for silu(gate) * up of the two halves of the projection.
    """
    (rows, outputs), width = out.shape, x.shape[1]
    if rows == 0:  # a step whose rows need no logits; no tile has so few
        return
    arguments = (
        x,
        weight,
        weight if bias is None else bias,
        weight if norm is None else norm,
        epsilon,
        out if residual is None else residual,
        out,
        rows,
        outputs,
        width,
    )
    options = overlapping(x) | {
        "NORM": norm is not None,
        "BIAS": bias is not None,
        "GATED": is_gated,
        "RESIDUAL": residual is not None,
    }
    if rows <= _FEW or (rows <= _FEW_OF_SMALL and outputs * width <= _SMALL):
        tile_outputs, tile_width, warps = few_rows_tile(width, is_gated)
        _few_rows_kernel[(triton.cdiv(outputs, tile_outputs),)](
            *arguments,
            **options,
            ROWS=triton.next_power_of_2(rows),
            OUTPUTS=tile_outputs,
            WIDTH=tile_width,
            num_warps=warps,
        )
    elif rows <= 32 or (rows <= 128 and outputs < _WIDE):
        tile_rows, parts = 16, 4
        tile_outputs = split_outputs(outputs, triton.cdiv(rows, tile_rows))
        _split_kernel[(triton.cdiv(outputs, tile_outputs), triton.cdiv(rows, tile_rows))](
            *arguments,
            **options,
            ROWS=tile_rows,
            OUTPUTS=tile_outputs,
            WIDTH=32,
            PARTS=parts,
            num_warps=parts,
            num_stages=3,
        )
    else:
        tile_rows, tile_outputs, tile_width, warps, stages = many_rows_tile(rows, outputs)
        _many_rows_kernel[(triton.cdiv(outputs, tile_outputs), triton.cdiv(rows, tile_rows))](
            *arguments,
            **options,
            ROWS=tile_rows,
            OUTPUTS=tile_outputs,
            WIDTH=tile_width,
            num_warps=warps,
            num_stages=stages,
        )


def few_rows_tile(width: int, is_gated: bool) -> tuple[int, int, int]:
    """Return a tile's outputs and width, and the warps of its program."""
    if width < 512:
        return 2, 256, 2
    return (2 if is_gated else 4), 512, 4


def split_outputs(outputs: int, row_tiles: int) -> int:
    """Return a tile's outputs: few of them, unless there are programs enough."""
    for tile_outputs in (8, 16):
        if row_tiles * triton.cdiv(outputs, tile_outputs) <= _PROGRAMS:
            return tile_outputs
    return 32


def many_rows_tile(rows: int, outputs: int) -> tuple[int, int, int, int, int]:
    """Return a tile's rows, outputs and width, and the warps and stages of its program."""
    if rows > 1024:
        return 128, 64, 32, 8, 3
    if outputs >= 1024:
        return 64, 64, 32, 4, 3
    return 16, 32, 64, 2, 3


@triton.jit
def _few_rows_kernel(
    x,
    weight,
    bias,
    norm,
    epsilon,
    residual,
    out,
    rows,
    outputs,
    width,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
    GATED: tl.constexpr,
    RESIDUAL: tl.constexpr,
    OVERLAPS: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    after_launches_before(OVERLAPS)
    row, output = tl.arange(0, ROWS), tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    is_row, is_output = row < rows, output < outputs
    # Every thread sums its own part of the width: threads exchange sums once, at the end.
    sums = tl.zeros((ROWS, OUTPUTS, WIDTH), tl.float32)
    ups = sums
    squares = tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(0, width, WIDTH):
        place = first + tl.arange(0, WIDTH)
        is_place = place < width
        values = tl.load(x + row[:, None] * width + place[None, :], mask=is_row[:, None] & is_place[None, :], other=0.0)
        if NORM:
            squares += values * values
            values *= tl.load(norm + place, mask=is_place, other=0.0)[None, :]
        address = weight + output.to(tl.int64)[:, None] * width + place[None, :]
        mask = is_output[:, None] & is_place[None, :]
        sums += values[:, None, :] * tl.load(address, mask=mask, other=0.0)[None, :, :]
        if GATED:
            address = weight + (outputs + output).to(tl.int64)[:, None] * width + place[None, :]
            ups += values[:, None, :] * tl.load(address, mask=mask, other=0.0)[None, :, :]
    _finish(
        tl.sum(sums, axis=2),
        tl.sum(ups, axis=2),
        tl.sum(squares, axis=1),
        row,
        output,
        bias,
        epsilon,
        residual,
        out,
        rows,
        outputs,
        width,
        NORM,
        BIAS,
        GATED,
        RESIDUAL,
    )


@triton.jit
def _split_kernel(
    x,
    weight,
    bias,
    norm,
    epsilon,
    residual,
    out,
    rows,
    outputs,
    width,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
    GATED: tl.constexpr,
    RESIDUAL: tl.constexpr,
    OVERLAPS: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
):
    after_launches_before(OVERLAPS)
    row = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    is_row, is_output = row < rows, output < outputs
    sums = tl.zeros((PARTS, ROWS, OUTPUTS), tl.float32)
    ups = sums
    squares = tl.zeros((PARTS, ROWS), tl.float32)
    lane = tl.arange(0, PARTS)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    for first in range(0, width, PARTS * WIDTH):
        place = first + lane
        is_place = place < width
        values = tl.load(
            x + row[None, :, None] * width + place[:, None, :],
            mask=is_row[None, :, None] & is_place[:, None, :],
            other=0.0,
        )
        if NORM:
            squares += tl.sum(values * values, axis=2)
            values *= tl.load(norm + place, mask=is_place, other=0.0)[:, None, :]
        address = weight + output.to(tl.int64)[None, None, :] * width + place[:, :, None]
        mask = is_output[None, None, :] & is_place[:, :, None]
        sums = tl.dot(values, tl.load(address, mask=mask, other=0.0), sums, input_precision="tf32x3")
        if GATED:
            address = weight + (outputs + output).to(tl.int64)[None, None, :] * width + place[:, :, None]
            ups = tl.dot(values, tl.load(address, mask=mask, other=0.0), ups, input_precision="tf32x3")
    _finish(
        tl.sum(sums, axis=0),
        tl.sum(ups, axis=0),
        tl.sum(squares, axis=0),
        row,
        output,
        bias,
        epsilon,
        residual,
        out,
        rows,
        outputs,
        width,
        NORM,
        BIAS,
        GATED,
        RESIDUAL,
    )


@triton.jit
def _many_rows_kernel(
    x,
    weight,
    bias,
    norm,
    epsilon,
    residual,
    out,
    rows,
    outputs,
    width,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
    GATED: tl.constexpr,
    RESIDUAL: tl.constexpr,
    OVERLAPS: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    after_launches_before(OVERLAPS)
    row = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    is_row, is_output = row < rows, output < outputs
    sums = tl.zeros((ROWS, OUTPUTS), tl.float32)
    ups = sums
    squares = tl.zeros((ROWS,), tl.float32)
    for first in range(0, width, WIDTH):
        place = first + tl.arange(0, WIDTH)
        is_place = place < width
        values = tl.load(x + row[:, None] * width + place[None, :], mask=is_row[:, None] & is_place[None, :], other=0.0)
        if NORM:
            squares += tl.sum(values * values, axis=1)
            values *= tl.load(norm + place, mask=is_place, other=0.0)[None, :]
        address = weight + output.to(tl.int64)[None, :] * width + place[:, None]
        mask = is_output[None, :] & is_place[:, None]
        sums = tl.dot(values, tl.load(address, mask=mask, other=0.0), sums, input_precision="tf32x3")
        if GATED:
            address = weight + (outputs + output).to(tl.int64)[None, :] * width + place[:, None]
            ups = tl.dot(values, tl.load(address, mask=mask, other=0.0), ups, input_precision="tf32x3")
    _finish(
        sums, ups, squares, row, output, bias, epsilon, residual, out, rows, outputs, width, NORM, BIAS, GATED, RESIDUAL
    )


@triton.jit
def _finish(
    sums,
    ups,
    squares,
    row,
    output,
    bias,
    epsilon,
    residual,
    out,
    rows,
    outputs,
    width,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
    GATED: tl.constexpr,
    RESIDUAL: tl.constexpr,
):
    """Apply to the sums of a tile what follows a product, and store them."""
    is_row, is_output = row < rows, output < outputs
    if NORM:
        scale = (1.0 / tl.sqrt(squares / width + epsilon))[:, None]
        sums *= scale
        ups *= scale
    if BIAS:
        sums += tl.load(bias + output, mask=is_output, other=0.0)[None, :]
    if GATED:
        if BIAS:
            ups += tl.load(bias + outputs + output, mask=is_output, other=0.0)[None, :]
        sums = sums / (1.0 + tl.exp(-sums)) * ups
    place = row[:, None] * outputs + output[None, :]
    mask = is_row[:, None] & is_output[None, :]
    if RESIDUAL:
        sums += tl.load(residual + place, mask=mask, other=0.0)
    tl.store(out + place, sums, mask=mask)
