"""Engine ``module:attr``: anything importable that answers the engine protocol, or a factory of such a thing."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from verispec.engines import Engine
from verispec.errors import VerispecError


def load(name: str) -> Engine:
    """The engine behind ``module:attr``; `attr` may be dotted, and a class or function is called without arguments.

    The current folder is importable, as it is for ``python -m``. Raises VerispecError V-ENG-MODULE
    when the module cannot be imported, V-ENG-ATTR when it has no such attribute, and V-ENG-PROTOCOL
    when what is there does not answer the protocol.
    """
    module_name, _, attr = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
    except ImportError as error:
        raise VerispecError(
            "V-ENG-MODULE",
            f"cannot import the module {module_name!r}",
            where=f"--engine {name}",
            cause=str(error),
            hint="an engine is 'module:attr' of something importable from here; run 'verispec engines' for the others",
        ) from error
    for part in attr.split("."):
        if not hasattr(found, part):
            raise VerispecError(
                "V-ENG-ATTR",
                f"{getattr(found, '__name__', module_name)} has no attribute {part!r}",
                where=f"--engine {name}",
                hint=f"names there: {', '.join(n for n in vars(found) if not n.startswith('_')) or 'none'}",
            )
        found = getattr(found, part)
    engine = found if not isinstance(found, type) and isinstance(found, Engine) else _call(found, name)
    missing = [part for part in _PARTS if not callable(getattr(engine, part, None))]
    if missing:
        raise VerispecError(
            "V-ENG-PROTOCOL",
            f"{type(engine).__name__} lacks {', '.join(missing)}",
            where=f"--engine {name}",
            hint="an engine answers describe, op, sampler, load, definitions and close; "
            "a part may return verispec.engines.Unsupported(reason)",
        )
    assert isinstance(engine, Engine)
    return engine


_PARTS = ("describe", "op", "sampler", "load", "definitions", "close")


def _call(factory: object, name: str) -> object:
    if not callable(factory):
        return factory
    try:
        return factory()
    except TypeError as error:
        raise VerispecError(
            "V-ENG-PROTOCOL",
            f"{name} cannot be made into an engine: calling it without arguments failed",
            where=f"--engine {name}",
            cause=str(error),
            hint="name an engine object, or a class or function that takes no arguments",
        ) from error
