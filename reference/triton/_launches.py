"""Launches that are repeated without Triton's binder, which takes 20 to 60 us of the host's time per launch.

`launch` starts a kernel as `kernel[grid](...)` does. A call of an op whose launches were recorded can be repeated for
other tensors of the same layout: all that Triton specialises a kernel for is then the same. A dtype, the alignment of
an address, whether a number is 1 or a multiple of 16 and its width follow from the layout, as the grid does. Only the
addresses of the call's tensors differ, and Triton's launchers take them as numbers.

A call is repeatable if it ran no torch op and its kernels got no tensors but the call's and scratch that outlives it.
Settings of Triton that are changed after the record do not apply to repeated calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode


class _TorchOps(TorchDispatchMode):  # type: ignore[misc]
    """Counts the torch ops that run inside."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: torch would import its compiler at the first op, which takes a second or more."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


class LaunchRecord:
    """Launches of one call of an op.

    Attributes:
        launches: compiled kernel, grid and all arguments of each launch.
        ops: torch ops that ran.
        on_failure: called if a repeated launch fails.
    """

    def __init__(self) -> None:
        self.launches: list[tuple[Any, tuple[int, ...], list[Any]]] = []
        self.ops = 0
        self.on_failure: Callable[[], None] = lambda: None


_active = threading.local()


UNFUSED = {"enable_fp_fusion": False}
"""Option of kernels that sum products over the lanes of a warp.

Lanes exchange partial sums and add them. If the compiler fuses a lane's product into that addition, it rounds once and
the other lane's product twice, so that lanes hold different sums (triton#7264): which of them is stored is left to
chance, and lanes may take different branches.
"""


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
    """Launch `kernel[grid](*args, **options)` without fused products and record it if a call is being recorded."""
    compiled = kernel[grid](*args, **options, **UNFUSED)
    record = current_record()
    if record is not None:
        named = [options[name] for name in kernel.arg_names[len(args) :] if name in options]
        record.launches.append((compiled, (*grid, 1, 1)[:3], [*args, *named]))


def repeats_on(device: str) -> bool:
    """Return True if launches on a type of device can be repeated; the interpreter's cannot."""
    return device == "cuda"


def current_record() -> LaunchRecord | None:
    """Return the record of the call that runs in this thread."""
    return getattr(_active, "record", None)


@contextmanager
def recorded() -> Iterator[LaunchRecord]:
    """Record the launches of a call in this thread."""
    record = LaunchRecord()
    before, _active.record = current_record(), record
    try:
        with _TorchOps() as ops:
            yield record
        record.ops = ops.count
    finally:
        _active.record = before


def repeatable(record: LaunchRecord, arguments: Sequence[Any]) -> Repeated | None:
    """Return the launches of a record for other tensors of the same layout; None if the call must run as it did.

    Args:
        record: launches of a call.
        arguments: the call's arguments in the order of the addresses of a repeated call, the contract's.
    """
    tensors = {id(v): n for n, v in enumerate(arguments) if isinstance(v, torch.Tensor)}
    is_distinct = len(tensors) == sum(isinstance(v, torch.Tensor) for v in arguments)
    if not record.launches or record.ops or not is_distinct:
        return None
    arguments_of_launches = [value for _, _, args in record.launches for value in args if isinstance(value, tuple)]
    if any(isinstance(part, tuple) for value in arguments_of_launches for part in value):
        return None
    return Repeated(record, tensors, len(arguments))


class Repeated:
    """Repeats the launches of a call for addresses of other tensors."""

    def __init__(self, record: LaunchRecord, tensors: Mapping[int, int], count: int) -> None:
        self._driver = triton.runtime.driver.active
        self._device = self._driver.get_current_device()
        self._on_failure = record.on_failure
        self._scratch: list[torch.Tensor] = []  # kept alive, since its addresses are among the constants
        constants: list[Any] = []

        def place_of(value: Any) -> int:
            if id(value) in tensors:
                return tensors[id(value)]
            if isinstance(value, torch.Tensor):
                self._scratch.append(value)
                value = value.data_ptr()
            constants.append(value)
            return count + len(constants) - 1

        def getter(value: Any) -> Any:
            places = [place_of(part) for part in value] if isinstance(value, tuple) else [place_of(value)]
            # itemgetter of one place returns the value instead of a tuple.
            one = itemgetter(slice(places[0], places[0] + 1))
            return itemgetter(*places) if len(places) > 1 or not isinstance(value, tuple) else one

        self._launches = [
            (compiled[grid], [getter(value) for value in args]) for compiled, grid, args in record.launches
        ]
        self._constants = tuple(constants)

    def __call__(self, addresses: tuple[Any, ...]) -> bool:
        """Launch; return False if this has to be another device's launch."""
        driver = self._driver
        if driver.get_current_device() != self._device:
            return False
        stream = driver.get_current_stream(self._device)
        values = addresses + self._constants
        try:
            for run, getters in self._launches:
                run(*[get(values) for get in getters], stream=stream)
        except BaseException:
            self._on_failure()
            raise
        return True
