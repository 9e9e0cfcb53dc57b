"""Selection of the Python files that need a syntax tree, from their bytes."""

from __future__ import annotations

import re
from typing import Final

# Patterns that begin with a rare character, since they are searched for in every file of a tree.
_RARE_JIT: Final = re.compile(rb"\b(?:triton|gluon|jit)[ \t]+as[ \t]|self\.jit\b")
_SETATTR: Final = re.compile(rb"setattr\((?<![\w.]setattr\()\s*(\w+)[\w.]*,\s*[\w\"']+,")
_ALIASED: Final = (
    rb"[ \t]*(?::[^=\n]*)?=[ \t]*\(?\s*(?:sys\.modules|[\w.]*import_module"
    rb"|(?!(?:self|cls)\.)[A-Za-z_][\w.]*[ \t]*(?:[#;)\r\n]|if\b))"
)
_DOTTED_KEY: Final = re.compile(
    rb"\.\w++\.\w++[\"']\s*+(?::\s*+\(?\s*+[A-Za-z_][\w.]*+\s*+[,)}]|\][ \t]*+=[ \t]*+[A-Za-z_])"
)
_PATCH: Final = re.compile(rb"\.\w+[ \t]*=[ \t]*(?:\([ \t]*\n|[A-Za-z_][\w.]*[ \t]*(?:\(|(?:#.*)?\n))")
_HOST_TEST: Final = re.compile(rb"_is\([\"']v?\d+\.\d")
_DOTTED_NAME: Final = re.compile(rb"[ \t]*([A-Za-z_]\w*)[\w.]*")
_IMPORTED: Final = re.compile(
    rb"\n[ \t]*+(?:import[ \t]+[\w.]+[ \t]+as[ \t]+(\w+)|import[ \t]+(\w+)"
    rb"|from[ \t]+[\w.]+[ \t]+import[ \t]+([^\n(]+|\([^)]*\)))"
)
_ASSIGNED: Final = re.compile(rb"\.(\w+)[\s\\]*=(?!=)")
_GIVEN_NAME: Final = re.compile(rb"setattr\((?<![\w.]setattr\()(?:[^,]*,\s*[\"'](\w+)[\"']\s*,)?")
_KEY: Final = re.compile(rb"\.(\w+)[\"']\s*:")
_WORDS: Final = re.compile(rb"\w+")
_JIT: Final = (b"triton.jit", b"gluon.jit", b"runtime.jit", b"@jit", b"import jit")


def defines(data: bytes) -> bool:
    """Return True if a file with the content `data` may define a kernel or an op, or ask for the host's version.

    Files that only use what others define are found by the names in them (see `Outline`), and read when these are
    known.
    """
    if b"jit" in data and (any(text in data for text in _JIT) or _RARE_JIT.search(data)):
        return True
    return b"custom_op(" in data or b"register_fake" in data or (b"_is(" in data and bool(_HOST_TEST.search(data)))


def patches(data: bytes) -> bool:
    """Return True if `data` may put something in another module's place."""
    if has_table(data):
        return True
    names: set[bytes] = set()
    if b"setattr(" in data:
        names = set(_SETATTR.findall(data)) - {b"self", b"cls"}
        # A name that is bound to a name or a module here may be an import by another name.
        if any(re.search(rb"\b" + name + _ALIASED, data) for name in names):
            return True
    names |= {_root(data, match.start()) for match in _PATCH.finditer(data)} - {b"", b"self", b"cls"}
    return bool(names) and any(
        not names.isdisjoint(_WORDS.findall(text)) for texts in _IMPORTED.findall(b"\n" + data) for text in texts
    )


def has_table(data: bytes) -> bool:
    """Return True if a dict in `data` may have dotted names as keys and names as values."""
    return bool(_DOTTED_KEY.search(data))


def patched(data: bytes) -> bytes | None:
    """Return the names that `data` may replace in other modules, with spaces between; None if they cannot be known."""
    given = _GIVEN_NAME.findall(data)
    if b"" in given:
        return None
    return b" ".join({*given, *_ASSIGNED.findall(data), *_KEY.findall(data)})


def _root(data: bytes, dot: int) -> bytes:
    """Return the first part of the dotted name that begins its line and continues at `dot`, else nothing."""
    name = _DOTTED_NAME.fullmatch(data, data.rfind(b"\n", 0, dot) + 1, dot)
    return name[1] if name else b""
