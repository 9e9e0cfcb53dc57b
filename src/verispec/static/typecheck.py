"""Pyrefly's errors in plain Python that a change adds: errors of the new tree that the old one does not have.

Pyrefly reads both trees with nothing installed. An error is kept if the change brings it and its kind concerns a call,
an override or a name that no longer fits.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from verispec import exits
from verispec.errors import VerispecError
from verispec.static.affected import affected
from verispec.static.built_modules import BuiltModules
from verispec.static.finding import Finding, Level, Location, Side, fingerprint
from verispec.static.ignores import is_silenced, read_ignores
from verispec.static.import_roots import import_roots
from verispec.static.tree import Tree, content_of, is_test
from verispec.static.type_evidence import ChangeEvidence, counts_arguments, has_open_arguments, is_for_types_alone

KINDS: Final = {
    "unexpected-keyword": "SIG601",
    "missing-argument": "SIG601",
    "bad-argument-count": "SIG601",
    "bad-keyword-argument": "SIG601",
    "no-matching-overload": "SIG601",
    "not-callable": "SIG601",
    "bad-unpacking": "SIG701",
    "bad-override": "SIG602",
    "bad-override-param-name": "SIG602",
    "missing-attribute": "SIG603",
    "missing-module-attribute": "SIG603",
    "missing-import": "SIG603",
    "unknown-name": "SIG603",
    "bad-typed-dict-key": "SIG603",
}
"""Kinds of Pyrefly's errors that concern this checker, and their rules."""

_WARNINGS: Final = frozenset({"no-matching-overload", "bad-override-param-name"})
_UNSURE: Final = re.compile(
    r"`NoneType`|`object`|`object\.__(?:init|new)__`|Object of class `(?:Module|Tensor|str|int|dict|list|tuple)`"
)
"""Stubs of packages that a tree needs and that are not installed, and constructors that only such a package makes."""

_PLAIN: Final = re.compile(r"got `(?:bool|int|float|str)`")
"""Results of a property, which a method was before."""


@dataclass(frozen=True, slots=True)
class TypeFault:
    """One error of the type checker; equal in two trees if nothing but lines moved."""

    kind: str
    path: str
    text: str
    line: int
    detail: str
    column: int = 0


def is_available() -> bool:
    """Return True if Pyrefly is installed."""
    return _program() is not None


def new_faults(
    tree: Tree, before: Tree, host: Tree | None, host_before: Tree | None, cache: Path
) -> tuple[Finding, ...]:
    """Return the faults that `tree` has and `before` has not, each read together with its host.

    Args:
        tree: the plugin.
        before: an older version of it.
        host: tree that the plugin extends; None for none.
        host_before: host of the older version.
        cache: folder of Pyrefly's results.

    Raises:
        VerispecError: V-TYPES-MISSING without Pyrefly, V-TYPES-FAILED if it fails.
    """
    paths = affected(tree, before, host, host_before)
    with ThreadPoolExecutor(2) as pool:
        # Pyrefly is a program of its own: both trees are checked at once.
        runs = [pool.submit(_faults, *pair, paths, cache) for pair in ((tree, host), (before, host_before))]
        faults, old = (run.result() for run in runs)
    known = Counter((fault.kind, fault.path, fault.text) for fault in old)
    counted = Counter((fault.kind, fault.path, fault.text) for fault in faults)
    # An error that vanished at one place and appears at another has moved with its code.
    moves = Counter[tuple[str, str]]()
    for (kind, _, text), number in (known - counted).items():
        moves[kind, _without_modules(text)] += number
    sources = {file.path: file for file in tree.files()}
    fresh = []
    for fault in faults:
        key = (fault.kind, fault.path, fault.text)
        if known[key] > 0:
            known[key] -= 1
        elif not is_test(fault.path) and fault.path in sources:
            fresh.append(fault)
    found = []
    built = BuiltModules(tree)
    evidence = ChangeEvidence(
        [tree, *([host] if host is not None else [])], [before, *([host_before] if host_before is not None else [])]
    )
    older, present = ({file.path for file in part.files()} for part in (before, tree))
    for fault in fresh:
        moved = (fault.kind, _without_modules(fault.text))
        if moves[moved] > 0:
            moves[moved] -= 1
            continue
        module = _missing(fault)
        # Tests and examples are not given to the type checker.
        if module and (_is_among(module, present) or (not _is_among(module, older) and built.holds(module))):
            continue
        source = sources[fault.path].read()
        level = _level(fault, source, evidence)
        if level is None:
            continue
        finding = _finding(fault, source, level)
        if not is_silenced(finding, read_ignores(source)):
            found.append(finding)
    return tuple(found)


def _missing(fault: TypeFault) -> str:
    """Return the module that a fault says is missing; empty if it is about something else."""
    names = re.findall(r"`([\w.]+)`", fault.text)
    if fault.kind == "missing-import" and names:
        return str(names[0])
    imported = re.match(r"Could not import `(\w+)` from `([\w.]+)`", fault.text)
    return f"{imported[2]}.{imported[1]}" if imported else ""


def _is_among(module: str, paths: Collection[str]) -> bool:
    path = module.replace(".", "/")
    return any(f"{top}{path}{end}" in paths for top in ("", "src/", "python/") for end in (".py", "/__init__.py"))


def _without_modules(text: str) -> str:
    """Return a description without the modules of names, which change when code moves."""
    return re.sub(r"(?:\w+\.)+(?=\w)", "", text)


def _level(fault: TypeFault, source: bytes, evidence: ChangeEvidence) -> Level | None:
    """Return the level of a fault; None if the type checker only guesses."""
    if is_for_types_alone(source, fault.line, fault.column):
        return Level.NOTE
    if counts_arguments(fault.kind) and has_open_arguments(source, fault.line, fault.column):
        return None
    if fault.kind in _WARNINGS:
        return Level.WARNING
    if fault.kind == "missing-attribute":
        return evidence.of_attribute(fault.text)
    if fault.kind == "missing-module-attribute":
        return evidence.of_import(fault.text) and evidence.of_attribute(fault.text)
    if fault.kind == "bad-override":
        return evidence.of_override(fault.text)
    if fault.kind == "bad-unpacking":
        return evidence.of_unpacking(fault.text, source, fault.line, fault.column)
    if KINDS[fault.kind] == "SIG601":
        return evidence.of_call(fault.text, fault.path, source, fault.line, fault.column)
    return Level.ERROR


def _finding(fault: TypeFault, source: bytes, level: Level) -> Finding:
    rule = KINDS[fault.kind]
    here = Location(fault.path, fault.line)
    scope = f"{fault.path.removesuffix('.py').replace('/', '.')}.{scope_at(source, fault.line)}".rstrip(".")
    lines = source.splitlines()
    text = lines[fault.line - 1].decode("utf-8", "replace").strip() if 0 < fault.line <= len(lines) else ""
    return Finding(
        rule,
        level,
        fault.text,
        here,
        scope,
        (Side("code", here, text), Side("type checker", here, fault.detail)),
        _FIXES[rule],
        fingerprint(rule, scope, fault.kind, fault.text),
        scope,
    )


_FIXES: Final = {
    "SIG601": "bring the call and the signature to the same parameters",
    "SIG602": "give the override the parameters of its base's method",
    "SIG603": "use the present name, or restore the old one",
    "SIG701": "unpack as many values as there are",
}


def scope_at(source: bytes, line: int) -> str:
    """Return the dotted name of the function or class around `line` of `source`; empty at module level."""
    try:
        node: ast.AST = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    names: list[str] = []
    inside = True
    while inside:
        inside = False
        for child in ast.walk(node):
            if child is node or not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            if child.lineno <= line <= (child.end_lineno or child.lineno):
                names.append(child.name)
                node, inside = child, True
                break
    return ".".join(names)


def _faults(tree: Tree, host: Tree | None, paths: frozenset[str] | None, cache: Path) -> tuple[TypeFault, ...]:
    """Return the errors in some files of a tree (all if `paths` is None), from the cache if it has them."""
    program = _program()
    if program is None:
        raise VerispecError(
            "V-TYPES-MISSING", "--types needs Pyrefly, which is not installed", hint="pip install verispec[types]"
        )
    wanted = None if paths is None else sorted(paths.intersection(file.path for file in tree.files()))
    if wanted == []:
        return ()
    key = _key(tree, host, program, wanted)
    kept = cache / f"{key}.json"
    if key and kept.is_file():
        try:
            return tuple(TypeFault(**fault) for fault in json.loads(kept.read_text()))
        except (OSError, ValueError, TypeError):
            pass
    with tempfile.TemporaryDirectory(prefix="verispec-types-") as folder:
        roots = [_write(tree, Path(folder) / "tree")]
        below, packages = import_roots(tree)
        search = [*(roots[0] / root for root in below), roots[0]]
        if host is not None:
            roots.append(_write(host, Path(folder) / "host"))
            search += [*(roots[1] / root for root in import_roots(host)[0]), roots[1]]
        faults = tuple(_relevant(_run(program, roots[0], search, wanted), roots[0], packages))
    if key:
        cache.mkdir(parents=True, exist_ok=True)
        temporary = kept.with_name(f"{kept.name}.{os.getpid()}")
        names = TypeFault.__slots__
        temporary.write_text(json.dumps([{name: getattr(fault, name) for name in names} for fault in faults]))
        temporary.replace(kept)
    return faults


def _program() -> str | None:
    beside = Path(sys.executable).with_name("pyrefly")
    return str(beside) if beside.is_file() else shutil.which("pyrefly")


def _key(tree: Tree, host: Tree | None, program: str, wanted: list[str] | None) -> str:
    state = Path(program).stat()
    digest = hashlib.blake2b(
        f"roots {state.st_size} {state.st_mtime_ns} {sorted(KINDS)} {_UNSURE.pattern} {_PLAIN.pattern}".encode(),
        digest_size=16,
    )
    digest.update(json.dumps(wanted).encode())
    for part in (tree, host):
        digest.update(b"\0\0")
        for file in sorted(part.files(), key=lambda file: file.path) if part is not None else ():
            if file.path.endswith(".py"):
                if not file.blob:
                    return ""
                digest.update(f"{file.path}\0{file.blob}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _write(tree: Tree, root: Path) -> Path:
    """Write the Python files of a tree below `root`; tests are left out, since nothing is reported there."""
    root.mkdir()
    made: set[Path] = set()
    for file in tree.files():
        if not file.path.endswith(".py") or is_test(file.path) or ".." in file.path.split("/"):
            continue
        path = root / file.path
        if path.parent not in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.add(path.parent)
        if (content := content_of(file)) is not None:
            path.write_bytes(content)
    return root


def _run(program: str, root: Path, search: list[Path], wanted: list[str] | None) -> list[dict[str, Any]]:
    """Return Pyrefly's errors in `root`; it reads other files in `search` as far as the wanted ones need them."""
    config = root.parent / "pyrefly.toml"
    names = ["**/*.py"] if wanted is None else [re.sub(r"[\[*?]", "?", path) for path in wanted]
    includes = [f"{root.name}/{name}" for name in names]
    lines = [
        f"project-includes = {json.dumps(includes)}",
        f"search-path = {json.dumps([str(path) for path in search if path.is_dir()])}",
        'python-version = "3.12"',
        'python-platform = "linux"',
        "site-package-path = []",
        "skip-interpreter-query = true",
        "use-ignore-files = false",
    ]
    config.write_text("\n".join(lines) + "\n")
    words = [program, "check", "--config", str(config), "--output-format", "json", "--summary=none"]
    done = subprocess.run(words, cwd=config.parent, capture_output=True, check=False)
    try:
        errors = json.loads(done.stdout)["errors"]
    except (ValueError, KeyError, TypeError) as error:
        raise VerispecError(
            "V-TYPES-FAILED",
            "Pyrefly gave no answer",
            cause=done.stderr.decode("utf-8", "replace").strip()[-500:] or str(error),
            hint="leave --types out, and report this with the version of Pyrefly",
            exit_code=exits.CANNOT_TELL,
        ) from error
    return list(errors)


def _relevant(errors: Iterable[dict[str, Any]], root: Path, packages: frozenset[str]) -> Iterable[TypeFault]:
    for error in errors:
        text = error["concise_description"]
        kind = error["name"]
        if kind not in KINDS or _UNSURE.search(text):
            continue
        # The type of a function that a package may provide is not known well enough.
        if kind == "not-callable" and not _PLAIN.search(text):
            continue
        if kind == "missing-import":
            missing = re.search(r"`([\w.]+)`", text)
            if missing is None or missing[1].partition(".")[0] not in packages:
                continue
        path = Path(error["path"])
        relative = path.relative_to(root) if path.is_absolute() else path.relative_to(root.name)
        detail = " ".join(error["description"].split()).replace(str(root), "").replace(text, "", 1).strip()
        place = error["line"], detail or text, error.get("column", 0)
        yield TypeFault(kind, relative.as_posix(), text.replace(str(root), ""), *place)
