"""The outline of a Python file, read by line patterns: cheap enough for every file of a tree.

Strings that look like code can deceive it, so nothing that is read here alone is ever called an error.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

from verispec.static.facts import Constant, Outline, OutlineClass, OutlineMethod

_LINE: Final = re.compile(
    rb"\n(?:class[ \t]+(?P<cls>\w+)(?:\s*\[[^\]\n]*\])?\s*(?:\((?P<bases>[^()]*(?:\([^()]*\)[^()]*)*)\))?\s*:"
    rb"|(?P<const>[A-Z][A-Z0-9_]{2,})(?:[ \t]*:[^=\n]+)?[ \t]*=[ \t]*(?P<value>-?[\d.][\w.]*)[ \t]*(?:#[^\n]*)?$"
    rb"|    (?:async[ \t]+)?def[ \t]+(?P<method>\w+)"
    rb"|(?P<outside>def|async|if|else|try|for|with|@|[a-z_]\w*[ \t]*=))",
    re.MULTILINE,
)
_SELF_CALL: Final = re.compile(rb"self\.(?:\w+\.)*(\w+)\(")
_SUPER_CALL: Final = re.compile(rb"super\(\)\.(\w+)\(")
_IMPORT: Final = re.compile(rb"from[ \t]+(?P<module>[\w.]+)[ \t]+import[ \t]+(?P<names>\([^)]*\)|[^\n(]+)")
_BETWEEN_WORDS: Final = bytes(c if (chr(c).isalnum() and c < 128) or c == 95 else 32 for c in range(256))
_OP: Final = re.compile(rb"torch\.ops\.(\w+)\.(\w+)")
_ATTRIBUTE: Final = re.compile(rb"\.(?<!\bself\.)(?<!\bcls\.)(?<=\w\.)(\w+)\b(?![(.])")
_COMMENT: Final = re.compile(rb"#[^\n]*")
_SUBSCRIPT: Final = re.compile(r"\[.*?\]")


def outline(data: bytes) -> Outline:
    """Return the outline of the Python source `data`, without parts that cannot be read."""
    imports = _imports(data)
    classes: list[OutlineClass] = []
    constants: list[Constant] = []
    methods: list[OutlineMethod] = []
    header: tuple[str, int, tuple[str, ...]] | None = None
    # A pattern that begins with a character is much faster than one that begins with "^".
    data = b"\n" + data
    matches = list(_LINE.finditer(data))
    calls = _calls_between(data, [match.start() for match in matches])
    line, at = 1, 1
    for index, match in enumerate(matches):
        kind = match.lastgroup
        if kind == "method" and header is None:
            continue
        if kind != "method" and header is not None:
            classes.append(OutlineClass(*header, tuple(methods)))
            header = None
            methods.clear()
        if kind == "outside":
            continue
        line, at = line + data.count(b"\n", at, match.start() + 1), match.start() + 1
        if kind == "method":
            name = match["method"].decode()
            own, to_super = calls.get(index, ((), ()))
            methods.append(OutlineMethod(name, line, own, name in to_super))
        elif kind == "value":
            constants.append(Constant(match["const"].decode(), match["value"].decode(), line))
        else:
            header = (match["cls"].decode(), line, _bases(match["bases"]))
    if header is not None:
        classes.append(OutlineClass(*header, tuple(methods)))
    needed = {base.partition(".")[0] for entry in classes for base in entry.bases}
    return Outline(
        tuple(classes),
        tuple(constants),
        tuple((name, target) for name, target in imports.items() if name in needed),
        _launched(data, imports) if b"](" in data else b"",
        tuple(sorted({(m[1].decode(), m[2].decode()) for m in _OP.finditer(data)})),
        words(data),
    )


def _launched(data: bytes, imports: dict[str, str]) -> bytes:
    names = {match[1] for match in _ATTRIBUTE.finditer(data)}
    names.update(target.rpartition(".")[2].encode() for target in imports.values())
    return b" ".join(names)


def words(data: bytes) -> bytes:
    """Return every word of `data` once, with spaces between."""
    return b" ".join(set(data.translate(_BETWEEN_WORDS).split()))


def _calls_between(data: bytes, starts: list[int]) -> dict[int, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the names called on self and on super() after each of `starts` and before the next."""
    found: dict[int, tuple[dict[str, None], dict[str, None]]] = {}
    for which, pattern in enumerate((_SELF_CALL, _SUPER_CALL)):
        for match in pattern.finditer(data):
            index = bisect_right(starts, match.start()) - 1
            found.setdefault(index, ({}, {}))[which][match[1].decode()] = None
    return {index: (tuple(own), tuple(to_super)) for index, (own, to_super) in found.items()}


def _bases(text: bytes | None) -> tuple[str, ...]:
    if not text:
        return ()
    clean = _SUBSCRIPT.sub("", _COMMENT.sub(b"", text).decode("utf-8", "replace").replace("\n", " "))
    names = (part.strip() for part in clean.split(","))
    return tuple(name for name in names if re.fullmatch(r"[\w.]+", name))


def _imports(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in _IMPORT.finditer(data):
        module = match["module"].decode("utf-8", "replace")
        for part in _COMMENT.sub(b"", match["names"]).decode("utf-8", "replace").strip("() \t\r").split(","):
            words = part.split()
            if words and words[0].isidentifier():
                found[words[-1]] = f"{module}.{words[0]}" if not module.endswith(".") else module + words[0]
    return found
