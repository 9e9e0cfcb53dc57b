"""Place a mutant in a source file by tokens, so that neither layout nor the names of local variables matter.

The variables of a mutant's text stand for any variables of the file, the same one at each of its places. If several
places of the file have the same structure, the mutant names its place by number.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from verispec.reference import contracts

TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*|\# [^\n]*)|(?P<name>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)|(?P<text>\"[^\"\n]*\")"
    r"|->|::|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|\+=|-=|\*=|/=|\*\*|//|\S"
)
DECLARED = re.compile(r"(?<![\w.])(?:\w+|[>\])])(?:\s*[&*]+\s*|\s+)([a-z_]\w*)(?=\s*(?:[=;,:)\[{]|\())")
KEYWORDS = frozenset({
    "break", "case", "const", "continue", "default", "delete", "do", "else", "false", "for", "if", "new", "operator",
    "return", "sizeof", "static", "switch", "this", "true", "while",
})  # fmt: skip
"""Words of C++ that may stand where a name is declared."""


class Token(NamedTuple):
    """A token and its place in the text."""

    text: str
    start: int
    end: int


class Mutant(NamedTuple):
    """One fault.

    Attributes:
        clause: clause whose cases must fail.
        before: code of the file.
        after: code that replaces it, in terms of the same variables.
        place: number of the place, from 0, among those of the same structure.
    """

    clause: str
    before: str
    after: str
    place: int | None = None


def tokens(text: str) -> list[Token]:
    """Return the tokens of C++ or Python code, without whitespace and comments."""
    found = TOKEN.finditer(text)
    return [Token(match[0], match.start(), match.end()) for match in found if match["space"] is None]


def cpp_variables(text: str) -> frozenset[str]:
    """Return the names that a C++ file declares: variables and parameters."""
    return frozenset(DECLARED.findall(re.sub(r"//[^\n]*", "", text))) - KEYWORDS


def python_variables(text: str) -> frozenset[str]:
    """Return the names that the functions of a Python file bind, except their parameters."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    nodes = [node for function in functions for node in ast.walk(function)]
    return frozenset(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def variables_of(path: Path) -> Callable[[str], frozenset[str]]:
    """Return the function that lists a file's variables, without the parameters of its op, which the contract names."""
    listed = python_variables if path.suffix == ".py" else cpp_variables
    names = {param.name for param in contracts.load(path.stem).params}
    fixed = names | {name.removesuffix("_ptr") for name in names}
    return lambda text: listed(text) - fixed


def is_variable(code: Sequence[Token], at: int, variables: frozenset[str]) -> bool:
    """Return True if token `at` is one of `variables`, and not a member of something."""
    return code[at].text in variables and not is_member(code, at)


def is_member(code: Sequence[Token], at: int) -> bool:
    """Return True if token `at` follows a dot, an arrow or a scope."""
    return at > 0 and code[at - 1].text in (".", "->", "::")


def places(
    source: Sequence[Token], pattern: Sequence[Token], of_source: frozenset[str], of_pattern: frozenset[str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each place of `pattern` in `source`, with the source's variable for each of the pattern's."""
    for start in range(len(source) - len(pattern) + 1):
        names: dict[str, str] = {}
        for i, token in enumerate(pattern):
            other = source[start + i].text
            if not is_variable(pattern, i, of_pattern):
                if token.text != other:
                    break
            elif not is_variable(source, start + i, of_source) or names.setdefault(token.text, other) != other:
                break
        else:
            if len(set(names.values())) == len(names):
                yield start, names


def renamed(text: str, variables: frozenset[str], names: Mapping[str, str]) -> str:
    """Return `text` with its `variables` under other names."""
    code, out, end = tokens(text), [], 0
    for i, token in enumerate(code):
        out.append(text[end : token.start])
        out.append(names.get(token.text, token.text) if is_variable(code, i, variables) else token.text)
        end = token.end
    return "".join([*out, text[end:]])


def mutated(text: str, mutant: Mutant, variables: Callable[[str], frozenset[str]], known: Sequence[Mutant] = ()) -> str:
    """Return the source with the mutant in it.

    Args:
        text: the source, whose variables may have other names than the mutant's.
        mutant: the fault.
        variables: lists the variables of a source.
        known: all mutants of the file; their places show the names of variables that only `after` has.

    Raises:
        AssertionError: the file has no such place, or several and the mutant has no number.
    """
    source, own = tokens(text), variables(text)
    there = {token.text for at, token in enumerate(source) if not is_member(source, at)}
    names: dict[str, str] = {}
    for other in [*known, mutant]:
        pattern = tokens(other.before)
        # A name that is nowhere in the file is one that the file has under another name.
        found = list(places(source, pattern, own, own | {t.text for t in pattern if t.text not in there}))
        if other is mutant:
            assert found, f"{mutant.clause}: no place has the structure of {mutant.before!r}"
            assert mutant.place is not None or len(found) == 1, f"{mutant.clause}: {len(found)} x {mutant.before!r}"
        if found and (other.place is not None or len(found) == 1):
            start, here = found[other.place or 0]
            names |= here
    first, last = source[start].start, source[start + len(pattern) - 1].end
    # The first token keeps the indentation of the file.
    return text[:first] + renamed(mutant.after.strip(), frozenset(names), names) + text[last:]
