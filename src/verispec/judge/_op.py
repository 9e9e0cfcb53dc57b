"""One op of one engine under test: its calls against the oracle, in ordinary and adversarial memory."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from verispec.engines import OpFunction, UnsupportedCall
from verispec.engines.protocol.results import require_sequence
from verispec.judge._call import OpCall, OpCaller
from verispec.judge._compare import Array, Compare, exact, oracle_outputs
from verispec.judge._compared import ComparedCall
from verispec.judge._failure import EXPLANATION, Failure, Kind, Mismatch, call_engine, described
from verispec.judge._memory import PAST, STRIDED, read_only, to_numpy, wide
from verispec.judge._output import compare_outputs, require_independence, require_written, under_poison
from verispec.reference import oracle
from verispec.reference.contracts import Contract, Scalar


class Replayed(BaseException):
    """Ends a case whose call was replaced by a saved one, which passed. No suite may catch it."""


class OpUnderTest(OpCaller):
    """Call an engine's op with adversarial inputs and compare its outputs with the oracle."""

    def __init__(self, contract: Contract, function: OpFunction, device: str = "cpu") -> None:
        super().__init__(contract, function, device)
        self.expected: dict[str, Array] = {}
        """Outputs of the oracle for the last compared call."""
        self.failing: OpCall | None = None
        """The last call that failed, for `verispec.saved_calls`."""
        self.compared: ComparedCall | None = None
        """The compared call that failed last, to explain the failure of the case."""
        self.under_guards_alone = False
        """True if that failure shows under the second pattern of guards alone: the op read outside of its inputs."""
        self.instead: OpCall | None = None
        """A saved call to check in place of the case's own; the case's comparisons are kept."""

    def check_outputs(
        self,
        values: Mapping[str, Any],
        *,
        dtypes: Mapping[str, str] | None = None,
        layouts: Mapping[str, str] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        compare: Mapping[str, Compare] | None = None,
    ) -> dict[str, Array]:
        """Call the op under both poison patterns and compare every output, whole, with the oracle.

        Args:
            values: arguments by parameter name.
            dtypes: dtype by parameter name, instead of the production dtype.
            layouts: layout by parameter name, one of `verispec.judge.LAYOUTS`, or `SHIFTED`.
            shapes: shapes of outputs that the contract's axes do not determine.
            compare: comparison by output name, instead of `exact`.

        Returns:
            The outputs of the first call by parameter name.

        Raises:
            Mismatch: an output is wrong, a guard or an input changed, or the engine raised.
            UnsupportedCall: the engine does not support this call.
        """
        call = OpCall(values, dtypes or {}, layouts or {}, shapes or {}, compare or {})
        if self.instead is not None:
            self.check(replace(self.instead, compare=call.compare))
            raise Replayed
        return self.check(call)

    def check(self, call: OpCall) -> dict[str, Array]:
        """Check `call` as `check_outputs` does; one that fails is kept as `failing`."""
        try:
            return self._check(call)
        except Mismatch:
            self.failing = call
            raise

    def _check(self, call: OpCall) -> dict[str, Array]:
        given = {"dtypes": call.dtypes, "layouts": call.layouts, "shapes": call.shapes}
        # A kernel that ignores strides reads the gaps. Ids that a call may hold do no harm there; a negative one makes
        # it write anywhere, and the process hangs or ends before the wrong output is seen.
        order = (1, 0) if any(layout in STRIDED for layout in call.layouts.values()) else (0, 1)
        calls: list[tuple[dict[str, Any], dict[str, Array]]] = []
        for pattern in order:
            try:
                inputs, outputs = self.call(call.values, **given, pattern=pattern)  # type: ignore[arg-type]
            except Mismatch as outside:
                raise self._with_values(outside, call) from outside
            calls.append((inputs, outputs))
            self.last = (inputs, outputs)
            self.under_guards_alone = len(calls) == 2
            known = under_poison(self.contract, calls[0][0], inputs, self.expected) if len(calls) == 2 else {}
            if known and self._is_right(known, outputs, inputs, call):
                self.expected = known
                continue
            self.expected = oracle_outputs(self.contract.name, inputs)
            self._compare(call, inputs, outputs)
        require_independence(self.contract, *calls)
        return calls[0][1]

    def _compare(self, call: OpCall, inputs: Mapping[str, Any], outputs: Mapping[str, Array]) -> None:
        """Compare all outputs of a call with `expected`; keep what is needed to explain a failure."""
        try:
            compare_outputs(self.expected, outputs, inputs, call.compare)
        except Mismatch as wrong:
            again, otherwise = partial(self.is_right, call), partial(self.otherwise, call)
            self.compared = ComparedCall(
                self.contract, wrong.failure, inputs, outputs, self.expected, call.compare,
                again, otherwise if self._varied(call) else None, repeated=lambda: self._outputs_of(call),
            )  # fmt: skip
            raise

    def _with_values(self, wrong: Mismatch, call: OpCall) -> Mismatch:
        """Return the failure of the last call, with its first wrong value too if it wrote outside of its tensors."""
        inputs, outputs = self.last
        if wrong.failure.kind is not Kind.OUTSIDE:
            return wrong
        expected = oracle_outputs(self.contract.name, inputs)
        try:
            compare_outputs(expected, outputs, inputs, call.compare)
        except Mismatch as found:
            value = found.failure
            if not value.examples:
                return wrong
            message = f"{wrong.failure.message}; {value.output}{described(value.examples[0])}"
            failure = replace(wrong.failure, message=message)
            self.compared = ComparedCall(
                self.contract, failure, inputs, outputs, expected, call.compare, output=value.output
            )
            return Mismatch(failure)
        return wrong

    def _compare_one(self, call: OpCall, inputs: dict[str, Any], outputs: dict[str, Array], which: str) -> None:
        """Compare all outputs of one of several calls; a failure says `which` it is, and is kept as `failing`."""
        self.last = (inputs, outputs)
        try:
            self._compare(call, inputs, outputs)
        except Mismatch as wrong:
            self.failing = call
            raise Mismatch(replace(wrong.failure, message=f"{wrong.failure.message} ({which})")) from wrong

    def check_again(
        self,
        values: Mapping[str, Any],
        times: int,
        *,
        shapes: Mapping[str, Sequence[int]],
        compare: Mapping[str, Compare],
    ) -> None:
        """Make one call `times` times, and compare all outputs of each with the oracle's, which runs once.

        Args:
            values: arguments by parameter name.
            times: number of calls.
            shapes: shapes of outputs that the contract's axes do not determine.
            compare: comparison by output name, instead of `exact`.

        Raises:
            Mismatch: an output of a call is wrong, a guard or an input changed, or the engine raised.
        """
        call = OpCall(values, {}, {}, shapes, compare)
        guarded, scalars = self.materialise(call)
        for g in guarded.values():
            g.seal()
        inputs = {**scalars, **{name: g.before() for name, g in guarded.items()}}
        written = [t.name for t in self.contract.outputs if t.name in guarded]
        poison = {name: guarded[name].view.clone() for name in written}
        arguments = {**scalars, **{name: g.view for name, g in guarded.items()}}
        self.expected = oracle_outputs(self.contract.name, inputs)
        for number in range(1, times + 1):
            for name, before in poison.items():
                guarded[name].view.copy_(before)
            self.launch(arguments)
            outputs = {name: to_numpy(guarded[name].view) for name in written}
            self._compare_one(call, inputs, outputs, f"call {number} of {times} equal ones")
        self.require_unchanged(guarded)

    def check_in_place(self, calls: Sequence[OpCall]) -> None:
        """Make calls one after the other in the memory of the first, and compare all outputs of each.

        Args:
            calls: calls whose tensors have the same names, shapes, dtypes and layouts.

        Raises:
            Mismatch: an output of a call is wrong, a guard or an input changed, or the engine raised.
        """
        guarded, _ = self.materialise(calls[0])
        for number, call in enumerate(calls, 1):
            made, scalars = self.materialise(call)
            for name, g in guarded.items():
                g.fill_as(made[name])
                g.seal()
            inputs = {**scalars, **{name: g.before() for name, g in guarded.items()}}
            self.expected = oracle_outputs(self.contract.name, inputs)
            self.launch({**scalars, **{name: g.view for name, g in guarded.items()}})
            outputs = self.outputs(guarded)
            self._compare_one(call, inputs, outputs, f"call {number} in the same memory")
            self.require_unchanged(guarded)

    def is_right(self, call: OpCall, threads: int) -> bool:
        """Make `call` again, and return True if it is right now; nothing of this object changes.

        Args:
            call: the call.
            threads: number of threads of this process's kernels; 0 for as many as before.
        """
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(threads or before)
            OpUnderTest(self.contract, self.function, self.device).check(call)
        except (Mismatch, UnsupportedCall):
            return False
        finally:
            torch.set_num_threads(before)
        return True

    def _outputs_of(self, call: OpCall) -> dict[str, Array]:
        """Make `call` once more, and return its outputs; nothing of this object changes."""
        caller = OpCaller(self.contract, self.function, self.device)
        return caller.call(call.values, dtypes=call.dtypes, layouts=call.layouts, shapes=call.shapes)[1]

    def otherwise(self, call: OpCall, offset: int) -> tuple[dict[str, Any], dict[str, Array]]:
        """Make `call` with other numbers, and return what `call` does; nothing of this object changes.

        Args:
            call: a call with seeds, to which `offset` is added, or else with rows of floating-point numbers.
            offset: places by which the numbers of each row move on; the last ones become the first.
        """
        varied = self._varied(call)
        if "seed" in varied:
            other = {"seed": np.asarray(varied["seed"]) + offset}
        else:
            other = {name: np.roll(value, offset, axis=-1) for name, value in varied.items()}
        caller = OpCaller(self.contract, self.function, self.device)
        return caller.call({**call.values, **other}, dtypes=call.dtypes, layouts=call.layouts, shapes=call.shapes)

    def _varied(self, call: OpCall) -> dict[str, Any]:
        """Return the arguments that `otherwise` changes: seeds, or without any the rows of floating-point numbers."""
        if call.values.get("seed") is not None:
            return {"seed": call.values["seed"]}
        given = {t.name: call.values.get(t.name) for t in self.contract.tensors}
        arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
        return {name: value for name, value in arrays.items() if value.dtype.kind == "f" and value.ndim > 1}

    @staticmethod
    def _is_right(
        expected: Mapping[str, Array], outputs: Mapping[str, Array], inputs: Mapping[str, Any], call: OpCall
    ) -> bool:
        """Return True if all outputs are as expected."""
        return not any(
            np.any(call.compare.get(name, exact)(expected[name], got, inputs)) for name, got in outputs.items()
        )

    def call_written(
        self, values: Mapping[str, Any], *, shapes: Mapping[str, Sequence[int]] | None = None, **options: Any
    ) -> dict[str, Array]:
        """Call the op once and return its outputs, for a relation between calls: two that write nothing agree.

        Args:
            values: arguments by parameter name.
            shapes: shapes of outputs that the contract's axes do not determine.
            options: other arguments of `call`.

        Raises:
            Mismatch: as `call`, or no element of an output was written, and the oracle writes some.
        """
        inputs, outputs = self.call(values, shapes=shapes, **options)
        self.last = (inputs, outputs)
        require_written(oracle_outputs(self.contract.name, inputs), inputs, outputs)
        return outputs

    def check_aliased(
        self, values: Mapping[str, Any], output: str, source: str, compare: Mapping[str, Compare] | None = None
    ) -> None:
        """Call the op with an output in the very memory of an input, and compare every output with the oracle.

        An op that reads the input after it wrote there may be right in that output, and wrong in another.

        Args:
            values: arguments by parameter name.
            output: name of the output.
            source: name of the input.
            compare: comparison by output name, instead of `exact`.

        Raises:
            Mismatch: an output is wrong, memory outside was written, or the engine raised.
        """
        guarded, scalars = self.materialise(OpCall(values))
        guarded[output] = guarded[source]
        for g in guarded.values():
            g.seal()
        before = {name: g.before() for name, g in guarded.items()}
        self.launch({**scalars, **{name: g.view for name, g in guarded.items()}})
        self.require_unchanged({name: g for name, g in guarded.items() if name != source})
        inputs = {**scalars, **before}
        expected, outputs = oracle_outputs(self.contract.name, inputs), self.outputs(guarded)
        self.last = (inputs, outputs)
        compare_outputs(expected, outputs, inputs, compare or {})

    def check_read_only(self, values: Mapping[str, Any], *, shapes: Mapping[str, Sequence[int]] | None = None) -> None:
        """Call the op with its inputs in memory that cannot be written.

        A write is then a crash, even one that the op undoes.

        Args:
            values: arguments by parameter name.
            shapes: shapes of outputs that the contract's axes do not determine.

        Raises:
            UnsupportedCall: the op runs on a device whose memory the host cannot protect.
        """
        if self.device != "cpu":
            raise UnsupportedCall("only memory of the host can be made read-only")
        guarded, scalars = self.materialise(OpCall(values, shapes=shapes or {}))
        written = {t.name for t in self.contract.outputs}
        with ExitStack() as stack:
            views = {
                name: g.view if name in written else stack.enter_context(read_only(g.buffer, g.view))
                for name, g in guarded.items()
            }
            self.launch({**scalars, **views})

    def check_wide(
        self,
        values: Mapping[str, Any],
        name: str,
        axis: int,
        *,
        span: int = PAST,
        dtypes: Mapping[str, str] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        compare: Mapping[str, Compare] | None = None,
    ) -> None:
        """Call the op with a tensor spread over more than `span` elements, and compare all outputs.

        Args:
            values: arguments by parameter name.
            name: name of the tensor.
            axis: axis of the tensor, along which it is spread.
            span: elements; 2^31 when left out.
            dtypes: dtype by tensor, instead of the production dtype.
            shapes: shapes of outputs that the contract's axes do not determine.
            compare: comparison of each output, by name; exact for others.

        Raises:
            Mismatch: an output is wrong, or the engine raised.
            UnsupportedCall: the device has no memory for such a tensor.
        """
        guarded, scalars = self.materialise(OpCall(values, dtypes or {}, shapes=shapes or {}))
        inputs = {**scalars, **{key: to_numpy(g.view) for key, g in guarded.items()}}
        views = {key: g.view for key, g in guarded.items()}
        try:
            views[name] = wide(views[name], axis, span)
        except torch.OutOfMemoryError as error:
            raise UnsupportedCall(f"no memory for a tensor of {span:,} elements") from error
        for param in self.contract.params:
            if isinstance(param, Scalar) and param.stride_of == name:
                scalars[param.name] = views[name].stride(0)
        self.launch({**scalars, **views})
        expected = oracle_outputs(self.contract.name, inputs)
        got = {t.name: to_numpy(views[t.name]) for t in self.contract.outputs if t.name in views}
        self.last = (inputs, got)
        compare_outputs(expected, got, inputs, compare or {})

    def check_return_value(self, values: Mapping[str, Any]) -> None:
        """Call an op that returns numbers and compare them exactly with the oracle.

        Args:
            values: arguments by parameter name.

        Raises:
            Mismatch: the numbers differ, the call raised, or it changed an argument.
            ProtocolError: the op does not return a sequence.
        """
        got = self.returned(values)
        expected = oracle.load(self.contract.name)(**values)["return"].tolist()
        if got != expected:
            raise Mismatch(Failure(Kind.VALUE, f"got {got}, expected {expected}", "return", total=len(expected)))

    def returned(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the numbers of an op that returns them, whatever they are; the rest is as in `check_return_value`."""
        given = copy.deepcopy(dict(values))
        got = require_sequence(call_engine(lambda: self.function(**given)), f"op({self.contract.name!r})")
        if given != values:
            raise Mismatch(Failure(Kind.INPUT_CHANGED, f"the call changed its arguments to {given}"))
        return list(got)

    def check_rejects(self, values: Mapping[str, Any]) -> None:
        """Call the op with arguments that its contract forbids.

        Args:
            values: arguments by parameter name.

        Raises:
            Mismatch: the op does not raise ValueError.
        """
        try:
            got = self.function(**values)
        except ValueError:
            return
        except Exception as error:
            raise Mismatch(Failure(Kind.RAISED, f"{type(error).__name__} instead of ValueError: {error}")) from error
        raise Mismatch(Failure(Kind.ACCEPTED, f"{EXPLANATION[Kind.ACCEPTED]}: {dict(values)} gave {got}"))
