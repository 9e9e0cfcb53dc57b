"""One voice: the words of docs/glossary.md, and sentences that a stranger reads once."""

from __future__ import annotations

import ast
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
FRAGMENT = re.compile(r"^ *[a-z_0-9]+: (of|that|whose|by) .*", re.MULTILINE)
"""An entry of Args or Attributes without a noun, such as ``seed: of the run``."""

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
                    yield Text(f"{name}:{child.lineno}", "attribute" if place else "docstring", text)
    if name.startswith(("src/verispec/cli/", "reference/contracts/")):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
                yield Text(f"{name}:{node.lineno}", "string", node.value)
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
    text = re.sub(r"^( {4,}| *>>>).*$", "", text, flags=re.M) if text.count("\n") else text
    return re.sub(r"\S*[\w\])][./=_](?=[\w(])\S*", "CODE", text)


def private_words(text: str) -> list[str]:
    """Return the private words in a text, each with the term to use."""
    plain = " ".join(quoted(text).split())
    return [
        f"{match[0]!r}: say {better}"
        for pattern, better in PRIVATE.items()
        for match in re.finditer(rf"(?<![\w-])(?:{pattern})(?![\w-])", plain)
    ]


def long_sentences(text: str) -> list[str]:
    """Return the sentences of more than `WORDS` words; formulas and code do not count as words."""
    found = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\s+[\w*, ]+: )|\n(?=\s*(?:[-*]|\d+\.) )", text):
        for sentence in re.split(r"(?<=[.;:!?])\)?\s+", quoted(paragraph)):
            words = re.findall(r"(?<!\S)[(\"']?[A-Za-z][A-Za-z'-]+[.,;:!?)\"']*(?!\S)", sentence)
            if len(words) > WORDS:
                found.append(" ".join(sentence.split()))
    return found


def fragments(text: str) -> list[re.Match[str]]:
    """Return the entries of a docstring's sections that begin without a noun."""
    return list(FRAGMENT.finditer(text)) if re.search(r"^ *(Args|Attributes|Raises):", text, re.MULTILINE) else []


def test_no_private_word(prose: list[Text]) -> None:
    wrong = [f"{text.where}: {word}" for text in prose for word in private_words(text.text)]
    assert not wrong, "\n".join(wrong)


def test_no_docstring_opens_with_a_question_word(prose: list[Text]) -> None:
    wrong = [f"{t.where}: {t.text.splitlines()[0]}" for t in prose if t.kind == "docstring" and OPENERS.match(t.text)]
    assert not wrong, "\n".join(wrong)


def test_every_documented_parameter_is_named_by_a_noun(prose: list[Text]) -> None:
    wrong = [f"{t.where}: {match[0].strip()}" for t in prose if t.kind == "docstring" for match in fragments(t.text)]
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


def test_the_checks_find_what_they_forbid() -> None:
    assert list(public_classes("class A:\n  class B: ...\nclass _C: ...\nclass A: ...")) == ["A", "A", "B"]
    assert private_words("Every draft is judged.") == ["'judged': say test, check"]
    assert private_words("Import `verispec.judge`, see verispec.judge or judge/_op.py.") == []
    assert private_words("One seed draws tokens a request.") == ["'tokens a request': say per"]
    assert OPENERS.match("What several oracles share.")
    assert OPENERS.match("Do the calls between kernels bind?")
    assert not OPENERS.match("Do not fork a process that has threads.")
    assert fragments("Draw.\n\nArgs:\n    seed: of the run.")
    assert not fragments("Draw.\n\nArgs:\n    seed: seed of the run.")
    assert long_sentences(" ".join(["word"] * (WORDS + 1)))
    assert not long_sentences(" ".join(["word"] * WORDS))
    assert not long_sentences("a = b + c " * WORDS + "is x[i] / 2.")
