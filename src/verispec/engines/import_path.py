"""Engine ``module:attr[@SOURCE]``: anything importable that answers the protocol, or a factory of such an object."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import sys
import traceback
from pathlib import Path

from verispec import exits
from verispec.engines.protocol.check import CODE, GUIDE, error, method_faults
from verispec.engines.protocol.engine import Engine
from verispec.errors import VerispecError


def load(name: str, device: str | None = None) -> Engine:
    """Return the engine at ``module:attr`` or ``module:attr@SOURCE``.

    `attr` may be dotted. A class or function is called without arguments, or with `device` if it has a
    parameter of that name. The current folder is importable, as it is for ``python -m``. With SOURCE (a folder,
    folder#REV, an archive or ``name==version``) the module is imported from there.

    Raises:
        VerispecError: V-ENG-MODULE, the module cannot be imported; V-ENG-ATTR, it has no such attribute;
            V-ENG-PROTOCOL, the object lacks methods of the protocol; V-ENG-ELSEWHERE, SOURCE has no such module.
    """
    plain, at, source = name.partition("@")
    _make_current_folder_importable()
    if not at:
        return as_engine(_find(plain, name), name, device)
    from verispec.engines.checkout import imported_from, unpack

    root = unpack(source)
    try:
        with imported_from(root, name):
            return as_engine(_find(plain, name), name, device)
    except VerispecError as failure:
        # A revision that cannot be imported says nothing about the engine, and the next one may be fine.
        if failure.diagnostic.code in ("V-ENG-MODULE", "V-ENG-ATTR", CODE):
            failure.exit_code = exits.CANNOT_TELL
        raise


def import_attribute(name: str) -> None:
    """Import the module of ``module:attr``, from the current folder too, and find the attribute; call nothing.

    What is imported later comes from where it came before: names of the current folder may be those of libraries.

    Raises:
        VerispecError: V-ENG-MODULE, the module cannot be imported; V-ENG-ATTR, it has no such attribute.
    """
    added = _make_current_folder_importable()
    try:
        _find(name, name)
    finally:
        if added in sys.path:
            sys.path.remove(added)


def _make_current_folder_importable() -> str:
    """Return the entry that was added to the path; "" for none."""
    here = str(Path.cwd())
    if here in sys.path:
        return ""
    sys.path.insert(0, here)
    return here


def as_engine(found: object, name: str, device: str | None = None) -> Engine:
    """Return `found` as an engine: itself if it is one, else what it makes.

    Args:
        found: an engine, or a class or function that makes one.
        name: ``module:attr``, for messages.
        device: device for a maker that has a parameter of this name.

    Raises:
        VerispecError: V-ENG-PROTOCOL, if it is neither.
    """
    engine = found
    if isinstance(found, type) or not isinstance(found, Engine):
        engine = _made(found, name, device)
    if faults := list(method_faults(engine)):
        raise error(faults, f"--engine {name}", type(engine).__name__)
    assert isinstance(engine, Engine)
    return engine


def _find(plain: str, name: str) -> object:
    module_name, _, attr = plain.partition(":")
    try:
        found: object = importlib.import_module(module_name)
    except Exception as failure:
        frames = traceback.extract_tb(failure.__traceback__)
        own = [f for f in frames if "importlib" not in f.filename and f.filename != __file__]
        place = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
        hint = "an engine is 'module:attr' of something importable from here; run 'verispec engines' for the others"
        if attr.partition("/")[0].isdecimal():  # no attribute is a number, and ports are
            hint = f"a server is an engine by its address: http://{name}"
        raise VerispecError(
            "V-ENG-MODULE",
            f"cannot import the module {module_name!r}",
            where=f"--engine {name}",
            cause=f"{type(failure).__name__}: {failure}{place}",
            hint=hint,
        ) from failure
    for part in attr.split("."):
        if not hasattr(found, part):
            names = [n for n in vars(found) if not n.startswith("_")] if hasattr(found, "__dict__") else []
            near = difflib.get_close_matches(part, names, n=3)
            raise VerispecError(
                "V-ENG-ATTR",
                f"{getattr(found, '__name__', module_name)} has no attribute {part!r}",
                where=f"--engine {name}",
                hint=f"did you mean {', '.join(near)}?" if near else f"names there: {', '.join(names) or 'none'}",
            )
        found = getattr(found, part)
    return found


def _made(factory: object, name: str, device: str | None) -> object:
    """Return the object that a class or function makes; anything else is returned as it is."""
    if not callable(factory):
        return factory
    options: dict[str, str | None] = {}
    with contextlib.suppress(TypeError, ValueError):
        signature = inspect.signature(factory)
        options = {"device": device} if "device" in signature.parameters else {}
        try:
            signature.bind(**options)
        except TypeError as failure:
            raise VerispecError(
                CODE,
                f"{name} cannot be made into an engine: it takes arguments",
                where=f"--engine {name}",
                cause=f"{getattr(factory, '__name__', name)}{signature}: {failure}",
                hint="name an engine object, or a class or function that takes no arguments (or only `device`); "
                f"see {GUIDE}",
                exit_code=exits.CANNOT_TELL,
            ) from failure
    return factory(**options)
