"""Keep the calls of a case while it runs: recorded for a crash, shrunk for a file, replaced by a saved one."""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from verispec.engines import Engine
from verispec.errors import VerispecError
from verispec.judge import Failure, OpCall, OpUnderTest
from verispec.run.events import CANNOT_WRITE
from verispec.run.plan import suites_folder
from verispec.saved_calls import file
from verispec.saved_calls.file import SavedCase, arguments_of
from verispec.saved_calls.places import kept, launch
from verispec.saved_calls.shrink import shrunk
from verispec.whole_file import write_whole

LARGEST = 64 << 20
"""Bytes of a call that are recorded: a case with more is determined by its id and seed."""


class Keeper:
    """Keeps calls of one case, as the options `--record`, `--shrink`, `--replay` and `--export` of the plugin ask."""

    def __init__(self, option: Namespace, case: str, op: str, folder: Path) -> None:
        self._shrink, self._replay, self._export = (
            Path(path) if path else None for path in (option.shrink, option.replay, option.export)
        )
        self._record = Path(option.record) if option.record else None
        suite = "" if folder.parent == suites_folder() else str(folder)
        self._saved = SavedCase(case, option.seed, option.engine, suite=suite)
        self._name = op
        self._op: OpUnderTest | None = None
        if self._record:
            self._write_launch(self._saved)

    def watch(self, op: OpUnderTest) -> None:
        """Record the calls of `op`, or replace them by the saved one."""
        self._op = op
        if self._record:
            op.before_call = lambda call: self._write_launch(self._with(call))
        if self._replay:
            op.instead = file.read(self._replay).call

    def failed(self, failure: Failure) -> Failure:
        """Write the files of a failing case; return its failure, or that of its shrunk call."""
        call = self._op.failing if self._op else None
        if call is not None and self._op is not None and self._shrink:
            call, failure = shrunk(self._op, call, failure)
        saved = self._with(call) if call is not None and _bytes(call) <= LARGEST else self._saved
        told = {"kind": str(failure.kind), "message": failure.message, "output": failure.output}
        if failure.examples:
            told |= {name: str(failure.examples[0][name]) for name in ("index", "expected", "got")}
        if call is not None and failure.output in call.compare:
            told["compare"] = "bound"
        saved = replace(saved, failure=told)
        if self._shrink:
            file.write(self._shrink, saved)
        if self._record:
            path = kept(self._record, saved.case)
            file.write(path, saved)
            failure = replace(failure, details={**failure.details, "saved case": str(path)})
        return failure

    def export(self, engine: Engine) -> None:
        """Write a test of `engine` alone from the saved call; nothing is launched."""
        from verispec.saved_calls.export import source

        assert self._replay and self._export
        write_whole(self._export, source(file.read(self._replay), engine), what="the exported test")

    def _with(self, call: OpCall) -> SavedCase:
        return replace(self._saved, **arguments_of(call, self._name))

    def _write_launch(self, saved: SavedCase) -> None:
        """Write what is about to be launched. A process that cannot write it ends, as for the event log."""
        assert self._record
        try:
            if sum(array.nbytes for array in saved.tensors.values()) <= LARGEST:
                write_whole(launch(self._record, os.getpid()), file.content(saved), what="a launch", durable=False)
        except VerispecError as error:
            os.write(2, f"verispec: {self._record}: {error.diagnostic.cause}\n".encode())
            os._exit(CANNOT_WRITE)


def _bytes(call: OpCall) -> int:
    return sum(getattr(value, "nbytes", 0) for value in call.values.values())
