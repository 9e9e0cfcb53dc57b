"""Releases: found in whatever index pip is configured for, hash checked, and fetched once."""

from __future__ import annotations

import ast
import hashlib
import http.server
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from verispec import exits
from verispec.errors import VerispecError
from verispec.static.sources import open_tree
from verispec.static.sources._pip import default_index, index_config
from verispec.static.sources.releases import parse_release, versions

JSON_API = "application/vnd.pypi.simple.v1+json"


def sdist(source: str = "a = 1\n") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in (("toy-1.0/PKG-INFO", "Name: toy\n"), ("toy-1.0/toy/a.py", source)):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def wheel(source: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("toy/a.py", source)
        archive.writestr("toy-2.0.dist-info/METADATA", "Name: toy\n")
    return buffer.getvalue()


class Index:
    """A package index on this machine: pages and files by path, and what it was asked for."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[str, bytes]] = {}
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.asked.append(self.path)
                index.headers.append(dict(self.headers))
                kind, body = index.answers.get(self.path, ("", b""))
                self.send_response(302 if kind == "redirect" else 200 if kind else 404)
                if kind == "redirect":
                    self.send_header("Location", body.decode())
                self.send_header("Content-Type", kind or "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        self.url = f"http://{self.host}/simple"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def add_json(self, files: list[dict[str, object]], project: str = "toy") -> None:
        self.answers[f"/simple/{project}/"] = (JSON_API, json.dumps({"files": files}).encode())

    def add_html(self, page: str, project: str = "toy") -> None:
        self.answers[f"/simple/{project}/"] = ("text/html", page.encode())

    def add_file(self, name: str, data: bytes) -> dict[str, object]:
        self.answers[f"/files/{name}"] = ("application/octet-stream", data)
        hashes = {"sha256": hashlib.sha256(data).hexdigest()}
        return {"filename": name, "url": f"../../files/{name}", "hashes": hashes, "upload-time": "2026-01-02T03:04:05Z"}


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    server = Index()
    monkeypatch.setenv("PIP_INDEX_URL", server.url)
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    yield server
    server.server.shutdown()
    server.server.server_close()


def only_file(text: str) -> bytes:
    (file,) = open_tree(text).files()
    assert file.path == "toy/a.py"
    return file.read()


def test_a_release_is_fetched_once_and_then_read_from_the_cache(index: Index) -> None:
    index.add_json([index.add_file("toy-1.0.tar.gz", sdist())])
    assert only_file("toy==1.0") == b"a = 1\n"
    assert index.asked == ["/simple/toy/", "/files/toy-1.0.tar.gz"]
    assert only_file("Toy==1.0.0") == b"a = 1\n"
    assert len(index.asked) == 2
    assert open_tree("toy==1.0").describe() == "toy==1.0"


def test_progress_is_reported(index: Index) -> None:
    index.add_json([index.add_file("toy-1.0.tar.gz", sdist())])
    told: list[tuple[str, int, int]] = []
    open_tree("toy==1.0", progress=lambda *step: told.append(step))
    assert told[0] == ("asking 127.0.0.1", 0, 0)
    assert ("fetching toy-1.0.tar.gz", len(sdist()), len(sdist())) in told


def test_html_is_read_where_there_is_no_json(index: Index) -> None:
    index.add_file("toy-1.0.tar.gz", sdist())
    digest = hashlib.sha256(sdist()).hexdigest()
    index.add_html(
        '<html><head><base href="/files/x/"></head><body><a>no link</a><a href="https://[/">broken</a>'
        f'<a href="../toy-1.0.tar.gz#sha256={digest}" data-upload-time="2026-01-02">toy-1.0.tar.gz</a></body></html>'
    )
    assert only_file("toy==1.0") == b"a = 1\n"
    assert versions("toy") == {Version("1.0"): "2026-01-02"}


@pytest.mark.parametrize("page", ["json", "html"])
def test_a_file_with_another_hash_is_refused_and_not_kept(index: Index, page: str, cache: Path) -> None:
    listed = index.add_file("toy-1.0.tar.gz", sdist())
    index.add_json([listed])
    if page == "html":
        index.add_html(f'<a href="../../files/toy-1.0.tar.gz#sha256={"0" * 64}">toy</a>')
    index.add_file("toy-1.0.tar.gz", sdist("evil = 1\n") if page == "json" else sdist())
    with pytest.raises(VerispecError, match="V-IDX-HASH") as caught:
        open_tree("toy==1.0")
    assert caught.value.exit_code == exits.CANNOT_TELL
    assert not list(cache.rglob("*.tar.gz*"))


def test_a_cached_file_that_was_changed_is_fetched_again(index: Index, cache: Path) -> None:
    index.add_json([index.add_file("toy-1.0.tar.gz", sdist())])
    open_tree("toy==1.0")
    (cached,) = cache.rglob("toy-1.0.tar.gz")
    cached.write_bytes(sdist("evil = 1\n"))
    assert only_file("toy==1.0") == b"a = 1\n"


def test_the_sdist_is_taken_before_wheels(index: Index) -> None:
    wheels = [
        index.add_file("toy-2.0-cp311-cp311-linux_x86_64.whl", wheel("platform = 1\n")),
        index.add_file("toy-2.0-py3-none-any.whl", wheel("any = 1\n")),
    ]
    index.add_json(wheels)
    assert only_file("toy==2.0") == b"any = 1\n"
    index.add_json([*wheels, index.add_file("toy-1.0.tar.gz", sdist())])
    assert only_file("toy==1.0") == b"a = 1\n"


def test_a_release_that_is_not_there_names_its_neighbours(index: Index) -> None:
    index.add_json([index.add_file(f"toy-{version}.tar.gz", sdist()) for version in ("0.9", "1.0", "1.1", "7.0")])
    with pytest.raises(VerispecError, match="V-IDX-NO-RELEASE") as caught:
        open_tree("toy==1.2")
    assert "1.1" in caught.value.diagnostic.hint
    assert caught.value.exit_code == exits.USAGE


def test_a_release_above_all_others_names_the_newest(index: Index) -> None:
    index.add_json([index.add_file(f"toy-0.{minor}.tar.gz", sdist()) for minor in range(1, 9)])
    with pytest.raises(VerispecError, match="V-IDX-NO-RELEASE") as caught:
        open_tree("toy==99.0")
    assert caught.value.diagnostic.hint == "known releases are 0.4, 0.5, 0.6, 0.7, 0.8"


def test_a_project_that_is_not_there_is_said(index: Index) -> None:
    with pytest.raises(VerispecError, match="V-IDX-NO-PROJECT") as caught:
        open_tree("nothing==1.0")
    assert index.host in caught.value.diagnostic.cause


def test_without_a_network_the_error_says_so_and_the_cache_still_serves(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add_json([index.add_file("toy-1.0.tar.gz", sdist())])
    open_tree("toy==1.0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    assert only_file("toy==1.0") == b"a = 1\n"
    with pytest.raises(VerispecError, match="V-IDX-OFFLINE") as caught:
        open_tree("toy==2.0")
    assert caught.value.exit_code == exits.CANNOT_TELL
    assert "127.0.0.1:9" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_credentials_go_to_their_host_only(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add_json([index.add_file("toy-1.0.tar.gz", sdist())])
    monkeypatch.setenv("PIP_INDEX_URL", f"http://ada:s%20t@{index.host}/simple")
    open_tree("toy==1.0")
    assert {headers.get("Authorization") for headers in index.headers} == {"Basic YWRhOnMgdA=="}
    monkeypatch.setenv("PIP_INDEX_URL", "http://ada:s%20t@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index.url)
    index.headers.clear()
    versions("toy")
    assert [headers.get("Authorization") for headers in index.headers] == [None]


def test_credentials_do_not_follow_a_redirect(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Index()
    other.add_json([other.add_file("toy-1.0.tar.gz", sdist())])
    index.answers["/simple/toy/"] = ("redirect", f"{other.url}/toy/".encode())
    monkeypatch.setenv("PIP_INDEX_URL", f"http://ada:secret@{index.host}/simple")
    try:
        assert only_file("toy==1.0") == b"a = 1\n"
    finally:
        other.server.shutdown()
        other.server.server_close()
    assert [headers.get("Authorization") for headers in index.headers] == ["Basic YWRhOnNlY3JldA=="]
    assert [headers.get("Authorization") for headers in other.headers] == [None, None]


def test_all_indexes_and_find_links_are_asked(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add_json([index.add_file("toy-1.0.tar.gz", sdist())])
    mirror = tmp_path / "mirror"
    (mirror / "simple" / "toy").mkdir(parents=True)
    (mirror / "files").mkdir()
    (mirror / "files" / "toy-1.1.tar.gz").write_bytes(sdist("mirror = 1\n"))
    (mirror / "simple" / "toy" / "index.html").write_text('<a href="../../files/toy-1.1.tar.gz">toy-1.1.tar.gz</a>')
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "toy-2.0-py3-none-any.whl").write_bytes(wheel("wheels = 1\n"))
    (wheels / "other-3.0.tar.gz").write_bytes(b"")
    single = tmp_path / "toy-4.0-py3-none-any.whl"
    single.write_bytes(wheel("single = 1\n"))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", (mirror / "simple").as_uri() + " file:///nowhere/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{wheels} {single}")
    assert list(versions("toy")) == [Version("1.0"), Version("1.1"), Version("2.0"), Version("4.0")]
    assert only_file("toy==1.1") == b"mirror = 1\n"
    assert only_file("toy==2.0") == b"wheels = 1\n"
    assert only_file("toy==4.0") == b"single = 1\n"


def test_one_broken_index_does_not_hide_another(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add_json([index.add_file("toy-1.0.tar.gz", sdist())])
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index.url)
    assert only_file("toy==1.0") == b"a = 1\n"


def test_an_index_on_the_network_cannot_name_files_of_this_machine(index: Index, tmp_path: Path) -> None:
    secret = tmp_path / "toy-1.0.tar.gz"
    secret.write_bytes(sdist("secret = 1\n"))
    index.add_html(f'<a href="{secret.as_uri()}">toy-1.0.tar.gz</a><a href="ftp://h/toy-1.0.tar.gz">toy</a>')
    with pytest.raises(VerispecError):
        open_tree("toy==1.0")


@pytest.mark.parametrize(
    "name", ["..%2F..%2Ftoy-1.0.tar.gz", "..%5Ctoy-1.0.tar.gz", ".toy-1.0.tar.gz", "evil-1.0.tar.gz"]
)
def test_names_that_an_index_makes_up_are_not_taken(index: Index, name: str) -> None:
    index.add_html(f'<a href="../../files/{name}">toy-1.0.tar.gz</a>')
    with pytest.raises(VerispecError, match="V-IDX-NO-PROJECT"):
        open_tree("toy==1.0")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b'{"files": 3}',
        b'{"files": [3, {}, {"url": 3}]}',
        b"[" * 100_000,
        b"\xff",
        b'{"files": [{"url": "http://[/"}]}',
    ],
)
def test_a_broken_page_is_an_error_and_no_crash(index: Index, body: bytes) -> None:
    index.answers["/simple/toy/"] = (JSON_API, body)
    with pytest.raises(VerispecError, match=r"V-IDX-(OFFLINE|NO-PROJECT)"):
        open_tree("toy==1.0")


def test_an_endless_page_or_file_is_cut_off(index: Index, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    index.add_json([index.add_file("toy-1.0.tar.gz", sdist())])
    with monkeypatch.context() as patch:
        patch.setattr("verispec.static.sources._index.MAX_PAGE", 50)
        with pytest.raises(VerispecError, match="V-IDX-OFFLINE"):
            open_tree("toy==1.0")
    monkeypatch.setattr("verispec.static.sources.releases.MAX_DOWNLOAD", 50)
    with pytest.raises(VerispecError, match="V-IDX-TOO-LARGE"):
        open_tree("toy==1.0")
    assert not list(cache.rglob("*.tar.gz*"))


def test_versions_come_in_order_with_their_times(index: Index) -> None:
    names = ("0.10.0", "0.9.0", "0.10.0rc1", "0.2.0")
    index.add_json([index.add_file(f"toy-{version}.tar.gz", sdist()) for version in names])
    assert list(map(str, versions("toy"))) == ["0.2.0", "0.9.0", "0.10.0rc1", "0.10.0"]
    assert set(versions("toy").values()) == {"2026-01-02T03:04:05Z"}


@pytest.mark.parametrize(
    "text", ["toy", "toy=1.0", "toy==", "==1.0", "toy==x y", "a b==1.0", "toy[x]==1.0", "../toy==1.0"]
)
def test_what_is_no_release(text: str) -> None:
    assert parse_release(text) is None
    with pytest.raises(VerispecError, match="V-SRC-NOT-FOUND"):
        open_tree(text)


@pytest.mark.parametrize("own", ["", "own.conf", "missing.conf", os.devnull])
def test_the_configuration_is_read_as_pip_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "shared"))
    texts = {
        "shared/pip/pip.conf": "[global]\nindex-url = http://shared/simple\ntimeout = 3\ncert = /shared.pem\n",
        "xdg/pip/pip.conf": "[global]\nextra-index-url =\n  http://one/simple\n  http://two/simple\n"
        "[install]\nindex-url = http://no/simple\n",
        "own.conf": "[global]\nfind-links = /wheels http://links/\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    if own:
        monkeypatch.setenv("PIP_CONFIG_FILE", own if own == os.devnull else str(tmp_path / own))
    monkeypatch.setenv("PIP_CERT", "/env.pem")
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line.partition("=") for line in listed.splitlines() if line.startswith(("global.", ":env:."))]
    expected = {name.partition(".")[2].lstrip("."): ast.literal_eval(value) for name, _, value in lines}
    config = index_config()
    indexes = [expected.get("index-url", default_index()), *expected.get("extra-index-url", "").split()]
    assert config.indexes == tuple(indexes)
    assert config.find_links == tuple(expected.get("find-links", "").split())
    assert config.timeout == float(expected.get("timeout", 15))
    assert config.certificates == "/env.pem"


def test_an_option_of_the_download_command_counts_and_of_others_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.conf").write_text(
        "[install]\nindex-url = http://no/simple\n[download]\nindex-url = http://yes/simple\ntimeout = 4\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "own.conf"))
    monkeypatch.delenv("PIP_DEFAULT_TIMEOUT", raising=False)
    assert index_config().indexes[0] == "http://yes/simple"
    assert index_config().timeout == 4.0
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert index_config().indexes == ()


def test_a_configuration_that_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.conf").write_text("index-url = nowhere\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "own.conf"))
    with pytest.raises(VerispecError, match="V-IDX-CONFIG"):
        open_tree("toy==1.0")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "nowhere.pem"))
    with pytest.raises(VerispecError, match="V-IDX-CONFIG"):
        open_tree("toy==1.0")


def test_reading_the_configuration_imports_no_pip() -> None:
    """Before Python 3.12 pip takes setuptools' distutils away, and an engine that imports setuptools cannot start."""
    program = (
        "import sys\nfrom verispec.static.sources._pip import index_config\n"
        "print(*index_config({}).indexes, [name for name in sys.modules if name.partition('.')[0] == 'pip'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [*index_config({}).indexes, "[]"]
    assert default_index().startswith("https://")
