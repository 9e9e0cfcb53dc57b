"""The one place that verispec writes to on its own account."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from verispec.errors import VerispecError


def cache_dir() -> Path:
    """Return the folder of the cache.

    It is ``$VERISPEC_CACHE_DIR``, or ``verispec`` in the user's cache folder (``$XDG_CACHE_HOME`` where it is set).
    """
    if own := os.environ.get("VERISPEC_CACHE_DIR"):
        return Path(own).expanduser().absolute()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if xdg.is_absolute():  # the XDG specification says to ignore relative paths
        return xdg / "verispec"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "verispec"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "verispec" / "cache"
    return Path.home() / ".cache" / "verispec"


@contextlib.contextmanager
def writable_cache() -> Iterator[VerispecError | None]:
    """Use a temporary cache inside the block if `cache_dir` cannot be written, and yield the reason."""
    before = os.environ.get("VERISPEC_CACHE_DIR")
    try:
        cache_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache_dir()):
            reason = None
    except OSError as error:
        reason = cannot_write(error)
    if reason is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="verispec-") as folder:
        os.environ["VERISPEC_CACHE_DIR"] = folder
        try:
            yield reason
        finally:
            if before is None:
                del os.environ["VERISPEC_CACHE_DIR"]
            else:
                os.environ["VERISPEC_CACHE_DIR"] = before


@contextlib.contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file that replaces `path` if the block ends well, and leaves nothing otherwise.

    Raises:
        VerispecError: V-CACHE-WRITE, the cache cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    except OSError as error:
        raise cannot_write(error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def cannot_write(error: OSError) -> VerispecError:
    """Return the error V-CACHE-WRITE for the system's `error`."""
    return VerispecError(
        "V-CACHE-WRITE",
        "the cache cannot be written",
        where=str(cache_dir()),
        cause=str(error),
        hint="make that folder writable, or name another one in VERISPEC_CACHE_DIR",
    )


def read_json(path: Path) -> Any | None:
    """Return the contents of `path`, or None if it is missing or damaged; a cache is only a shortcut."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON to the file `path` of the cache, whole or not at all."""
    with writing(path) as file:
        file.write(json.dumps(value, separators=(",", ":")).encode())
