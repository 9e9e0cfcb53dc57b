"""The simple repository API of package indexes (JSON, or HTML where that is all there is), and find-links."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from verispec import exits
from verispec.errors import VerispecError
from verispec.static.pipeline import Progress
from verispec.static.sources._pip import IndexConfig

JSON_API = "application/vnd.pypi.simple.v1+json"
ACCEPT = f"{JSON_API}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
MAX_PAGE = 64 * 2**20
CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Link:
    """One file of a project. `hashes` are those that the index states, by algorithm; `uploaded` a time or ""."""

    filename: str
    url: str
    version: Version
    is_wheel: bool
    hashes: dict[str, str] = field(hash=False)
    uploaded: str = ""

    @property
    def shown_url(self) -> str:
        """The address without a password."""
        return without_password(self.url)


def project_links(name: str, config: IndexConfig, progress: Progress | None = None) -> list[Link]:
    """Return every sdist and wheel of a project in all of pip's indexes and find-links.

    Args:
        name: name of the project, normalised.
        config: pip's configuration.
        progress: function that receives the bytes of a download.

    Raises:
        VerispecError: V-IDX-OFFLINE if no place answers, V-IDX-NO-PROJECT if none has the project.
    """
    pages = [f"{_as_url(index).rstrip('/')}/{name}/" for index in config.indexes]
    pages += [_as_url(place) for place in config.find_links]
    context = _tls(config)
    failures: list[str] = []
    found: list[Link] = []
    for page in pages:
        if progress is not None:
            progress(f"asking {urlsplit(page).hostname or urlsplit(page).path}", 0, 0)
        try:
            found += _page_links(name, page, config, context)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except urllib.error.HTTPError as error:
            if error.code != 404:
                failures.append(f"{without_password(page)}: {error}")
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            failures.append(f"{without_password(page)}: {getattr(error, 'reason', error)}")
    if found:
        return found
    if failures:
        raise VerispecError(
            "V-IDX-OFFLINE",
            "no package index with this project could be asked",
            where=name,
            cause="; ".join(failures),
            hint="check the network and `pip config list`, or give the sdist or wheel as a file",
            exit_code=exits.CANNOT_TELL,
        )
    raise VerispecError(
        "V-IDX-NO-PROJECT",
        "no package index has an sdist or wheel of this project",
        where=name,
        cause="asked: " + (", ".join(map(without_password, pages)) or "no index, as pip is configured"),
        hint="check the name and `pip config list`",
    )


def download(url: str, config: IndexConfig) -> Iterator[tuple[bytes, int]]:
    """Yield the content of `url` in chunks, each with the announced size in bytes (0 if unknown).

    Args:
        url: URL of the file.
        config: pip's configuration.

    Raises:
        VerispecError: V-IDX-OFFLINE, the download failed.
    """
    try:
        with closing(_open(url, config, _tls(config))) as response:
            announced = response.headers.get("Content-Length") or "0"
            total = int(announced) if announced.isdigit() else 0
            while chunk := response.read(CHUNK):
                yield chunk, total
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise VerispecError(
            "V-IDX-OFFLINE",
            "the file could not be fetched",
            where=without_password(url),
            cause=str(getattr(error, "reason", error)),
            hint="check the network and try again, or give the sdist or wheel as a file",
            exit_code=exits.CANNOT_TELL,
        ) from error


def without_password(url: str) -> str:
    """Return `url` without user name and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _as_url(place: str) -> str:
    return place if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", place) else Path(place).expanduser().absolute().as_uri()


def _tls(config: IndexConfig) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=config.certificates or None)
    except OSError as error:
        raise VerispecError(
            "V-IDX-CONFIG",
            "the certificates that pip is configured for cannot be read",
            where=config.certificates,
            cause=str(error),
            hint="pip config debug shows where `cert` is set",
        ) from error


def _open(url: str, config: IndexConfig, context: ssl.SSLContext) -> Any:
    """Open an address; credentials go to the host that pip's configuration gives them for, and to no other."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https", "file"}:
        raise ValueError(f"{parts.scheme}: is not fetched from")
    request = urllib.request.Request(without_password(url), headers={"Accept": ACCEPT, "User-Agent": "verispec"})
    for place in (*config.indexes, *config.find_links):
        known = urlsplit(place)
        credentials, at, host = known.netloc.rpartition("@")
        if at and (known.scheme, host) == (parts.scheme, parts.netloc.rpartition("@")[2]):
            token = base64.b64encode(unquote(credentials).encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {token}")
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
    return opener.open(request, timeout=config.timeout)


def _page_links(name: str, page: str, config: IndexConfig, context: ssl.SSLContext) -> list[Link]:
    """Return the files of `name` that one page, or one local folder, lists."""
    parts = urlsplit(page)
    if parts.scheme == "file":
        place = Path(urllib.request.url2pathname(parts.path))
        if place.is_dir():
            index = place / "index.html"
            if not index.is_file():
                return _links(name, [(path.as_uri(), {}, "") for path in sorted(place.iterdir())])
            page = index.as_uri()
        elif _parse_filename(place.name):
            return _links(name, [(page, {}, "")])
    with closing(_open(page, config, context)) as response:
        text = response.read(MAX_PAGE + 1)
        if len(text) > MAX_PAGE:
            raise ValueError(f"the page has more than {MAX_PAGE // 2**20} MiB")
        base = response.url
        if response.headers.get_content_type() == JSON_API:
            listed = list(_json_files(json.loads(text), base))
        else:
            listed = _html_files(text.decode("utf-8", "replace"), base)
    local = urlsplit(base).scheme == "file"
    return _links(name, [file for file in listed if local or urlsplit(file[0]).scheme != "file"])


def _json_files(page: Any, base: str) -> Iterator[tuple[str, dict[str, str], str]]:
    files = page.get("files") if isinstance(page, dict) else None
    for file in files if isinstance(files, list) else ():
        url = _joined(base, file.get("url")) if isinstance(file, dict) else None
        if url is not None:
            hashes = file.get("hashes")
            yield url, hashes if isinstance(hashes, dict) else {}, str(file.get("upload-time") or "")


def _html_files(page: str, base: str) -> list[tuple[str, dict[str, str], str]]:
    """Return the files that an HTML page links to.

    Raises:
        ValueError: the page has a declaration that Python's parser cannot read.
    """
    parser = _Anchors(base)
    try:
        parser.feed(page)
    except AssertionError as error:  # Python 3.11.2 asserts that "<![" is followed by a name
        raise ValueError(f"the page is not valid HTML: {error}") from error
    return parser.files


class _Anchors(HTMLParser):
    """Collects the files that an HTML page links to; ``#sha256=...`` states a hash."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.files: list[tuple[str, dict[str, str], str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        target = _joined(self.base, dict(attrs).get("href"))
        if target is None:
            return
        if tag == "base":
            self.base = target
        elif tag == "a":
            url, fragment = urldefrag(target)
            algorithm, equals, value = fragment.partition("=")
            uploaded = dict(attrs).get("data-upload-time") or ""  # some indexes say it, though no standard does
            self.files.append((url, {algorithm: value} if equals else {}, uploaded))


def _joined(base: str, target: object) -> str | None:
    """Return the address of `target` on the page `base`; None if it is not an address."""
    try:
        return urljoin(base, target) if isinstance(target, str) else None
    except ValueError:
        return None


def _links(name: str, files: list[tuple[str, dict[str, str], str]]) -> list[Link]:
    links = []
    for url, stated, uploaded in files:
        filename = unquote(urlsplit(url).path.rpartition("/")[2])
        parsed = _parse_filename(filename)
        if parsed is not None and parsed[0] == canonicalize_name(name):
            hashes = {
                algorithm: value
                for algorithm, value in stated.items()
                if algorithm in hashlib.algorithms_guaranteed
                and not algorithm.startswith("shake")
                and isinstance(value, str)
            }
            links.append(Link(filename, url, parsed[1], parsed[2], hashes, uploaded))
    return links


def _parse_filename(filename: str) -> tuple[str, Version, bool] | None:
    """Return project, version and True for a wheel; None for a file that is neither sdist nor wheel."""
    if filename.startswith(".") or "/" in filename or "\\" in filename:
        return None
    try:
        if filename.endswith(".whl"):
            project, version, *_ = parse_wheel_filename(filename)
            return project, version, True
        project, version = parse_sdist_filename(filename)
        return project, version, False
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None
