"""Stubs of packages that belong to an accelerator which is not here, so that the code beside them can be imported.

A stub has any attribute and computes nothing: to call, compare or index one raises `StubUsed`, and the case is
undecided. So no result ever comes from a stub. `install` takes real values by name where imported code needs them.
Modules under test can never be replaced: `install` refuses their names.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from verispec import exits
from verispec.errors import VerispecError

Values = Mapping[str, Any]


class StubUsed(VerispecError):
    """Raised when code under test uses a stub: its result would not be the engine's."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "V-ENG-STUB",
            f"the code under test used {name}, which is not installed",
            where=name,
            hint="install the package, or leave this part out of the engine's adapter",
            exit_code=exits.CANNOT_TELL,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.diagnostic.where,)


class Absent:
    """An attribute of a stub. It has attributes, can be inherited from and be named in a type; nothing else."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, attribute: str) -> Absent:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Absent(f"{self._name}.{attribute}")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (object,)

    def __or__(self, other: object) -> Any:
        return Any

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"<stub of {self._name}>"

    def _used(self, *args: Any, **kwargs: Any) -> Any:
        raise StubUsed(str(self._name))

    __call__ = __bool__ = __len__ = __iter__ = __getitem__ = __setattr__ = __lt__ = __gt__ = __le__ = __ge__ = _used
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __int__ = __float__ = __index__ = _used
    __enter__ = __exit__ = _used


class _Stub(ModuleType):
    """A module whose missing attributes are `Absent`."""

    def __getattr__(self, attribute: str) -> Absent:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Absent(f"{self.__name__}.{attribute}")


def install(
    missing: Mapping[str, Values], replaced: Mapping[str, Values], under_test: Collection[str]
) -> tuple[str, ...]:
    """Put a stub into `sys.modules` for each module that is missing, or that cannot work here; return their names.

    Args:
        missing: dotted names with the values that importing code needs; a package that is installed stays.
        replaced: modules of the engine itself that ask the accelerator; they are replaced wherever they are.
        under_test: names of the modules that are tested.

    Raises:
        ValueError: a name is under test, or belongs to a module that is.
    """
    for name in (*missing, *replaced):
        if any(name == kept or name.startswith(f"{kept}.") for kept in under_test):
            raise ValueError(f"{name} is under test and cannot be a stub")
    here = {top for top in {name.partition(".")[0] for name in missing} if top in sys.modules or find_spec(top)}
    wanted = {name: values for name, values in missing.items() if name.partition(".")[0] not in here} | dict(replaced)
    for name, values in wanted.items():
        module = _Stub(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__path__ = []
        vars(module).update(values)
        _place(name, module)
    return tuple(wanted)


def bare_packages(root: Path, package: str, parts: Collection[str]) -> None:
    """Make a package below `root` and some of its parts importable without running their ``__init__``.

    Args:
        root: folder of the package's folder.
        package: name of the package.
        parts: dotted names of the parts below it.
    """
    for name in (package, *(f"{package}.{part}" for part in parts)):
        bare_package(name, root / name.replace(".", "/"))


def bare_package(name: str, folder: Path) -> None:
    """Make the package `name` importable from `folder` without running its ``__init__``."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None, is_package=True)
    module.__path__ = [str(folder)]
    _place(name, module)


def import_under_test(name: str) -> Any:
    """Import a module under test.

    Args:
        name: dotted name of the module.

    Returns:
        The imported module, which has a file of its own.

    Raises:
        ImportError: the module cannot be imported.
        StubUsed: the name leads to a stub, or to no file.
    """
    module = importlib.import_module(name)
    if isinstance(module, _Stub) or not getattr(module, "__file__", None):
        raise StubUsed(name)
    return module


@contextmanager
def without_pinned_memory() -> Iterator[None]:
    """Drop ``pin_memory=`` from torch's factories, which refuse it where there is no accelerator."""
    import torch

    plain = {name: getattr(torch, name) for name in ("tensor", "arange", "ones", "zeros", "full", "empty")}

    def factory(make: Callable[..., Any]) -> Callable[..., Any]:
        def unpinned(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
            return make(*args, **kwargs)

        return unpinned

    for name, make in plain.items():
        setattr(torch, name, factory(make))
    try:
        yield
    finally:
        for name, make in plain.items():
            setattr(torch, name, make)


@contextmanager
def without_streams() -> Iterator[None]:
    """Let tensors forget at once the stream that uses them, which tells an accelerator when memory is free."""
    import torch

    before = torch.Tensor.record_stream
    torch.Tensor.record_stream = lambda self, stream: None
    try:
        yield
    finally:
        torch.Tensor.record_stream = before


def _place(name: str, module: ModuleType) -> None:
    sys.modules[name] = module
    parent, dot, child = name.rpartition(".")
    if dot and parent in sys.modules:
        setattr(sys.modules[parent], child, module)
