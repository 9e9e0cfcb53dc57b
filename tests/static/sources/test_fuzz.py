"""Fuzzing the readers: whatever lies in a tree, they answer with files and diagnostics or with a VerispecError."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from toy_git import ToyRepository
from toy_kernels import BAD_TREE, CALL, KERNEL

from verispec.errors import VerispecError
from verispec.static import MemoryTree, check_tree
from verispec.static.facts import FileFacts
from verispec.static.readers.extraction import facts
from verispec.static.sources import _index, open_tree
from verispec.static.sources._files import blob_id
from verispec.static.sources._pip import IndexConfig
from verispec.static.sources.releases import parse_release

EXAMPLES = settings(max_examples=150, deadline=None, database=None)
FEW = settings(max_examples=25, deadline=None, database=None)

TREE_PATHS = [*sorted(BAD_TREE), "csrc/ops.cpp", "pkg/cpu.py"]

CPP = """\
#include <torch/library.h>
void write_out(at::Tensor& out, const at::Tensor& x, int64_t n);
TORCH_LIBRARY_EXPAND(ops, m) {
#ifdef CPU
  m.def("write_out(Tensor! out, Tensor x, "
        "int n=1) -> ()");
  m.impl("write_out", torch::kCPU, &write_out);
#endif
}
"""
PYTHON_WORDS = (
    b"@triton.jit\n|def |(|)|[|{|**|*|,|:|\n|    |\\|'''|\"|#|\0|\t|\xc3\xa9|\xff|=|lambda |match x:\n|f'{".split(b"|")
)
CPP_WORDS = (
    b'(|)|{|}|,|;|->|\n|#if 1\n|#endif\n|#else\n|m.def(|m.impl(|Tensor(a!)|"|R"(|/*|//|\0|\xff|template <|&'.split(b"|")
)


@st.composite
def edited(draw: st.DrawFn, originals: list[bytes], words: list[bytes]) -> bytes:
    """One of `originals` with pieces cut out, doubled, overwritten or put in."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 40)))
        piece = draw(st.one_of(st.sampled_from(words), st.binary(max_size=12), st.just(bytes(data[at:end]) * 2)))
        data[at:end] = piece
    return bytes(data)


def sample_tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("p-1/PKG-INFO", "p-1/a.py", "p-1/" + "long/" * 40 + "é.cu"):
            info = tarfile.TarInfo(name)
            info.size = 600
            archive.addfile(info, io.BytesIO(b"x" * 600))
        link = tarfile.TarInfo("p-1/link.py")
        link.type, link.linkname = tarfile.SYMTYPE, "a.py"
        archive.addfile(link)
    return buffer.getvalue()


def sample_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("p/a.py", "x = 1\n" * 100)
        archive.writestr("p-1.dist-info/METADATA", "Name: p\n")
    return buffer.getvalue()


ARCHIVES = [sample_tar(), sample_zip(), gzip.compress(sample_tar(), mtime=0)]
ARCHIVE_WORDS = [
    b"\0" * 512,
    b"\xff" * 8,
    b"../",
    b"/",
    b"ustar",
    b"PK\x01\x02",
    b"PK\x05\x06",
    b"7" * 11,
    b"x",
    b"g",
    b"L",
]
ARCHIVE_WORDS += [b"30 path=/a.py\n", b"GNU.sparse.major=1\n", b"K", b"S"]


def check(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive"
        path.write_bytes(data)
        try:
            tree = open_tree(str(path))
        except VerispecError as error:
            assert error.diagnostic.code == "V-SRC-NOT-A-TREE"
            return
        for file in tree.files():
            assert not file.path.startswith("/")
            assert ".." not in file.path.split("/")
            content = file.read()
            assert (len(content), blob_id(content)) == (file.size, file.blob)
        assert list(Path(folder).iterdir()) == [path]


@EXAMPLES
@given(edited(ARCHIVES, ARCHIVE_WORDS))
def test_any_archive(data: bytes) -> None:
    check(data)


@EXAMPLES
@given(edited([sample_tar()], ARCHIVE_WORDS), st.integers(0, 6000))
def test_any_tar_under_compression(data: bytes, kept: int) -> None:
    check(gzip.compress(data, mtime=0)[: kept or None])


def with_sums(data: bytes) -> bytes:
    """A tar whose headers have the sums that their bytes need, so that a reader goes on to what they say."""
    blocks = bytearray(data)
    for at in range(0, len(blocks) - 511, 512):
        if blocks[at + 257 : at + 262] == b"ustar":
            blocks[at + 148 : at + 156] = b" " * 8
            blocks[at + 148 : at + 156] = b"%06o\0 " % sum(blocks[at : at + 512])
    return bytes(blocks)


@EXAMPLES
@given(st.lists(st.tuples(st.integers(0, 511), st.integers(0, 255)), max_size=8), st.integers(0, 12))
def test_any_tar_header(changes: list[tuple[int, int]], block: int) -> None:
    data = bytearray(sample_tar())
    for at, value in changes:
        data[block * 512 + at] = value
    check(with_sums(bytes(data)))


@EXAMPLES
@given(st.one_of(edited([CALL.encode(), KERNEL.encode()], PYTHON_WORDS), st.binary()), st.booleans())
def test_any_python(data: bytes, deep: bool) -> None:
    assert isinstance(facts("a.py", data, deep=deep), FileFacts)


@EXAMPLES
@given(st.one_of(edited([CPP.encode()], CPP_WORDS), st.binary()), st.booleans())
@example(CPP.encode().replace(b"Tensor& out", b"Tensor&// out"), True)
def test_any_cpp(data: bytes, deep: bool) -> None:
    assert isinstance(facts("a.cpp", data, deep=deep), FileFacts)


@FEW
@given(
    st.dictionaries(
        st.sampled_from(TREE_PATHS), edited([CALL.encode(), KERNEL.encode(), CPP.encode()], PYTHON_WORDS + CPP_WORDS)
    )
)
def test_any_tree(sources: dict[str, bytes]) -> None:
    report = check_tree(MemoryTree({**BAD_TREE, **sources}))
    assert json.dumps(report.to_json())


@EXAMPLES
@given(st.text(alphabet=st.sampled_from("=#./-_ a1\0é\ud800x\n@^{}~:"), max_size=12))
def test_any_name_of_a_tree(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        parse_release(text)
        try:
            open_tree(f"nowhere/{text}")
        except VerispecError as error:
            assert error.diagnostic.code.startswith("V-")


PAGES = [
    b'{"files": [{"filename": "toy-1.0.tar.gz", "url": "../toy-1.0.tar.gz", "hashes": {"sha256": "00"}}]}',
    b'<!DOCTYPE html><base href="/x/"><a href="toy-1.0.tar.gz#sha256=00" data-yanked>toy-1.0.tar.gz</a>',
]
PAGE_WORDS = [
    b"<",
    b">",
    b"<a href=",
    b"http://[",
    b"&#x0;",
    b"<!--",
    b"]]>",
    b"[" * 50,
    b"{",
    b"null",
    b"1e999",
    b"%2F",
    b"\\ud800",
]


@EXAMPLES
@given(edited(PAGES, PAGE_WORDS), st.sampled_from(["html", "json"]))
@example(b"<![[DOCTYPE html>", "html")
def test_any_page_of_an_index(page: bytes, kind: str) -> None:
    try:
        if kind == "json":
            listed = list(_index._json_files(json.loads(page), "http://host/simple/toy/"))
        else:
            listed = _index._html_files(page.decode("utf-8", "replace"), "http://host/simple/toy/")
    except (ValueError, RecursionError):
        return  # said as V-IDX-OFFLINE by the caller
    for link in _index._links("toy", listed):
        assert "/" not in link.filename
        assert link.shown_url


def test_any_page_in_a_folder(tmp_path: Path) -> None:
    for number, page in enumerate((b"", b"\xff\xfe", b"<" * 10_000, PAGES[1])):
        (tmp_path / f"{number}.html").write_bytes(page)
        config = IndexConfig((), ((tmp_path / f"{number}.html").as_uri(),), 1.0, "")
        try:
            _index.project_links("toy", config)
        except VerispecError as error:
            assert error.diagnostic.code == "V-IDX-NO-PROJECT"


@pytest.fixture(scope="module")
def spoil(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes, str], Path]:
    """A repository in which one object has been overwritten."""
    toy = ToyRepository(tmp_path_factory.mktemp("spoilt") / "repo")
    toy.commit(BAD_TREE)
    names = {kind: toy.git("rev-parse", what) for kind, what in (("commit", "HEAD"), ("tree", "HEAD^{tree}"))}
    names["blob"] = toy.git("rev-parse", "HEAD:pkg/caller.py")
    objects = {kind: toy.folder / ".git" / "objects" / name[:2] / name[2:] for kind, name in names.items()}
    originals = {kind: path.read_bytes() for kind, path in objects.items()}

    def spoiling(data: bytes, kind: str) -> Path:
        for other, path in objects.items():
            path.chmod(0o644)
            path.write_bytes(zlib.compress(data) if other == kind else originals[other])
        return toy.folder

    return spoiling


OBJECTS = [b"tree 40\0", b"blob 3\0abc", b"commit 9\0tree abc\n", b"tree 30\x00100644 a.py\0" + b"\1" * 20]


@FEW
@given(
    data=edited(OBJECTS, [b"\0", b"../", b"9" * 20]),
    kind=st.sampled_from(["commit", "tree", "blob"]),
)
def test_any_object_of_a_repository(data: bytes, kind: str, spoil: Callable[[bytes, str], Path]) -> None:
    folder = spoil(data, kind)
    try:
        for file in open_tree(f"{folder}#HEAD").files():
            file.read()
    except (VerispecError, OSError) as error:
        assert str(error)
