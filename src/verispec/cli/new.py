"""``verispec new``: write the skeleton of an engine adapter or of an op."""

from __future__ import annotations

import contextlib
import errno
import json
import re
import shlex
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from verispec import exits
from verispec.errors import VerispecError
from verispec.reference import contracts
from verispec.terminal import columns, wrapped

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="Name of the engine or op: letters, digits, blanks, - and _.")]
Folder = Annotated[Path, typer.Option("--in", help="Folder to write into; it is made if it is missing.")]
SuiteFolder = Annotated[
    Path, typer.Option("--in", help="Folder of the suite to write into; it is made if it is missing.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
CLAUSE_LETTERS = 3
_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk, which are not the user's mistake."""
_ABOUT_OPS = ("verispec ops", "verispec explain expand_batch_to_tokens", "verispec explain whole_sampler")


@app.callback()
def new() -> None:
    """Write the skeleton of an engine adapter or of an op. It passes its tests as it is.

    Examples:

        verispec new engine "my engine" --in verispec_tests

        verispec new op cap_draft_tokens --in suites/mine
    """


@app.command()
def engine(name: Name, folder: Folder = Path(), as_json: Json = False) -> None:
    """Write an adapter with one op, a pytest gate and an empty list of known failures."""
    module = identifier(name)
    written = write(
        folder,
        {
            f"{module}.py": "engine.py",
            f"test_{module}.py": "test_engine.py",
            "known_failures.toml": "known_failures.toml",
        },
        name=name,
        module=module,
    )
    there = [] if folder == Path() else [f"cd {shlex.quote(str(folder))}"]
    run = f"verispec run --engine {module}:Engine"
    steps = [
        NextStep(
            "See one op pass. It is written in plain PyTorch.", *there, f"{run} --only sampler/expand_batch_to_tokens"
        ),
        NextStep(f"Call your engine's own kernel in expand_batch_to_tokens() of {module}.py, and run this again."),
        NextStep("Add further ops to OPS, or a sampler or a generator. These say what there is:", *_ABOUT_OPS),
        NextStep("Check all of it against the protocol:", f"verispec engines {module}:Engine"),
        NextStep(
            "Test all of it. The gate does the same, less the failures of known_failures.toml:",
            run,
            f"pytest test_{module}.py",
        ),
    ]
    say(written, steps, as_json=as_json)


@app.command()
def op(name: Name, folder: SuiteFolder = Path("my_suite"), as_json: Json = False) -> None:
    """Write the contract, the oracle and the suite of an op in one file."""
    module = identifier(name)
    if module in contracts.names():
        raise VerispecError(
            "V-NEW-NAME",
            f"verispec has an op {module!r}, with its contract and suite",
            where="NAME",
            hint=f"choose another name, or test that op: verispec explain {module}",
        )
    require_suite(folder)
    written = write(
        folder, {f"test_{module}.py": "op.py"}, name=module, folder=str(folder), prefix=clause_prefix(module)
    )
    steps = [
        NextStep(f"Write contract, oracle and cases into {written[0]}. As it is, the output is twice the input."),
        NextStep(
            f"Have op({module!r}) of your engine return the function. If there is no engine yet, this writes one:",
            "verispec new engine NAME",
        ),
        NextStep(
            "Test it; MODULE is the engine's module:",
            f"verispec run --engine MODULE:Engine --suite {shlex.quote(str(folder))}",
        ),
    ]
    say(written, steps, as_json=as_json)


class NextStep:
    """A next step: what to do, and the commands for it, which are printed on lines of their own to be copied."""

    def __init__(self, text: str, *commands: str) -> None:
        self.text, self.commands = text, commands


def say(written: list[Path], steps: list[NextStep], *, as_json: bool) -> None:
    """Print the files that were written and the next steps."""
    if as_json:
        told = [{"text": step.text, "commands": step.commands} for step in steps]
        print(json.dumps({"written": [str(path) for path in written], "next": told}, indent=2))
        return
    lines = [*(f"written: {path}" for path in written), "next:"]
    for number, step in enumerate(steps, start=1):
        lines += wrapped(f"{number}. {step.text}", columns(), first=2, rest=5)
        lines += [f"     {command}" for command in step.commands]
    print("\n".join(lines))


def require_suite(folder: Path) -> None:
    """Raise VerispecError V-NEW-SUITE if `folder` has tests that are not cases: a run of the suite would fail."""
    others = [path.name for path in sorted(folder.glob("test_*.py")) if "verispec.cases" not in path.read_text("utf-8")]
    if others:
        raise VerispecError(
            "V-NEW-SUITE",
            f"the folder has tests that are no cases, such as {others[0]}, and a suite has nothing else",
            where=str(folder),
            hint="choose a folder of its own: --in my_suite",
        )


def identifier(name: str) -> str:
    """Return `name` as a Python identifier: "my engine" becomes my_engine.

    Raises:
        VerispecError: V-NEW-NAME, nothing is left that an identifier could begin with.
    """
    found = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower()
    if not found or not found[0].isalpha():
        raise VerispecError(
            "V-NEW-NAME", f"{name!r} gives no Python identifier", where="NAME", hint="begin with a letter: my_engine"
        )
    return found


def clause_prefix(name: str) -> str:
    """Return three capital letters for the clause ids of the op `name` that no other op uses."""
    used = {clause.id.partition("-")[0] for op in contracts.names() for clause in contracts.load(op).clauses}
    letters = re.sub(r"[^a-z]", "", name).upper().ljust(CLAUSE_LETTERS, "X")
    initials = "".join(word[0] for word in name.upper().split("_") if word[:1].isalpha())
    for prefix in (initials[:CLAUSE_LETTERS], letters[:CLAUSE_LETTERS], letters[:1] + letters[-2:]):
        if len(prefix) == CLAUSE_LETTERS and prefix not in used:
            return prefix
    return next(f"{letters[:2]}{last}" for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if f"{letters[:2]}{last}" not in used)


def write(target: Path, files: dict[str, str], **words: str) -> list[Path]:
    """Fill the templates `files` (by file name) with `words` and write them; write nothing if one file is there.

    Raises:
        VerispecError: V-NEW-EXISTS, a file is there already; V-NEW-WRITE, the folder cannot be written.
    """
    for file in files:
        if (target / file).exists():
            raise VerispecError(
                "V-NEW-EXISTS",
                "the file is there already",
                where=str(target / file),
                hint="choose another name or --in",
            )
    templates = resources.files("verispec") / "templates"
    written: list[Path] = []
    new_folders = [folder for folder in (target, *target.parents) if not folder.exists()]
    try:
        target.mkdir(parents=True, exist_ok=True)
        for file, template in files.items():
            text = (templates / f"{template}.txt").read_text(encoding="utf-8").format(**words)
            written.append(target / file)
            written[-1].write_text(text, encoding="utf-8")
    except OSError as error:
        with contextlib.suppress(OSError):  # leave nothing behind
            for path in written:
                path.unlink(missing_ok=True)
            for folder in new_folders:  # the innermost is first
                folder.rmdir()
        raise VerispecError(
            "V-NEW-WRITE",
            "the skeleton cannot be written",
            where=str(target),
            cause=error.strerror or str(error),
            hint="name a folder that can be made and written",
            exit_code=exits.CANNOT_TELL if error.errno in _FULL else exits.USAGE,
        ) from error
    return written
