"""Reading of files in processes: choice of the files, depth of reading, and cache."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from verispec.errors import Diagnostic
from verispec.static.cache import FactCache, uncollected
from verispec.static.facts import CPP, CRASHED, PYTHON, UNREADABLE, FileFacts
from verispec.static.forking import can_fork, processors
from verispec.static.tree import SourceFile, is_test

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

_PARALLEL_FROM: Final = 1 << 20
_Work = tuple[str, bytes, bool, bool, FileFacts | None]


def relevant(path: str) -> bool:
    """Return True if a file `path` of this ending can contain anything that the rules read."""
    return path.endswith((*PYTHON, *CPP))


def read_all(
    files: Sequence[SourceFile],
    cache: FactCache,
    report: Callable[[Diagnostic], None],
    *,
    deep: bool = False,
    calls: bool = False,
    shallow: Mapping[str, FileFacts] | None = None,
) -> dict[str, FileFacts]:
    """Return the summaries of `files` by path. A file that cannot be read is reported and omitted.

    Args:
        files: files of the tree.
        cache: cache of summaries by content.
        report: function that receives a diagnostic per file that cannot be read.
        deep: True reads syntax trees, as in `readers.extraction.facts`.
        calls: True keeps calls, as in `readers.extraction.facts`.
        shallow: summaries of the same files that were read less deeply, by path.
    """
    found: dict[str, FileFacts] = {}
    work: list[_Work] = []
    blobs: dict[str, str] = {}
    for file in files:
        key = f"{file.blob}{file.path.endswith(PYTHON)}{is_test(file.path)}" if file.blob else ""
        known = cache.get(key, deep=deep, calls=calls)
        if known is not None:
            found[file.path] = known
            continue
        try:
            data = file.read()
        except OSError as error:
            report(Diagnostic(UNREADABLE, "the file could not be read", file.path, str(error), "check the tree"))
            continue
        work.append((file.path, data, deep, calls, shallow.get(file.path) if shallow else None))
        blobs[file.path] = key
    for path, facts_ in _run(work):
        found[path] = facts_
        if facts_.problem is None or facts_.problem[0] != CRASHED:
            cache.put(blobs[path], facts_)
    for path, facts_ in found.items():
        if facts_.problem is not None:
            code, message, cause, hint = facts_.problem
            report(Diagnostic(code, message, path, cause, hint))
    return found


def _run(work: list[_Work]) -> Iterable[tuple[str, FileFacts]]:
    """Return the `facts` of every item, on all processors if there is enough to do.

    The children are forked, so they inherit the sources instead of receiving them.
    """
    if not work:
        return []
    import multiprocessing

    if sum(len(item[1]) for item in work) < _PARALLEL_FROM or not can_fork():
        return _read_share(work)
    work = sorted(work, key=lambda item: len(item[1]))
    count = processors()
    shares = [work[start::count] for start in range(count)]
    context = multiprocessing.get_context("fork")
    children: list[tuple[BaseProcess, Connection]] = []
    for share in shares[1:]:
        receiver, sender = context.Pipe(duplex=False)
        # A daemon is ended with its parent, also when the parent fails before it has listened.
        child = context.Process(target=_child, args=(share, sender), daemon=True)
        child.start()
        sender.close()
        children.append((child, receiver))
    results = _read_share(shares[0])
    for (process, receiver), part in zip(children, shares[1:], strict=True):
        try:
            results.extend(pickle.loads(receiver.recv_bytes()))
        except EOFError:
            # A file that kills its reader (a parser fault) must not take the others with it.
            results.extend((path, _killed()) for path, *_ in part)
        process.join()
    return results


def _killed() -> FileFacts:
    return FileFacts(
        problem=(CRASHED, "its reader ended without an answer", "a fault of the parser, or no memory left",
                 "check this file alone to see whether it is the cause")
    )  # fmt: skip


def _read_share(share: list[_Work]) -> list[tuple[str, FileFacts]]:
    from verispec.static.readers.extraction import facts

    with uncollected():
        return [
            (path, facts(path, data, deep=deep, calls=calls, known=known)) for path, data, deep, calls, known in share
        ]


def _child(share: list[_Work], sender: Connection) -> None:
    sender.send_bytes(pickle.dumps(_read_share(share), pickle.HIGHEST_PROTOCOL))
    sender.close()
