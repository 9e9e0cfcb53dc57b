"""A call of a known layout skips the check in Python, and no other call does: errors and results stay the same."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from op_cases import Size, make, ops

from verispec.reference import checked_op, contracts, cpu
from verispec.reference.contracts import Scalar
from verispec.reference.contracts._check import ContractError, bind, check
from verispec.reference.contracts._compiled import plan_of
from verispec.reference.contracts._view import view_of
from verispec.reference.extension import extension

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)
NUMBERS = (None, True, False, 0, 1, -1, 0.0, -0.0, 1.0, math.nan, 2**40, 2**70, np.int64(1), "1", ..., [1])
FAST = [op for op in ops() if getattr(extension(), op, None)]
CHECKED_ALWAYS = {op for op in FAST if any(t.within for t in plan_of(contracts.load(op)).counted)}
"""Ops with values that the extension does not look at."""

Call = dict[str, Any]
ALTERED = (
    "verify_draft_logits",
    "expand_batch_to_tokens",
    "sample_recovered_tokens",
    "rejection_random_sample",
    "apply_top_k_top_p",
    "eagle_prepare_inputs_padded",
    "gather_draft_logits_and_target_argmax",
)
"""Ops with counts, scalars, columns, flags, aliases, counts within others and tuning parameters."""


class Subclass(torch.Tensor):
    """A tensor of another type, whose attributes could be anything."""

    def __deepcopy__(self, _: Any) -> torch.Tensor:
        return self.clone().as_subclass(Subclass)


def sound(op: str) -> Call:
    values = make(op, "plain", Size(9, requests=3, drafts=2)).arguments
    return {n: torch.from_numpy(v.copy()) if isinstance(v, np.ndarray) else v for n, v in values.items()}


def outcome(call: Any, values: Call) -> Any:
    """The error of a call, or the bits of all its tensors after it."""
    try:
        call(**values)
    except Exception as error:
        return type(error), str(error)
    return {
        n: v.detach().cpu().contiguous().view(torch.uint8) for n, v in values.items() if isinstance(v, torch.Tensor)
    }


def wanted(op: str, values: Call) -> Any:
    """The outcome by the check in Python and the kernel alone."""
    contract = contracts.load(op)

    def call(**given: Any) -> None:
        seen = check(contract, bind(contract, (), given), "cpu")
        cpu.kernel(op)(*[seen[p.name] for p in contract.params if not getattr(p, "tuning", False)])

    return outcome(call, copy.deepcopy(values))


def assert_same(op: str, values: Call, expected: Any = None, calls: int = 2) -> None:
    """Compare calls: the second may be the first of a known layout."""
    expected = expected or wanted(op, values)
    for _ in range(calls):
        found = outcome(cpu.op(op), copy.deepcopy(values))
        if isinstance(expected, tuple):
            assert found == expected
        else:
            assert not isinstance(found, tuple), found
            assert found.keys() == expected.keys()
            assert all(torch.equal(found[name], expected[name]) for name in found)


def altered_tensor(value: torch.Tensor) -> Iterator[Any]:
    """The tensor with another type, dtype, shape, stride or device."""
    yield from (None, value.tolist(), value.numpy(), value.as_subclass(Subclass), value.to("meta"), value.to_sparse())
    yield from (value.to(dtype) for dtype in DTYPES)
    yield from (value[None], value[..., None], value.reshape(-1)[0])
    for d in range(value.dim()):
        yield torch.cat([value, value.narrow(d, 0, 1)], d) if value.shape[d] else value
        yield value.narrow(d, 0, max(value.shape[d] - 1, 0))
        yield value.narrow(d, 0, 0)
        yield value.narrow(d, 0, 1).expand(value.shape) if value.shape[d] else value
        yield torch.stack([value, value], d + 1).select(d + 1, 0)
    yield value.mT.contiguous().mT if value.dim() > 1 else value
    if value.dtype == torch.float32:
        yield value.clone().requires_grad_()
        yield torch._neg_view(value)


def altered_counts(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """Other values of cumulative counts."""
    yield from (value.flip(0), value - 1, value + 1, value * 1000, -value, torch.full_like(value, 2**31 - 1))
    for i in range(len(value)):
        for change in (-1, 1, 2):
            other = value.clone()
            other[i] += change
            yield other


def sharing(name: str, value: torch.Tensor, others: Call) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Tensors of the same layout in the memory of the others: all of it, or the last element alone."""
    for other, held in others.items():
        if other == name or not isinstance(held, torch.Tensor) or held.dtype != value.dtype or not value.numel():
            continue
        memory = torch.cat([held.reshape(-1), torch.zeros(value.numel(), dtype=value.dtype)])
        for start in (0, max(held.numel() - 1, 0)):
            mine = memory[start : start + value.numel()].view(value.shape).copy_(value)
            yield other, memory[: held.numel()].view(held.shape), mine


def alterations(op: str) -> Iterator[Call]:
    """Calls that differ from a sound one in one parameter."""
    values = sound(op)
    for p in contracts.load(op).params:
        value = values[p.name]
        yield {n: v for n, v in values.items() if n != p.name}
        if isinstance(p, Scalar):
            more = (value + 1, value - 1) if isinstance(value, int) else ()
            yield from ({**values, p.name: number} for number in (*NUMBERS, *more))
        elif value is None:
            yield from ({**values, p.name: other} for other in (0, [], torch.zeros(3)))
        else:
            yield from ({**values, p.name: other} for other in altered_tensor(value))
            yield from ({**values, p.name: other} for other in (altered_counts(value) if p.cumulative else ()))
            # Kernels trust a minimum, which the memory of another tensor would break.
            others = {t.name: values[t.name] for t in contracts.load(op).tensors if t.minimum is None}
            for other, held, shared in sharing(p.name, value, others if p.minimum is None else {}):
                yield {**values, other: held, p.name: shared}
    yield {**values, "unknown": 1}


@pytest.mark.parametrize("op", FAST)
def test_a_known_layout_is_not_checked_in_python(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same(op, sound(op))
    monkeypatch.setattr(cpu, "check_layout", lambda *_: pytest.fail("checked in Python"))
    if op in CHECKED_ALWAYS:
        with pytest.raises(pytest.fail.Exception):
            cpu.op(op)(**sound(op))
    else:
        cpu.op(op)(**sound(op))
        cpu.op(op)(*sound(op).values())


@pytest.mark.parametrize("op", ALTERED)
def test_other_layouts_have_the_outcome_of_the_check(op: str) -> None:
    assert_same(op, sound(op))
    seen, expected = 0, wanted(op, sound(op))
    for values in alterations(op):
        assert_same(op, values)
        assert_same(op, sound(op), expected, 1)
        seen += 1
    assert seen > 10 * len(contracts.load(op).tensors)


def test_a_subclass_is_read_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its attributes may be others than those of its memory."""
    values = sound("verify_greedy")
    cpu.op("verify_greedy")(**values)
    monkeypatch.setattr(cpu, "check_layout", lambda *_: pytest.fail("checked in Python"))
    with pytest.raises(pytest.fail.Exception):
        cpu.op("verify_greedy")(**values | {"target_logits": values["target_logits"].as_subclass(Subclass)})


def test_a_private_mark_of_omitted_parameters_is_no_value() -> None:
    values = sound("gather_draft_logits_and_target_argmax")
    assert_same("gather_draft_logits_and_target_argmax", values | {"BLOCK_SIZE": ...})


def test_arguments_are_bound_as_by_the_check() -> None:
    values = sound("verify_greedy")
    for args, kwargs in (
        (list(values.values())[:1], values),
        ([*values.values(), 1], {}),
        ([], dict(reversed(values.items()))),
        ([], {"".join(name): value for name, value in values.items()}),
    ):
        contract = contracts.load("verify_greedy")
        expected = outcome(lambda a=args, k=kwargs, c=contract: check(c, bind(c, a, k), "cpu"), {})
        found = outcome(lambda a=args, k=kwargs: cpu.op("verify_greedy")(*a, **k), {})
        assert found == expected


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", sorted({v for v in vars(torch).values() if isinstance(v, torch.dtype)}, key=str))
def test_a_dtype_is_told_from_all_others(dtype: torch.dtype) -> None:
    """A reading names a dtype of the kernels for that dtype alone."""
    checked_op._reads(torch)
    known = {extension().reading(torch.empty(2, dtype=d))[1]: d for d in DTYPES if d is not torch.uint8}
    try:
        tensor = torch.empty(2, dtype=dtype)
    except (RuntimeError, NotImplementedError):
        pytest.skip("torch makes no such tensor")
    seen = extension().reading(tensor)
    assert seen is None or known.get(seen[1], dtype) == dtype


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24)[3:],
        torch.arange(24.0).view(2, 3, 4).transpose(0, 2),
        torch.arange(6).as_strided((1, 3), (77, 2)),
        torch.zeros(3, 0, 2),
        torch.zeros(1).expand(5, 4),
        torch.tensor(3.0),
    ],
)
def test_a_reading_is_what_python_reads(tensor: torch.Tensor) -> None:
    view = view_of(tensor)
    assert view is not None and checked_op._reads(torch)
    pointer, _, shape, strides, device = extension().reading(tensor)
    assert (pointer, shape, strides, device) == (view.pointer, tuple(view.shape), view.strides, (1, 0))


def test_there_is_an_end_to_what_is_known() -> None:
    """Layouts past the end are checked again, and right."""
    for rows in range(300):
        output, counts = torch.zeros(rows + 1, dtype=torch.int32), torch.tensor([rows + 1], dtype=torch.int32)
        cpu.op("expand_batch_to_tokens")(output, torch.tensor([7], dtype=torch.int32), counts, 0, 1, rows + 1)
        assert (output == 7).all()


def test_threads_do_not_mix_their_tensors() -> None:
    """A kernel runs without the GIL, so that another call begins before it ends."""
    wrong = []

    def work(token: int) -> None:
        for _ in range(200):
            output, counts = torch.zeros(5000, dtype=torch.int32), torch.tensor([5000], dtype=torch.int32)
            cpu.op("expand_batch_to_tokens")(output, torch.tensor([token], dtype=torch.int32), counts, 0, 1, 5000)
            if not (output == token).all():
                wrong.append(token)

    threads = [threading.Thread(target=work, args=(token,)) for token in (3, 4, 5, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_the_extension_cannot_read_is_checked_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with torch before 2.11."""
    monkeypatch.setattr(checked_op, "_reads", lambda _: False)
    contract = contracts.load("verify_greedy")
    calls = []
    op = checked_op.checked_op(contract, lambda **given: calls.append(given), kernel=cpu.kernel("verify_greedy"))
    values = sound("verify_greedy")
    layout = cpu.check_layout(contract, bind(contract, (), values), "cpu")[1]
    checked_op.teach(op, contract, (), values, layout)
    op(**values)
    assert calls == [values]


class TestLaunches:
    """Ops without a kernel of the extension are taught a launch, which takes addresses."""

    def op(self, launch: Any) -> tuple[Any, list[Call], list[Call], Call]:
        """An op of a known layout; its calls that are checked, and those that are not."""
        contract, values = contracts.load("verify_one_hot"), sound("verify_one_hot")
        checked: list[Call] = []
        unchecked: list[Call] = []
        op = checked_op.checked_op(
            contract, lambda **given: checked.append(given), unchecked=lambda **given: unchecked.append(given)
        )
        layout = cpu.check_layout(contract, bind(contract, (), values))[1]
        checked_op.teach(op, contract, (), values, layout, launch)
        return op, checked, unchecked, values

    def test_addresses_are_those_of_the_call(self) -> None:
        seen: list[Any] = []
        op, checked, unchecked, values = self.op(seen.append)
        other = copy.deepcopy(values)
        op(**values)
        op(**other)
        addresses = [tuple(v if v is None else v.data_ptr() for v in call.values()) for call in (values, other)]
        assert seen == addresses and not checked and not unchecked

    @pytest.mark.parametrize("launch", [None, lambda _: False])
    def test_a_launch_that_cannot_is_left(self, launch: Any) -> None:
        op, checked, unchecked, values = self.op(launch)
        op(**values)
        assert unchecked == [values] and not checked

    def test_an_error_of_a_launch_is_the_callers(self) -> None:
        def fails(_: Any) -> None:
            raise OSError("no device")

        op, checked, unchecked, values = self.op(fails)
        with pytest.raises(OSError, match="no device"):
            op(**values)
        assert not checked and not unchecked

    def test_another_alignment_is_another_layout(self) -> None:
        seen: list[Any] = []
        op, checked, unchecked, values = self.op(seen.append)
        memory = torch.zeros(values["pos"].numel() + 1, dtype=values["pos"].dtype)
        moved = values | {"pos": memory[1:].copy_(values["pos"])}
        assert values["pos"].data_ptr() % 16 == 0 != moved["pos"].data_ptr() % 16
        op(**moved)
        assert checked == [moved] and not seen and not unchecked


def test_an_error_of_the_contract_is_one() -> None:
    values = sound("verify_greedy")
    cpu.op("verify_greedy")(**values)
    with pytest.raises(ContractError, match="separate memory from"):
        cpu.op("verify_greedy")(**values | {"next_token": values["next_row"]})
