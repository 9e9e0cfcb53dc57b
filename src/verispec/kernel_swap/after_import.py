"""Run a function right after a module was imported, without importing anything ahead of the program."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls functions with a module right after its import.

    Args:
        watched: functions by dotted module name, called in order.
    """

    stays_first = True
    """Other finders are inserted after this one, so that it sees what they find."""

    def __init__(self, watched: Mapping[str, Sequence[Callable[[ModuleType], None]]]) -> None:
        self._watched = dict(watched)
        self._looking: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec that the other finders have, with a loader that calls the functions; None if not watched.

        A program may ask for the spec before it imports the module, so that only the import ends the watch.
        """
        if fullname not in self._watched or fullname in self._looking:
            return None
        self._looking.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking.discard(fullname)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def then_patch(module: ModuleType) -> None:
            execute(module)
            for patch in self._watched.pop(fullname, ()):
                patch(module)

        spec.loader.exec_module = then_patch  # type: ignore[method-assign]
        return spec
