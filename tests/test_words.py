"""One voice: the words of docs/glossary.md, and sentences that a stranger reads once."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "reference", "suites", "tools", "benchmarks", "examples", "tests", "docs")
WORDS = 25
"""Maximum number of words per sentence."""

PRIVATE = {
    r"placeholder (draft|token)s?": "padding token",
    r"counted (random )?numbers?": "counter-based RNG",
    r"request-state family": "slot-indexed batch",
    r"flat family": "packed batch",
    r"whole[- ]samplers?": "end-to-end sampler",
    r"[Tt]eachers?": "float64 reference model",
    r"hostile": "adversarial",
    r"seeded faults?": "mutant",
    r"the zoo": "fault-injected engines",
    r"mend(s|ed|ing)?": "fix",
    r"guilty": "culprit",
    r"grafts?": "kernel substitution",
    r"(leave|left|leaves) away": "omit",
    r"as (it|they) stands?": "unmodified",
    r"whoever": "the caller",
    r"in the place of": "instead of",
    r"engines?( does not)? tells?": "report",
    r"nobody|no one": "name the user, the caller or the code",
    r"(is|are|was|were|be) (told|said)|tells? of": "report",
    r"return whether": "Return True if",
    r"of (its|their) own accord": "by itself",
    r"(tokens|drafts|programs?|rows?|entries|blocks|values|one|lanes?|lines?) an? "
    r"((prompt )?token|request|step|row|draft|second|op|case|rank|mutant)": "per",
    r"judge[sd]?|judging|judge?ments?": "test, check",
    r"verdicts?": "result, report",
    r"run files?": "results file",
    r"stand-ins?": "stub",
    r"live signatures?": "runtime signature",
    r"static gate": "static checker",
    r"false alarm budget|budget of false alarms": "family-wise error rate",
}
"""Private words, as patterns of whole words, and the field's term for each."""

OPENERS = re.compile(r"(What|Whether|How|Which|Where|Who|Whose|Whoever|Why|(Is|Are|Do|Does|Can|Has)(?=[^.]*\?))\b")
FRAGMENT = re.compile(
    r"^ +\w[\w, ]*: (of|that|whose|by|in|under|after|before|at|on|with|without|from|for|to|as|if|where|when|whether|"
    r"how|what|which|once|only|see|receives|returns|takes|loads|"
    r"\w+ed (with|by|from|in|on|to|before|after|as|at|for))\b.*",
    re.MULTILINE | re.IGNORECASE,
)
"""An entry of Args or Attributes without a noun, such as ``seed: of the run`` or ``count: how many there are``."""

HEADLESS = re.compile(
    r"(\b(Return|Yield|Receive|Print|Read|Load|Gather|Write|Record|Run|Copy|Remove|Append|Take in|"
    r"and|or|of|by|from|to|than|for|with|after)|[;,]) what (?!was expected)[^.;:]*",
)
"""A clause without a head: "Return what differs", "the tables of what replaces what", "and what it needs"."""

CODE = re.compile(r"(?<=\n\n)(?:(?: {4,}| *>>>).*\n?|\n(?= {4}))+")
"""A block of code: indented lines after an empty line."""

ERRORS = {"VerispecError", "Diagnostic", "cannot", "wrong"}
"""Makers of errors, whose texts are prose."""
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Text(NamedTuple):
    """A piece of prose with its place."""

    where: str
    kind: str
    text: str


def python_texts(path: Path) -> Iterator[Text]:
    """Yield the docstrings, comments and, for the command line and contracts, string literals of a module."""
    source = path.read_text("utf-8")
    name = path.relative_to(ROOT).as_posix()
    documented: set[int] = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for place, child in enumerate(getattr(node, "body", None) or [] if isinstance(node, DOCUMENTED) else []):
            match child:
                case ast.Expr(value=ast.Constant(value=str(text)) as constant):
                    documented.add(id(constant))
                    yield Text(f"{name}:{child.lineno}", "attribute" if place else "docstring", inspect.cleandoc(text))
    if name.startswith(("src/verispec/cli/", "reference/contracts/")):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
                yield Text(f"{name}:{node.lineno}", "string", node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield Text(f"{name}:{part.lineno}", "error", part.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(f"{name}:{token.start[0]}", "comment", token.string.lstrip("# "))


def cpp_texts(path: Path) -> Iterator[Text]:
    """Yield the line comments of a C++ file."""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        _, found, comment = line.partition("// ")
        if found:
            yield Text(f"{path.relative_to(ROOT).as_posix()}:{number}", "comment", comment)


def markdown_texts(path: Path) -> Iterator[Text]:
    """Yield the paragraphs and list items of a page, without code, tables, links' targets and quotations."""
    name = path.relative_to(ROOT).as_posix()
    text = re.sub(r"^(```|:::)[\s\S]*?^(```|:::)", "", path.read_text("utf-8"), flags=re.M)
    text = re.sub(r"^( {4}.*|\|.*|>.*|#.*|\(.*\)=)$", "", text, flags=re.M)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        if paragraph.strip():
            yield Text(f"{name}: {' '.join(paragraph.split())[:60]}", "page", paragraph)


def texts() -> list[Text]:
    """Return all prose of the project, except rendered results."""
    found: list[Text] = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(("docs/verdicts/", "docs/_build/", "tests/snapshots/")) or not path.is_file():
                continue
            if name in {"docs/style.md", "docs/glossary.md", "tests/test_words.py"}:
                continue
            if path.suffix == ".py":
                found += python_texts(path)
            elif path.suffix in {".cpp", ".h"}:
                found += cpp_texts(path)
            elif path.suffix == ".md":
                found += markdown_texts(path)
    for name in ("README.md", "CONTRIBUTING.md"):
        found += markdown_texts(ROOT / name)
    return found


@pytest.fixture(scope="module")
def prose() -> list[Text]:
    return texts()


def quoted(text: str) -> str:
    """Return the text without code: names in backticks, indented blocks, doctests and dotted names."""
    text = re.sub(r"``[^`]*``|`[^`]*`|\"[^\"\n]*\"", "CODE", text)
    text = CODE.sub("\n", text)
    text = re.sub(r"\[(\w+,?)+\]'?(?=$|[;,])", "", text)
    return re.sub(r"\S*[\w\])][./=_](?=[\w(])\S*?(?=[.,;:]?(\s|$))", "CODE", text)


def private_words(text: str) -> list[str]:
    """Return the private words in a text, each with the term to use."""
    plain = " ".join(re.sub(r"^ +[\w, ]+:", "", quoted(text), flags=re.M).split())
    return [
        f"{match[0]!r}: say {better}"
        for pattern, better in PRIVATE.items()
        for match in re.finditer(rf"(?<![\w-])(?:{pattern})(?![\w-])", plain)
    ]


def long_sentences(text: str) -> list[str]:
    """Return the sentences of more than `WORDS` words; formulas and code do not count as words."""
    found = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\s+[\w*, ]+: )|\n(?=\s*(?:[-*]|\d+\.) )", quoted(text)):
        for sentence in re.split(r"(?<=[.;:!?])\)?\s+", paragraph):
            words = re.findall(r"(?<!\S)[(\"']?[A-Za-z][A-Za-z'-]+[.,;:!?)\"']*(?!\S)", sentence)
            if len(words) > WORDS:
                found.append(" ".join(sentence.split()))
    return found


def fragments(text: str) -> list[re.Match[str]]:
    """Return the entries of a docstring's sections that begin without a noun."""
    sections = re.split(r"^ *(?:Returns|Raises):", text, flags=re.MULTILINE)[0]
    return list(FRAGMENT.finditer(sections)) if re.search(r"^ *(Args|Attributes):", text, re.MULTILINE) else []


def test_no_private_word(prose: list[Text]) -> None:
    wrong = [f"{text.where}: {word}" for text in prose for word in private_words(text.text)]
    assert not wrong, "\n".join(wrong)


def test_no_docstring_opens_with_a_question_word(prose: list[Text]) -> None:
    wrong = [f"{t.where}: {t.text.splitlines()[0]}" for t in prose if t.kind == "docstring" and OPENERS.match(t.text)]
    assert not wrong, "\n".join(wrong)


def test_every_documented_parameter_is_named_by_a_noun(prose: list[Text]) -> None:
    wrong = [f"{t.where}: {match[0].strip()}" for t in prose if t.kind == "docstring" for match in fragments(t.text)]
    assert not wrong, "\n".join(wrong)


def headless(text: str) -> list[str]:
    """Return the clauses without a head in a docstring, such as "Return what differs" and "and what it needs"."""
    return [match[0] for match in HEADLESS.finditer(" ".join(quoted(text).split()))]


def test_no_docstring_has_a_clause_without_a_head(prose: list[Text]) -> None:
    kinds, rooms = {"docstring", "attribute"}, ("src/", "reference/", "suites/", "tools/", "benchmarks/", "docs/")
    wrong = [
        f"{t.where}: {clause}"
        for t in prose
        if t.kind in kinds and t.where.startswith(rooms)
        for clause in headless(t.text)
    ]
    assert not wrong, "\n".join(wrong)


def test_sentences_are_short(prose: list[Text]) -> None:
    wrong = [
        f"{text.where}: {sentence}"
        for text in prose
        if text.kind in {"docstring", "page"}
        for sentence in long_sentences(text.text)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_constant_opens_with_a_question_word(prose: list[Text]) -> None:
    wrong = [f"{t.where}: {t.text.splitlines()[0]}" for t in prose if t.kind == "attribute" and OPENERS.match(t.text)]
    assert not wrong, "\n".join(wrong)


def public_classes(source: str) -> Iterator[str]:
    """Yield the public classes of a module, those inside of other classes included."""
    for node in ast.walk(ast.parse(source)):
        for child in node.body if isinstance(node, (ast.Module, ast.ClassDef)) else []:
            if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
                yield child.name


def test_no_class_name_is_used_for_two_things() -> None:
    places: dict[str, list[str]] = {}
    for folder in ("src", "reference", "suites"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name in public_classes(path.read_text("utf-8")):
                places.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert len(places) > 300
    assert not twice


def defined_twice(source: str) -> list[str]:
    """Return the names of a module that two of its assignments, functions or classes define."""
    names: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.append(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found = [n for target in targets if target for n in ast.walk(target) if isinstance(n, ast.Name)]
        names += [name.id for name in found if isinstance(name.ctx, ast.Store)]
    return sorted({name for name in names if names.count(name) > 1})


def test_no_module_defines_a_name_twice() -> None:
    """A constant that another test of the file gets by chance changes what that test judges."""
    paths = [path for folder in ("src", "reference", "suites") for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {path.relative_to(ROOT).as_posix(): defined_twice(path.read_text("utf-8")) for path in paths}
    assert {path: names for path, names in found.items() if names} == {}


def test_the_checks_find_what_they_forbid() -> None:
    assert defined_twice("A, B = 1, 2\nB: int = 3\ndef f(): ...\nA.x = 1\nfor f in A: ...") == ["B", "f"]
    assert list(public_classes("class A:\n  class B: ...\nclass _C: ...\nclass A: ...")) == ["A", "A", "B"]
    assert private_words("Every draft is judged.") == ["'judged': say test, check"]
    assert private_words("Import `verispec.judge`, see verispec.judge or judge/_op.py.") == []
    assert private_words("Run.\n\nA draft is judged.\n\nArgs:\n    seed: seed that is judged.") == 2 * [
        "'judged': say test, check"
    ]
    assert private_words("Run:\n\n    judged = 1\n\n    judged = 2\n\nIt is right.") == []
    assert private_words("One seed draws tokens a request.") == ["'tokens a request': say per"]
    assert OPENERS.match("What several oracles share.")
    assert OPENERS.match("Do the calls between kernels bind?")
    assert not OPENERS.match("Do not fork a process that has threads.")
    assert fragments("Draw.\n\nArgs:\n    seed: of the run.")
    assert fragments("Draw.\n\nAttributes:\n    count: how many are drawn.")
    assert not fragments("Draw.\n\nArgs:\n    seed: seed of the run.")
    assert not fragments("Draw.\n\nArgs:\n    seed: a seed.\n\nRaises:\n    ValueError: for a bad seed.")
    assert headless("Return what differs.") == ["Return what differs"]
    assert headless("Yield the op, and what it\nneeds: a tensor.") == ["and what it needs"]
    assert not headless("Return the difference of what_it and `what`.")
    assert long_sentences(" ".join(["word"] * (WORDS + 1)))
    assert not long_sentences(" ".join(["word"] * WORDS))
    assert not long_sentences("a = b + c " * WORDS + "is x[i] / 2.")
