"""Evaluate tests of the host's version, and drop code of other versions."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from packaging.version import InvalidVersion, Version

from verispec.static.facts import FileFacts, Guard, PythonFacts
from verispec.static.tree import Tree

_COMPARE: Final[dict[str, Callable[[Version, Version], bool]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_NAMED: Final = re.compile(r"==\s*([\w.+!-]+)")
_WRITTEN: Final = re.compile(rb"^__version__[^=\n]*=(?:[^=\n\"']*=)*[ \t]*[\"']([^\"'\n]+)[\"']", re.MULTILINE)

_OWN: Final = ("_version.py", "version.py")
_PACKAGE: Final = "__init__.py"


def host_version(tree: Tree) -> Version | None:
    """Return the version of the host `tree`: of its name (``vllm==0.24.0``), else of a file of it, None if unknown.

    That is ``_version.py`` or ``version.py``, else the only ``__init__.py`` at the top that has one.
    """
    named = _NAMED.search(tree.describe())
    if named:
        return _parsed(named[1])
    files = [file for file in tree.files() if file.path.count("/") <= 1 and file.path.endswith((*_OWN, _PACKAGE))]
    own = [version for file in files if file.path.endswith(_OWN) and (version := _written(file.read()))]
    packages = {version for file in files if file.path.endswith(_PACKAGE) and (version := _written(file.read()))}
    return own[0] if own else packages.pop() if len(packages) == 1 else None


def _written(source: bytes) -> Version | None:
    found = _WRITTEN.search(source)
    return _parsed(found[1].decode("ascii", "replace")) if found else None


def _parsed(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def holds(test: Sequence[Any], version: Version) -> bool | None:
    """Return True if `test` (see `facts.Guard`) is true for the host's `version`; None if that is not known."""
    if not test:
        return None
    head, *rest = test
    if head == "not":
        inner = holds(rest[0], version)
        return None if inner is None else not inner
    if head in {"and", "or"}:
        decisive: bool = head == "or"
        values = [holds(part, version) for part in rest]
        if decisive in values:
            return decisive
        return None if None in values else not decisive
    try:
        return _COMPARE[head](version, Version(rest[0]))
    except InvalidVersion:
        return None


def live(facts: Mapping[str, FileFacts], version: Version) -> tuple[dict[str, FileFacts], dict[str, tuple[str, ...]]]:
    """Return the summaries of a plugin without the code that its version tests exclude for this host.

    Args:
        facts: summaries by path.
        version: version of the host.

    Returns:
        The summaries by path, and the excluded imports by path.
    """
    kept = dict(facts)
    dead: dict[str, tuple[str, ...]] = {}
    for path, found in facts.items():
        if found.python is not None and found.python.guards:
            python = _without_dead_lines(found.python, version)
            kept[path] = found._replace(python=python)
            left = set(python.imports)
            dead[path] = tuple(statement.target for statement in found.python.imports if statement not in left)
    return kept, {path: targets for path, targets in dead.items() if targets}


def _without_dead_lines(python: PythonFacts, version: Version) -> PythonFacts:
    dead = [guard for guard in python.guards if guard.kind == "version" and holds(guard.test, version) is False]
    if not dead:
        return python

    def alive(line: int) -> bool:
        return not any(guard.first <= line <= guard.last for guard in dead)

    return python._replace(
        functions=tuple(function for function in python.functions if alive(function.line)),
        classes=tuple(klass for klass in python.classes if alive(klass.line)),
        bindings=tuple(binding for binding in python.bindings if alive(binding.line)),
        calls=tuple(call for call in python.calls if alive(call.line)),
        overrides=tuple(override for override in python.overrides if alive(override.line)),
        imports=tuple(statement for statement in python.imports if alive(statement.line)),
    )


def is_guarded(guards: Sequence[Guard], line: int, version: Version | None) -> bool:
    """Return True if a fault may never be seen: its TypeError is caught, or its version test is open.

    Args:
        guards: guards of the file.
        line: line of the fault.
        version: version of the host; None if unknown.
    """
    return any(
        guard.first <= line <= guard.last
        and (
            guard.kind == "try" or (guard.kind == "version" and (version is None or holds(guard.test, version) is None))
        )
        for guard in guards
    )
