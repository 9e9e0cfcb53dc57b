"""Reading git objects by name through one long-lived ``git cat-file --batch`` a repository."""

from __future__ import annotations

import functools
import hashlib
import io
import os
import secrets
import subprocess
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass

from verispec.static.sources._files import MAX_FILE

COMMAND = ("git", "--no-pager", "-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null")

KEPT = frozenset({"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"})
"""Variables that locate the user's own settings, e.g. safe.directory. Any other GIT_ variable could redirect git."""


def environment() -> Mapping[str, str]:
    """Return git's environment: no redirection, no replaced objects, no network, no questions, English."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in KEPT}
    return clean | {
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }


@dataclass(frozen=True, slots=True)
class ReadObject:
    """Reads one blob of the repository at `folder`; safe in threads and in forked or spawned processes."""

    folder: str
    name: str

    def __call__(self) -> bytes:
        return read_object(self.folder, self.name, "blob")


def read_object(folder: str, name: str, kind: str) -> bytes:
    """Return the content of a git object.

    Args:
        folder: folder of the repository.
        name: full hash.
        kind: "commit", "tree" or "blob".

    Raises:
        OSError: the object is missing, too large, forged, or not a `kind`.
    """
    return _reader(folder, os.getpid()).read(name, kind)


class _Reader:
    """One ``git cat-file`` process.

    Every request is followed by one for a name that no object has. The answer to that ends the content, since an object
    may hold fewer bytes than its header says, and git then writes nothing more.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.lock = threading.Lock()
        self.no_object = b"." + secrets.token_hex(8).encode()
        self.process: subprocess.Popen[bytes] | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*COMMAND, "-C", self.folder, "cat-file", "--batch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        weakref.finalize(self, _stop, process)
        return process

    def read(self, name: str, kind: str) -> bytes:
        with self.lock:
            if self.process is None or self.process.poll() is not None:
                self.process = self._start()
            assert self.process.stdin is not None
            assert isinstance(self.process.stdout, io.BufferedReader)
            self.process.stdin.write(name.encode() + b"\n" + self.no_object + b"\n")
            self.process.stdin.flush()
            end = self.no_object + b" missing\n"
            header = self.process.stdout.readline().split()
            if len(header) != 3:  # "NAME missing", or nothing at all when git itself failed
                self.process.stdout.readline()
                raise OSError(f"the repository lacks the object {name}")
            size = int(header[2])
            if size > MAX_FILE:
                _stop(self.process)
                raise OSError(f"the object {name} has {size} bytes, more than {MAX_FILE}")
            content = bytearray()
            whole = size + 1 + len(end)
            while len(content) < whole and not content.endswith(end):
                part = self.process.stdout.read1(whole - len(content))
                if not part:
                    break
                content += part
            if not content.endswith(end):  # more content than the header says, or git failed
                _stop(self.process)
            data = bytes(content[: -1 - len(end)])
        if header[1] != kind.encode():
            raise OSError(f"the object {name} is a {header[1].decode()}, not a {kind}")
        if len(data) != size or _name(kind, data, len(name)) != name:
            raise OSError(f"the object {name} is damaged: its content does not match its name")
        return data


def _name(kind: str, data: bytes, digits: int) -> str:
    content = f"{kind} {len(data)}\0".encode() + data
    return hashlib.new("sha1" if digits == 40 else "sha256", content, usedforsecurity=False).hexdigest()


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    if process.stdout is not None:
        process.stdout.close()
    process.kill()
    process.wait()


@functools.lru_cache(maxsize=4)
def _reader(folder: str, process: int) -> _Reader:
    del process  # part of the key: a pipe must not be shared with a forked child
    return _Reader(folder)
