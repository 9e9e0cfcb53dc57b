"""Keep the calls of a case while it runs: recorded for a crash, shrunk for a file, replaced by a saved one."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from verispec.cases import CaseId
from verispec.engines import Engine
from verispec.errors import VerispecError
from verispec.fixtures import model
from verispec.judge import Failure, Kind, OpCall, OpUnderTest, SamplerUnderTest, offered, sampler_of
from verispec.run.events import CANNOT_WRITE
from verispec.run.plan import suites_folder
from verispec.run.record import SAVED
from verispec.saved_calls import file
from verispec.saved_calls.file import SavedCase, arguments_of
from verispec.saved_calls.record_folder import keep_launch, kept, launch
from verispec.saved_calls.shrink import LONGEST, shrunk
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
        self._family = dict(CaseId.parse(case).params).get("family", "")
        self._op: OpUnderTest | None = None
        self.step: dict[str, SamplerUnderTest] = {}
        """The sampler that ran a saved step, in place of the case's fixtures; empty for any other case."""
        if option.trial:
            _crash_at_once()
        if self._record:
            self._write_launch(self._saved)

    def watch(self, op: OpUnderTest) -> None:
        """Record the calls of `op`, or replace them by the saved one."""
        self._op = op
        if self._record:
            op.before_call = lambda call: self._write_launch(self._with(call))
        if self._replay:
            op.instead = file.read(self._replay).call

    def failed(self, failure: Failure, fixtures: Mapping[str, Any], engine: Engine) -> Failure:
        """Write the files of a failing case.

        Args:
            failure: failure of the case.
            fixtures: fixtures of the case, by name; a sampler among them was called last with the failing batch.
            engine: engine under test.

        Returns:
            The failure, or that of the shrunk call.
        """
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
        if self._shrink and call is None:
            saved = self._smaller(saved, fixtures, engine)
            if saved.step:  # what the report shows is the small step too: inputs, outputs and this failure
                failure = _of_step(failure, saved)
        if self._shrink:
            file.write(self._shrink, saved)
        if self._record:
            path = kept(self._record, saved.case)
            file.write(path, saved)
            failure = replace(failure, details={**failure.details, SAVED: str(path)})
        return failure

    def _smaller(self, saved: SavedCase, fixtures: Mapping[str, Any], engine: Engine) -> SavedCase:
        """Return the case with the step or the requests that fail in it; unchanged if no single one is wrong."""
        from verispec.saved_calls import steps, texts

        sampler = next((each for each in fixtures.values() if isinstance(each, SamplerUnderTest)), None)
        if sampler is not None and sampler.step is not None:
            found = steps.smallest(sampler, sampler.step, LONGEST)
            if found:
                tensors, plain = steps.to_arrays(found[0])
                told = {**saved.failure, "message": found[1].message}
                step = {"batch": plain, **asdict(found[1]), "family": self._family}
                return replace(saved, failure=told, tensors=tensors, step=step)
        for (target, options), generator in fixtures.get("held", ()):
            if asked := getattr(generator, "requests", ()):
                load = partial(_loaded, type(generator), engine, target or model("target"), options)
                own = load() if generator.broken else generator
                generator.broken = True  # the next caller loads another
                small = texts.smallest(own, load, target or model("target"), asked, texts.LONGEST)
                if small and self._shrink:
                    text = texts.to_json(target or model("target"), options, *small)
                    told = {**saved.failure, "message": small[1].message}
                    return replace(saved, failure=told, text=texts.copy_checkpoints(text, self._shrink))
        return saved

    @property
    def replays_step(self) -> bool:
        """True if a saved step of a sampler takes the place of the case."""
        return bool(self._replay and not self._export and file.read(self._replay).step)

    def run_step(self, engine: Engine) -> None:
        """Run the saved step. Raises Mismatch if a request emits other tokens than it must."""
        from verispec.saved_calls import steps

        assert self._replay
        saved = file.read(self._replay)
        family = saved.step["family"]
        self.step["sampler"] = SamplerUnderTest(sampler_of(engine, family or None))
        steps.require_right(self.step["sampler"], steps.from_arrays(saved.tensors, saved.step["batch"]))

    def crashed(self) -> dict[str, str]:
        """Keep the last launch of a process that goes on for no other case; return the record's details of it."""
        path = keep_launch(self._record, os.getpid(), self._saved.case) if self._record else None
        return {SAVED: str(path)} if path else {}

    def export(self, engine: Engine) -> None:
        """Write a test of `engine` alone from the saved call; nothing is launched."""
        from verispec.saved_calls.export import source

        assert self._replay and self._export
        write_whole(self._export, source(file.read(self._replay), engine), what="the exported test")

    def _with(self, call: OpCall) -> SavedCase:
        return replace(self._saved, **arguments_of(call, self._name))

    def _write_launch(self, saved: SavedCase) -> None:
        """Write the call that is about to be launched. A process that cannot write it ends, as for the event log."""
        assert self._record
        try:
            if sum(array.nbytes for array in saved.tensors.values()) <= LARGEST:
                write_whole(launch(self._record, os.getpid()), file.content(saved), what="a launch", durable=False)
        except VerispecError as error:
            os.write(2, f"verispec: {self._record}: {error.diagnostic.cause}\n".encode())
            os._exit(CANNOT_WRITE)


def _of_step(failure: Failure, saved: SavedCase) -> Failure:
    """Return the failure of the small step of `saved` alone, in place of the case's own."""
    if saved.step["error"]:
        return replace(failure, message=saved.failure["message"])
    details = {name: list(saved.step[name]) for name in ("expected", "got")}
    return Failure(Kind.VALUE, saved.failure["message"], details=details)


def _loaded(guard: Callable[[Any], Any], engine: Engine, target: Path, options: Mapping[str, Any]) -> Any:
    """Return a new generator of `engine`, guarded like the one before."""
    return guard(offered(engine.load(target, **options)))


def _crash_at_once() -> None:
    """Have a fatal signal end this process without a traceback or a core file; a library's handler takes seconds."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT):
        signal.signal(number, signal.SIG_DFL)


def _bytes(call: OpCall) -> int:
    return sum(getattr(value, "nbytes", 0) for value in call.values.values())
