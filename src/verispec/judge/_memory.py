"""Tensors with poisoned contents, guard bands on both sides, and the layout that a case asks for.

Every tensor is a view into a larger buffer. The rest of the buffer, bands on both sides and gaps between strided
elements, is the guard. No call may change it. Two patterns fill the guard and the outputs with different values. A
result that depends on either therefore differs between pattern 0 and pattern 1.
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch

from verispec.judge._poison_rng import poison_rng

BAND = 64
"""Guard elements before and after each tensor. A kernel typically misses by one element or one short row."""

LAYOUTS = ("dense", "gapped", "padded", "transposed")
"""dense: contiguous; gapped: every second or third element; padded: a gap after each row; transposed: column major."""
STRIDED = LAYOUTS[1:]
"""Those that a kernel reads wrong if it ignores strides."""
SHIFTED = "shifted"
"""Contiguous, but one element past a multiple of any vector's width, as a view of a larger tensor is."""

_INT_POISON = -7_777


def _poison(count: int, dtype: torch.dtype, pattern: int) -> torch.Tensor:
    """Return `count` values of a poison pattern.

    Pattern 0 is what no op could mean: NaN, a negative id. Pattern 1 is what memory really holds. So pattern 1 is drawn
    anew for every tensor: an engine that looks for poison, and behaves only then, finds none.
    """
    if dtype == torch.bool:
        return torch.full((count,), bool(pattern))
    if pattern == 0:
        value: float = 0x5A if dtype == torch.uint8 else float("nan") if dtype.is_floating_point else _INT_POISON
        return torch.full((count,), value, dtype=dtype)
    if dtype.is_floating_point:
        return torch.from_numpy(poison_rng.random(count, dtype=np.float32)).to(dtype)
    return torch.from_numpy(poison_rng.integers(0, 90, count, dtype=np.uint8)).to(dtype)


def is_mark(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a mask of the elements that hold the mark of an unwritten output: NaN, or an id that no op writes."""
    mark: np.ndarray[Any, Any] = np.isnan(values) if values.dtype.kind == "f" else values == _INT_POISON
    return mark


def _strides(shape: Sequence[int], layout: str) -> list[int]:
    """Return strides in elements under which no two elements share memory."""
    order = list(range(len(shape)))
    if layout != "transposed":
        order.reverse()
    strides = [0] * len(shape)
    # Both, by shape: a kernel may take one of them for another layout.
    step = 2 + math.prod(shape) % 2 if layout == "gapped" else 1
    for n, axis in enumerate(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
        if layout == "padded" and n == 0:
            step += 5
    return strides


_ON_LINUX = 0x4000 if sys.platform == "linux" and platform.machine() in {"x86_64", "aarch64"} else 0
_NORESERVE = getattr(mmap, "MAP_NORESERVE", _ON_LINUX)
"""Python 3.11 does not name this flag, without which Linux refuses a mapping larger than its memory."""


def sparse_zeros(rows: int, columns: int, dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    """Return zeros of shape [rows, columns] for tests of offsets past 2^31.

    The CPU reserves no memory for pages that are never written. A GPU allocates the whole tensor.

    Args:
        rows: number of rows.
        columns: number of columns.
        dtype: element type.
        device: "cpu" or a CUDA device.
    """
    if device != "cpu":
        return torch.zeros((rows, columns), dtype=dtype, device=device)
    size = rows * columns * torch.empty(0, dtype=dtype).element_size()
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    return torch.frombuffer(mmap.mmap(-1, size, flags=flags), dtype=dtype).view(rows, columns)


PAST = 2**31
"""Elements that an offset of 32 bits cannot count."""


def wide(tensor: torch.Tensor, axis: int, span: int) -> torch.Tensor:
    """Return a copy whose last element along `axis` lies more than `span` elements after the first.

    An offset that 32 bits cut is negative. Where there is enough memory, some lies before the copy too. Such an offset
    then shows as a wrong value instead of the end of the process.

    Args:
        tensor: two elements along `axis` at least.
        axis: axis that gets the wide stride; the other axes are dense.
        span: elements.
    """
    others = [n for i, n in enumerate(tensor.shape) if i != axis]
    strides = _strides(others, "dense")
    stride = max(span // (tensor.shape[axis] - 1) + 1, math.prod(others))
    strides.insert(axis, stride)
    size = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, strides, strict=True))
    memory, before = _memory_before(size, tensor)
    return torch.as_strided(memory, tensor.shape, strides, before).copy_(tensor)


def _memory_before(size: int, like: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return memory for `size` elements and for those that a cut offset reaches, and the number of the latter.

    That number is 0 for up to 2^31 elements, and if both would take more than a quarter of a GPU's free memory.
    """
    before = PAST if size > PAST else 0
    if like.device.type == "cpu":
        with suppress(OSError):
            return sparse_zeros(1, before + size, like.dtype), before
        return sparse_zeros(1, size, like.dtype), 0
    is_cuda = like.device.type == "cuda"
    if not is_cuda or 4 * (before + size) * like.element_size() > torch.cuda.mem_get_info(like.device)[0]:
        before = 0
    return torch.empty((1, before + size), dtype=like.dtype, device=like.device), before


@contextmanager
def read_only(buffer: torch.Tensor, view: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield a copy of a tensor in pages that the process may only read.

    Args:
        buffer: dense storage of the tensor, with its guard bands.
        view: the tensor, whose strides the copy keeps.

    Raises:
        OSError: the system does not protect the pages.
    """
    size = max(buffer.numel() * buffer.element_size(), 1)
    pages = mmap.mmap(-1, size)
    copied = torch.frombuffer(pages, dtype=buffer.dtype, count=buffer.numel())
    copied.copy_(buffer)
    address = ctypes.c_void_p(copied.data_ptr())
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    if protect(address, ctypes.c_size_t(size), mmap.PROT_READ):
        raise OSError(ctypes.get_errno(), "mprotect")
    try:
        yield torch.as_strided(copied, view.shape, view.stride(), view.storage_offset())
    finally:
        protect(address, ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_WRITE)


def bits(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return the elements of `tensor` as integers of the same width.

    Comparison is then exact, and NaN equals NaN.
    """
    dense = tensor.detach().cpu().contiguous()
    integers: np.ndarray[Any, Any] = dense.view(_WIDTHS[dense.element_size()]).numpy()
    return integers


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a copy of `tensor` for the oracle. bfloat16 becomes float32, which represents it exactly."""
    host = tensor.detach().cpu()
    if host.dtype == torch.bfloat16:
        host = host.float()
    values: np.ndarray[Any, Any] = host.numpy().copy()
    return values


_SMALL = 1 << 16
"""Bytes below which two copies for a comparison of memory take less time than NumPy's call."""
_WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers that hold the bits of an element, by its size in bytes."""


@functools.cache
def _number(dtype: torch.dtype) -> np.dtype[Any] | None:
    """Return NumPy's name of a dtype; None where NumPy has none."""
    try:
        number: np.dtype[Any] = torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError:
        return None
    return number


class GuardedTensor:
    """A tensor (`view`) inside a guarded buffer (`buffer`).

    Args:
        shape: shape of the tensor.
        dtype: element type of the tensor and its guard.
        layout: one of `LAYOUTS`, or `SHIFTED`.
        pattern: 0 or 1, selects the poison value of the guard, and of the tensor if it has no `values`.
        device: "cpu" or a CUDA device.
        values: contents of the tensor, of its shape. With pattern 1 some of them are in its guard too: memory beside a
            tensor often holds its like, and ids that were drawn at random hardly ever equal one of the call's.
        is_cumulative: True if the values are cumulative counts. Behind them the counts of further requests follow, as
            where a batch is a part of larger buffers.

    Raises:
        ValueError: `layout` is unknown.
    """

    __slots__ = ("_before", "_first", "_gaps", "_host", "_shape", "_size", "_strides", "buffer", "view")

    def __init__(
        self,
        shape: Sequence[int],
        dtype: torch.dtype,
        *,
        layout: str = "dense",
        pattern: int = 0,
        device: str = "cpu",
        values: np.ndarray[Any, Any] | None = None,
        is_cumulative: bool = False,
    ) -> None:
        if layout not in (*LAYOUTS, SHIFTED):
            raise ValueError(f"layout {layout!r} is not one of {(*LAYOUTS, SHIFTED)}")
        self._shape, self._size = tuple(shape), math.prod(shape)
        self._first = BAND + (layout == SHIFTED)
        strides = _strides(self._shape, layout)
        self._strides = None if layout in ("dense", SHIFTED) else strides
        span = self._size
        if self._strides and span:
            span = 1 + sum((n - 1) * s for n, s in zip(self._shape, strides, strict=True))
        buffer = torch.empty(self._first + span + BAND, dtype=dtype)
        number = _number(dtype)
        # The bits of the whole buffer as integers, in the same memory: NumPy compares them without calls of torch.
        width = _WIDTHS[buffer.element_size()]
        self._host = buffer.view(width).numpy()
        self._gaps = None
        if span != self._size:
            self._gaps = np.ones(len(self._host), dtype=bool)
            self._inside(self._gaps).fill(False)
        if values is None or not values.size:
            buffer.copy_(_poison(len(buffer), dtype, pattern))
        else:
            if self._gaps is not None and not pattern:
                buffer.copy_(_poison(len(buffer), dtype, pattern))
            inside = self._inside(self._host)
            if number is None:
                inside[...] = torch.as_tensor(values).to(dtype).contiguous().view(width).numpy()
            elif values.dtype == number:
                self._inside(self._host.view(number))[...] = values
            else:
                with np.errstate(over="ignore", invalid="ignore"):
                    self._inside(self._host.view(number))[...] = values
            self._guard(inside, dtype, pattern)
            if pattern and is_cumulative:
                behind = self._host[self._first + len(values) * strides[0] :: strides[0]]
                behind[:] = inside[-1] + poison_rng.integers(1, 3, len(behind)).cumsum()
        self.buffer = buffer if device == "cpu" else buffer.to(device)
        self.view = torch.as_strided(self.buffer, self._shape, strides, self._first)
        self._before = self._host

    def _inside(self, buffer: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the part of an array as long as the buffer that is the tensor's, in its layout."""
        if self._strides is None:
            return buffer[self._first : self._first + self._size].reshape(self._shape)
        size = buffer.itemsize
        return np.ndarray(
            self._shape, buffer.dtype, buffer, self._first * size, [step * size for step in self._strides]
        )

    def _guard(self, inside: np.ndarray[Any, Any], dtype: torch.dtype, pattern: int) -> None:
        """Fill the guard of a tensor that has its values: with poison, or with some of them."""
        if pattern:
            alike = inside.reshape(-1)[poison_rng.integers(0, self._size, len(self._host) - self._size)]
            if self._gaps is not None:
                self._host[self._gaps] = alike
                return
            self._host[: self._first] = alike[: self._first]
            self._host[self._first + self._size :] = alike[self._first :]
        elif self._gaps is None:
            self._host[: self._first] = self._host[self._first + self._size :] = _mark(dtype)

    def fill_as(self, other: GuardedTensor) -> None:
        """Take the contents and the guard of another tensor of this shape, dtype and layout, in the same memory."""
        self._host[:] = other._host
        self.buffer.copy_(other.buffer)

    def seal(self) -> None:
        """Save the whole buffer, just before the call."""
        self._before = self._host.copy()

    def before(self) -> np.ndarray[Any, Any]:
        """Return the tensor as it was just before the call, as `to_numpy` does; the memory is that of the seal."""
        inside = self._inside(self._before)
        if not inside.flags.c_contiguous:
            inside = inside.copy()
        number = _number(self.view.dtype)
        if number is None:
            return to_numpy(torch.from_numpy(inside).view(self.view.dtype))
        return inside.view(number)

    def is_unchanged(self) -> bool:
        """Return True if the call changed neither the tensor nor its guard."""
        return _same_bytes(self._before, self._after())

    def _after(self) -> np.ndarray[Any, Any]:
        """Return the bits of the whole buffer."""
        return self._host if self.buffer.device.type == "cpu" else bits(self.buffer)

    def changed_outside(self) -> int:
        """Return the number of guard elements that the call changed."""
        before, after = self._before, self._after()
        if self._gaps is not None:
            return int(np.count_nonzero((before != after) & self._gaps))
        bands = slice(0, self._first), slice(self._first + self._size, None)
        return sum(
            0 if _same_bytes(before[band], after[band]) else int(np.count_nonzero(before[band] != after[band]))
            for band in bands
        )

    def changed_inside(self) -> bool:
        """Return True if the call changed the tensor itself."""
        return not np.array_equal(self._inside(self._before), self._inside(self._after()))


def _same_bytes(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Return True if two dense arrays of integers are equal; small ones in one comparison of memory."""
    return one.tobytes() == other.tobytes() if one.nbytes < _SMALL else bool((one == other).all())


@functools.cache
def _mark(dtype: torch.dtype) -> Any:
    """Return the bits of an element of the first poison pattern."""
    return bits(_poison(1, dtype, 0))[0]
