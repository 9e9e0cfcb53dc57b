"""Launches are repeated for other tensors of the same layout, and only where they may be.

Nothing runs on a device: kernels are compiled for none, and their launches are compared by what a launcher gets.
"""

from __future__ import annotations

import copy
import gc
import importlib
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from op_cases import Size, make
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime import jit

from verispec.reference import triton as ours
from verispec.reference.triton import _fused, _fused_scratch, _launches

FUSED = (
    "_fused",
    "_fused_limits",
    "_fused_scratch",
    "_threshold_gather",
    "_threshold_interval",
    "_threshold_search",
    "_thresholds",
    "verify_greedy",
    "verify_one_hot",
)


class Group(NamedTuple):
    """Arguments that a kernel takes together."""

    tensor: Any
    stride: Any
    missing: Any = None


class Kernel:
    """A kernel that keeps what it is launched with; `compiled[grid]` starts it as Triton's compiled kernels do."""

    arg_names = ("first", "group", "BLOCK", "TILE")

    def __init__(self, fails: bool = False) -> None:
        self.seen: list[Any] = []
        self.fails = fails

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def run(*args: Any, stream: Any = None, **options: Any) -> Kernel:
            if self.fails and stream is not None:
                raise RuntimeError("launch failed")
            self.seen.append((grid, args, stream, options))
            return self

        return run


class Driver:
    """The driver of a machine with one device."""

    device = 0
    stream = "stream"

    def get_current_device(self) -> int:
        return self.device

    def get_current_stream(self, device: int) -> str:
        return f"{self.stream} of {device}"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(_launches.triton.runtime, "driver", type("Drivers", (), {"active": driver}))
    return driver


SCRATCH = torch.zeros(5)


def call(kernel: Kernel, x: torch.Tensor, y: torch.Tensor) -> None:
    _launches.launch(kernel, (7,), x, Group(SCRATCH, 3), 16, TILE=4, num_warps=2)
    _launches.launch(kernel, (2, 9), SCRATCH, Group(y, 1), TILE=8, BLOCK=y.shape[0])


def repeated(kernel: Kernel, arguments: dict[str, Any], function: Callable[..., None] = call) -> Any:
    with _launches.recorded() as record:
        function(kernel, *arguments.values())
    return _launches.repeatable(record, list(arguments.values()))


def test_a_call_is_repeated_for_other_addresses(driver: Driver) -> None:
    kernel = Kernel()
    again = repeated(kernel, {"x": torch.zeros(2), "y": torch.zeros(3)})
    kernel.seen.clear()
    assert again((111, 222)) is True
    scratch = SCRATCH.data_ptr()
    assert kernel.seen == [
        ((7, 1, 1), (111, (scratch, 3, None), 16, 4), "stream of 0", {}),
        ((2, 9, 1), (scratch, (222, 1, None), 3, 8), "stream of 0", {}),
    ]


def test_the_first_launches_are_triton_s_own(driver: Driver) -> None:
    kernel, x, y = Kernel(), torch.zeros(2), torch.zeros(3)
    repeated(kernel, {"x": x, "y": y})
    (grid, args, stream, options), _ = kernel.seen
    assert (grid, stream, options) == ((7,), None, {"TILE": 4, "num_warps": 2, **_launches.UNFUSED})
    assert args[0] is x and args[1].tensor is SCRATCH


def test_a_repeated_call_goes_to_the_stream_of_its_time(driver: Driver) -> None:
    """Callers change streams between calls, as the capture of a graph does."""
    kernel = Kernel()
    again = repeated(kernel, {"x": torch.zeros(2), "y": torch.zeros(3)})
    kernel.seen.clear()
    driver.stream = "other stream"
    assert again((111, 222)) is True
    assert [stream for *_, stream, _ in kernel.seen] == ["other stream of 0"] * 2


def test_another_device_is_left_to_triton(driver: Driver) -> None:
    kernel = Kernel()
    again = repeated(kernel, {"x": torch.zeros(2), "y": torch.zeros(3)})
    kernel.seen.clear()
    driver.device = 1
    assert again((111, 222)) is False and not kernel.seen


def copies(kernel: Kernel, x: torch.Tensor, y: torch.Tensor) -> None:
    call(kernel, x.contiguous(), y)


def fills(kernel: Kernel, x: torch.Tensor, y: torch.Tensor) -> None:
    SCRATCH.zero_()
    call(kernel, x, y)


def allocates(kernel: Kernel, x: torch.Tensor, y: torch.Tensor) -> None:
    call(kernel, torch.empty(2), y)


def nests(kernel: Kernel, x: torch.Tensor, y: torch.Tensor) -> None:
    _launches.launch(kernel, (1,), x, Group(Group(y, 1), 2), 1, TILE=1)


@pytest.mark.parametrize("function", [copies, fills, allocates, nests, lambda *_: None])
def test_a_call_that_does_more_is_not_repeated(function: Any, driver: Driver) -> None:
    """It copies, fills or allocates; its arguments are nested; or it launches by other means."""
    assert repeated(Kernel(), {"x": torch.zeros(4)[::2], "y": torch.zeros(3)}, function) is None


def test_a_call_that_copies_nothing_is_repeated(driver: Driver) -> None:
    """A contiguous tensor is its own contiguous form."""
    assert repeated(Kernel(), {"x": torch.zeros(4), "y": torch.zeros(3)}, copies) is not None


def test_one_tensor_of_two_parameters_is_not_repeated(driver: Driver) -> None:
    """Another call may give two tensors."""
    both = torch.zeros(3)
    assert repeated(Kernel(), {"x": both, "y": both}) is None


def test_a_failed_launch_is_cleaned_up(driver: Driver) -> None:
    cleaned: list[bool] = []
    kernel, x, y = Kernel(fails=True), torch.zeros(2), torch.zeros(3)
    with _launches.recorded() as record:
        record.on_failure = lambda: cleaned.append(True)
        call(kernel, x, y)
    again = _launches.repeatable(record, [x, y])
    assert again is not None
    with pytest.raises(RuntimeError, match="launch failed"):
        again((1, 2))
    assert cleaned == [True]


def test_nothing_is_recorded_outside(driver: Driver) -> None:
    call(Kernel(), torch.zeros(2), torch.zeros(3))
    assert _launches.current_record() is None


@pytest.mark.parametrize("module", FUSED)
def test_fused_kernels_are_launched_here_alone(module: str) -> None:
    """A launch by other means would be missing when the call is repeated."""
    source = Path(_launches.__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    assert not re.search(r"_kernel\[", source)


class Launch(NamedTuple):
    """A launch: how it was started, the kernel with all it was compiled for, the grid and the flat arguments."""

    by: str
    kernel: str
    compiled_for: Any
    grid: tuple[int, ...]
    arguments: list[Any]


class Compiled:
    """The result of Triton's `run`; it starts the kernel as Triton's own class does."""

    def __init__(self, log: list[Launch], kernel: str, compiled_for: Any) -> None:
        self.log, self.kernel, self.compiled_for = log, kernel, compiled_for

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def run(*args: Any, stream: Any) -> None:
            self.log.append(Launch("repeated", self.kernel, self.compiled_for, grid, list(flat(args))))

        return run


def flat(values: Any) -> Iterator[Any]:
    """Leaves of nested arguments, with tensors as addresses."""
    for value in values:
        if isinstance(value, tuple):
            yield from flat(value)
        else:
            yield value.data_ptr() if isinstance(value, torch.Tensor) else value


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> list[Launch]:
    """Launches of the real kernels, bound and specialised by Triton for an H100, and started nowhere."""
    backend = make_backend(GPUTarget("cuda", 90, 32))
    log: list[Launch] = []

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Compiled:
        binder = jit.create_function_from_signature(kernel.signature, kernel.params, backend)
        bound, specialisation, options = binder(*args, **options)
        compiled = Compiled(log, kernel.fn.__name__, (specialisation, sorted(options.items())))
        started = Launch(
            "Triton", compiled.kernel, compiled.compiled_for, (*grid, 1, 1)[:3], list(flat(bound.values()))
        )
        log.append(started)
        return compiled

    monkeypatch.setattr(jit.JITFunction, "run", run)
    monkeypatch.setattr(_launches, "repeats_on", lambda _: True)
    monkeypatch.setattr(_fused_scratch, "_kept", {})
    ours.op.cache_clear()
    return log


def fused_call(op: str, variant: str = "plain", size: Size | None = None) -> dict[str, Any]:
    values = make(op, variant, size or Size(400, requests=2)).arguments
    return {n: torch.from_numpy(v.copy()) if isinstance(v, np.ndarray) else v for n, v in values.items()}


def launches(log: list[Launch], function: Callable[..., None], call: dict[str, Any]) -> list[Launch]:
    log.clear()
    function(**call)
    return list(log)


FUSED_OPS = ("verify_greedy", "verify_one_hot", "verify_draft_logits")


@pytest.mark.parametrize(
    ("op", "kind", "number"),
    [
        *((op, "one launch", 1) for op in FUSED_OPS),
        *((op, "two launches", 2) for op in FUSED_OPS),
        *((op, "limits", 5) for op in FUSED_OPS[1:]),
    ],
)
@pytest.mark.parametrize("size", [Size(400, requests=2), Size(400, requests=4), Size(9001, requests=3, drafts=1)])
def test_a_fused_op_repeats_what_triton_would_launch(
    op: str, kind: str, number: int, size: Size, log: list[Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels, all that they are compiled for, grids and every argument are those of Triton's own launch."""
    monkeypatch.setattr(_fused, "SKIP_BYTES", (0, 0, 0) if kind == "two launches" else _fused.SKIP_BYTES)
    function, first = ours.op(op), fused_call(op, "limits" if kind == "limits" else "plain", size)
    first = dict(sorted(first.items()))  # callers name parameters in any order
    for _ in range(2):
        assert {launch.by for launch in launches(log, function, first)} == {"Triton"}
    for turn in range(3):
        call = copy.deepcopy(first)
        if turn:
            call = dict(sorted(call.items(), key=lambda item: item[0][::-1], reverse=turn == 1))
        found = launches(log, function, call)
        wanted = launches(log, getattr(importlib.import_module(f"{ours.__name__}.{op}"), op), call)
        assert {launch.by for launch in found} == {"repeated"}
        assert [launch[1:] for launch in found] == [launch[1:] for launch in wanted]
        assert len(found) == number


@pytest.mark.parametrize("op", FUSED_OPS)
def test_a_fused_op_is_launched_anew_for_another_layout(op: str, log: list[Launch]) -> None:
    """Also where Triton compiles another kernel for the alignment of one address alone."""
    function, first = ours.op(op), fused_call(op)
    for _ in range(3):
        function(**first)
    for name, value in first.items():
        if isinstance(value, torch.Tensor):
            memory = torch.zeros(value.numel() + 1, dtype=value.dtype)
            moved = first | {name: memory[1:].view(value.shape).copy_(value)}
            assert moved[name].data_ptr() % 16
            assert {launch.by for launch in launches(log, function, moved)} == {"Triton"}
    assert {launch.by for launch in launches(log, function, first)} == {"repeated"}


def test_what_is_copied_is_copied_in_every_call(log: list[Launch]) -> None:
    call = fused_call("verify_one_hot")
    call["pos"] = torch.stack([call["pos"]] * 2, 1)[:, 0]
    for _ in range(4):
        assert {launch.by for launch in launches(log, ours.op("verify_one_hot"), call)} == {"Triton"}


def test_a_known_layout_keeps_no_tensor_of_a_caller(log: list[Launch]) -> None:
    call = fused_call("verify_one_hot")
    for _ in range(3):
        ours.op("verify_one_hot")(**call)
    logits = weakref.ref(call.pop("target_logits"))
    log.clear()
    gc.collect()
    assert logits() is None


def test_a_recorded_torch_op_does_not_import_torch_s_compiler() -> None:
    """The import takes a second or more, in the first call of every process that has an op with scratch."""
    code = """
import sys, torch
from verispec.reference.triton._launches import recorded
with recorded() as record:
    torch.empty(3)
assert record.ops == 1
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
