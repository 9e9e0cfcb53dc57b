"""The summary of one source file: plain tuples, so small that a whole tree loads in a fraction of a second.

References are strings, resolved as far as one file allows:

    ``$name.rest``    looked up in this module's namespace when the code runs
    ``pkg.mod.name``  imported inside the function that uses it (leading dots: relative to this module)
    ``@Class.attr``   an attribute of self or cls
    ``$name()``       what a function returns, for any of these forms
    ``""``            not known
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

PYTHON: Final = (".py",)
CPP: Final = (".cpp", ".cu", ".cc", ".cxx", ".h", ".hpp", ".cuh", ".hip")
LARGEST: Final = 8 << 20
"""Bytes; a longer file is not source that people wrote."""

CRASHED: Final = "V-SRC-CRASH"
"""The code of a problem that lies in a reader, not in the file. Such facts are not remembered."""

UNREADABLE: Final = "V-SRC-UNREADABLE"
"""The code of a file that could not be opened; the next time it may be."""

UNKNOWN: Final = "?"
"""The returns of a schema that could not be read; nothing is checked about its arguments then."""


class Param(NamedTuple):
    """A parameter: `kind` is ``p`` (positional or keyword), ``k`` (keyword only), ``*``, ``**``; `default` is text."""

    name: str
    kind: str
    default: str
    constexpr: bool

    @property
    def required(self) -> bool:
        """True if a call must supply it."""
        return self.kind in "pk" and not self.default


class Decorator(NamedTuple):
    """A decorator as written: its callee, and the keyword arguments that are references."""

    target: str
    text: str
    called: bool
    keywords: tuple[tuple[str, str], ...]


class LaunchSpec(NamedTuple):
    """A ``return grid, {...}``: the keys of the mapping, and whether there may be more that cannot be followed."""

    keys: tuple[str, ...]
    open: bool


class Function(NamedTuple):
    """A function or method; `jit` is the kernel dialect (``triton``, ``gluon``) or empty.

    `given` are the kernel arguments that autotune configurations and heuristics supply, None when they cannot be
    read; `opaque` says that another decorator may change the signature. `unread` are parameters that the body
    never reads, `tested` those of a kernel that decide a branch. `specs` are the launches that it returns.
    `converts` says that it returns its first parameter, possibly converted; `scans` that it goes through every
    imported module. `sizes` are the parameters of a kernel without annotation that are sizes of blocks.
    """

    name: str
    line: int
    end_line: int
    params: tuple[Param, ...]
    decorators: tuple[Decorator, ...]
    jit: str
    given: tuple[str, ...] | None
    opaque: bool
    unread: tuple[str, ...]
    tested: tuple[str, ...]
    specs: tuple[LaunchSpec, ...]
    converts: bool
    scans: bool
    sizes: tuple[str, ...] = ()


class Class(NamedTuple):
    """A class of a module.

    Attributes:
        name: qualified name.
        line: line of the class statement.
        bases: references.
        item: meaning of ``instance[grid]``: ``attribute``, the attribute that it wraps; ``ordered``, a call that
            forwards by position in the kernel's order; empty, no such method or not understood.
    """

    name: str
    line: int
    bases: tuple[str, ...]
    item: str


class Call(NamedTuple):
    """A call. `targets` are the references that the callee may be; `grid` marks ``target[grid](...)``.

    `constants` are the keywords whose values are literals. `chosen` says that the callee is taken from a dict.
    `meta` are the names that the grid function reads of the arguments. `passed` are the references that the first
    positional arguments of a plain call may be, "" for one that is not known.
    """

    targets: tuple[str, ...]
    scope: str
    line: int
    end_line: int
    grid: bool
    positional: tuple[str, ...]
    keywords: tuple[str, ...]
    open_positional: bool
    open_keywords: bool
    constants: tuple[str, ...] = ()
    chosen: bool = False
    meta: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()


class Override(NamedTuple):
    """Something put in another module's place. `via` is empty for an assignment, else the registry that is called."""

    target: str
    value: str
    via: str
    scope: str
    line: int


class Binding(NamedTuple):
    """The value of a module-level name.

    `kind` is ``def``, ``class``, ``import``, ``alias``, ``call``, ``literal`` or ``other``. What a function returns is
    bound to its name with ``()``.
    """

    name: str
    kind: str
    value: str
    args: tuple[str, ...]
    line: int


class Conversion(NamedTuple):
    """A parameter that is converted and passed on, without the result being copied back or returned.

    Attributes:
        function: function that converts it.
        param: name of the parameter.
        via: a method such as ``.to``, or a reference.
        dtype: True if the conversion may change the dtype.
        sink: callee that receives the result.
        position: number of the argument there; -1 for a keyword argument.
        keyword: name of the argument there, if it is passed by keyword.
    """

    function: str
    param: str
    via: str
    dtype: bool
    sink: str
    position: int
    line: int
    keyword: str = ""


class Overflow(NamedTuple):
    """A kernel's 32-bit program or loaded index times a runtime size, in address arithmetic."""

    function: str
    text: str
    line: int


class TritonUse(NamedTuple):
    """A host-side use of an attribute of the triton module, ``triton.cdiv`` for example."""

    scope: str
    module: str
    attribute: str
    line: int


class Guard(NamedTuple):
    """Lines that run under a condition.

    `test` is a version test of the host as nested tuples: ``(op, version)``, ``("not", test)``, ``("and", test, ...)``,
    ``("or", test, ...)``, or ``()`` if it cannot be read. `kind` is ``version``, ``platform`` with the platform's
    name as `test`, or ``hasattr`` with the attribute's name. It is ``try`` for lines whose TypeError is caught, and
    ``caught`` for lines of which any error is caught.
    """

    first: int
    last: int
    kind: str
    test: tuple[Any, ...] = ()


class Import(NamedTuple):
    """An import statement anywhere in a file, relative names as written."""

    target: str
    line: int


class Forward(NamedTuple):
    """A function that launches ``target[grid](*args, **kwargs)`` with its own parameters.

    `call` is the launch without the forwarded arguments; `args` and `kwargs` say which of them are forwarded. `kernel`
    names the parameter that holds the kernel, if a parameter does.
    """

    function: str
    call: Call
    args: bool
    kwargs: bool
    kernel: str = ""


class PythonOp(NamedTuple):
    """An op that Python code registers, or a fake implementation of one.

    `name` is that of the op, with ``ns::`` if it is written; empty for a fake of the op made of `function`.
    `function` and `fake` are references; ``#name:line`` is the definition of this file at that line. `mutates` are the
    entries of ``mutates_args``.
    """

    name: str
    function: str
    fake: str
    mutates: tuple[str, ...]
    line: int


class PythonFacts(NamedTuple):
    """Everything that the rules need to know of a Python file that takes part in launching kernels.

    `plain_calls` are the calls of plain functions and methods, None if they were not asked for. `device_calls` are
    the calls in kernels, those of Triton's own functions left out. `demands` says which absence the
    file's functions answer with an error, given names as text: of a ``module``, of a ``name`` in one.
    """

    functions: tuple[Function, ...] = ()
    classes: tuple[Class, ...] = ()
    bindings: tuple[Binding, ...] = ()
    calls: tuple[Call, ...] = ()
    overrides: tuple[Override, ...] = ()
    conversions: tuple[Conversion, ...] = ()
    overflows: tuple[Overflow, ...] = ()
    promotes: tuple[str, ...] = ()
    triton_uses: tuple[TritonUse, ...] = ()
    placeholders: tuple[tuple[str, tuple[str, ...]], ...] = ()
    guards: tuple[Guard, ...] = ()
    imports: tuple[Import, ...] = ()
    plain_calls: tuple[Call, ...] | None = None
    device_calls: tuple[Call, ...] = ()
    ops: tuple[PythonOp, ...] = ()
    forwards: tuple[Forward, ...] = ()
    demands: tuple[str, ...] = ()


class OutlineMethod(NamedTuple):
    """A method, the names that it calls on self (``self.x.y(...)`` gives y), and whether it calls its super method."""

    name: str
    line: int
    calls: tuple[str, ...]
    calls_super: bool


class OutlineClass(NamedTuple):
    """A class by its header and methods, read without a syntax tree."""

    name: str
    line: int
    bases: tuple[str, ...]
    methods: tuple[OutlineMethod, ...]


class Constant(NamedTuple):
    """A module-level ``NAME = literal``."""

    name: str
    value: str
    line: int


class Outline(NamedTuple):
    """The summary of every Python file: classes, constants, the imports of its bases, and all its words.

    `launches` are the names that it may launch: what it imports and every attribute of a name that it does not
    call, if something like ``[grid](`` is there at all. `ops` are the ``(namespace, name)`` of the torch ops that
    it mentions.
    """

    classes: tuple[OutlineClass, ...]
    constants: tuple[Constant, ...]
    imports: tuple[tuple[str, str], ...]
    launches: bytes
    ops: tuple[tuple[str, str], ...]
    words: bytes


class SchemaArg(NamedTuple):
    """An argument of an op schema; `mutable` is the ``!`` mark."""

    type: str
    name: str
    mutable: bool
    optional: bool
    keyword_only: bool


class Schema(NamedTuple):
    """An op schema. `namespace` is the library as written; `function` the C++ function bound with it, if any."""

    namespace: str
    name: str
    args: tuple[SchemaArg, ...]
    returns: str
    function: str
    line: int
    guard: str


class Impl(NamedTuple):
    """A binding of an op to a C++ function made apart from its schema."""

    namespace: str
    name: str
    function: str
    line: int
    guard: str


class CppFunction(NamedTuple):
    """A C++ function: parameters as (type, name), and the tensor parameters whose data its body writes."""

    name: str
    line: int
    params: tuple[tuple[str, str], ...]
    writes: tuple[str, ...]
    has_body: bool


class CppFacts(NamedTuple):
    """Everything that the rules need to know of a C++ or CUDA file."""

    schemas: tuple[Schema, ...] = ()
    impls: tuple[Impl, ...] = ()
    functions: tuple[CppFunction, ...] = ()


class Ignore(NamedTuple):
    """A comment ``# verispec: ignore[RULE, ...] reason``."""

    line: int
    rules: tuple[str, ...]
    reason: str


class FileFacts(NamedTuple):
    """The summary of one file.

    `words` are those of a C++ file; `problem` is why it was not parsed, if it was not. `patches` are the names that a
    test may replace, which was not parsed: it matters if one is that of a kernel.
    """

    outline: Outline | None = None
    python: PythonFacts | None = None
    cpp: CppFacts | None = None
    words: bytes = b""
    problem: tuple[str, str, str, str] | None = None
    ignores: tuple[Ignore, ...] = ()
    patches: bytes = b""

    def suffices(self, *, deep: bool, calls: bool) -> bool:
        """Return True if reading the file again adds nothing for `deep` and `calls`; see `readers.extraction.facts`."""
        if self.cpp is not None or self.problem is not None:
            return True
        if self.python is None:
            return not (deep or (calls and self.patches != b""))
        return self.python.plain_calls is not None or not calls
