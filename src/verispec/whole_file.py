"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

from verispec import exits
from verispec.errors import VerispecError


def write_whole(
    path: Path, content: str | bytes, *, what: str = "the file", hint: str = "", durable: bool = True
) -> None:
    """Write `content` to `path`, which keeps its old content if anything goes wrong, a kill and a full disk included.

    Args:
        path: file to write; a link is followed.
        content: text, which is written as UTF-8, or bytes.
        what: name of the file's kind, for the message.
        hint: advice for when it cannot be written.
        durable: True waits until the disk has it; without, it survives a crash of the process, not one of the machine.

    Raises:
        VerispecError: V-CLI-WRITE with the reason of the operating system.
    """
    content = content.encode("utf-8") if isinstance(content, str) else content
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():  # a pipe or /dev/stdout cannot be replaced
            target.write_bytes(content)
            return
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        beside = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            beside.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
            beside.replace(target)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise VerispecError(
            "V-CLI-WRITE",
            f"{what} cannot be written",
            where=str(path),
            cause=error.strerror or str(error),
            hint=hint or "free space there, or name another file",
            exit_code=exits.CANNOT_TELL,
        ) from error


def require_place(path: Path | None, option: str) -> None:
    """Raise VerispecError V-CLI-WRITE unless a file can be at `path`, which `option` names; None is no file."""
    if path is None:
        return
    folder = path.absolute().parent
    reason, hint = "", f"make it first: mkdir -p {shlex.quote(str(path.parent))}"
    if path.is_dir():
        reason, hint = "it is a folder", "name a file in it"
    elif not folder.is_dir():
        reason = "the folder does not exist"
    elif not os.access(folder, os.W_OK) and (path.is_file() or not path.exists()):
        reason, hint = "the folder cannot be written", "name a file in a folder that can be written"
    if reason:
        raise VerispecError("V-CLI-WRITE", reason, where=f"{option} {path}", hint=hint)


def made_folder(folder: Path, option: str, code: str = "V-CLI-WRITE") -> Path:
    """Return a folder that an option names as an absolute path, made if need be.

    Raises:
        VerispecError: `code`, it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VerispecError(
            code,
            "the folder cannot be made",
            where=f"{option} {folder}",
            cause=error.strerror or str(error),
            hint="name a folder that can be made and written",
        ) from error
    return folder.absolute()


class PatientWriter:
    """Writes files whole, and keeps the first error until the results are printed, which must not be lost."""

    def __init__(self) -> None:
        self._error: VerispecError | None = None

    def write(self, path: Path, content: str, *, what: str, hint: str = "") -> bool:
        """Write `content` to `path` as `write_whole` does; return False if that failed."""
        try:
            write_whole(path, content, what=what, hint=hint)
        except VerispecError as error:
            self._error = self._error or error
            return False
        return True

    def close(self) -> None:
        """Raise the first error of `write`, if there was one."""
        if self._error is not None:
            raise self._error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
