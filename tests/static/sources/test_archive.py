"""Archives are read once into the cache and never unpacked; adversarial and broken ones give what is readable."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from verispec.errors import VerispecError
from verispec.static.sources import open_tree
from verispec.static.sources._files import MAX_FILE, blob_id
from verispec.static.sources.archive import FREE_BYTES
from verispec.static.tree import Tree

SDIST = {"p-1.0/PKG-INFO": b"Name: p\n", "p-1.0/pkg/a.py": b"a = 1\n", "p-1.0/pkg/b.cu": b"int b;\n"}
PLAIN = {"pkg/a.py": b"a = 1\n", "pkg/b.cu": b"int b;\n"}


def contents(tree: Tree) -> dict[str, bytes]:
    return {file.path: file.read() for file in tree.files()}


def codes(tree: Tree) -> list[str]:
    return [diagnostic.code for diagnostic in tree.diagnostics]


def tar(files: Mapping[str, bytes], *extra: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for info in extra:
            archive.addfile(info)
    return buffer.getvalue()


def zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


def opened(tmp_path: Path, data: bytes, name: str = "archive") -> Tree:
    path = tmp_path / name
    path.write_bytes(data)
    return open_tree(str(path))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress], ids=["plain", "gz", "bz2", "xz"])
def test_an_sdist_looks_like_its_checkout(tmp_path: Path, pack) -> None:  # type: ignore[no-untyped-def]
    tree = opened(tmp_path, pack(tar(SDIST)), "p-1.0.tar.gz")
    assert contents(tree) == PLAIN
    assert {file.path: file.blob for file in tree.files()} == {path: blob_id(data) for path, data in PLAIN.items()}
    assert tree.describe() == "p-1.0.tar.gz"
    assert codes(tree) == []


def test_a_wheel_keeps_its_folders(tmp_path: Path) -> None:
    files = {**PLAIN, "pkg/setup.py": b"s = 1\n"}
    wheel = zipped({**files, "p-1.0.dist-info/METADATA": b"Name: p\n"})
    assert contents(opened(tmp_path, wheel, "p-1.0-py3-none-any.whl")) == files


def test_a_single_package_is_no_project_folder(tmp_path: Path) -> None:
    assert contents(opened(tmp_path, zipped(PLAIN))) == PLAIN


def test_the_second_time_the_archive_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = contents(opened(tmp_path, tar(SDIST)))
    monkeypatch.setattr("verispec.static.sources.archive._read", None)
    assert contents(opened(tmp_path, tar(SDIST))) == first


@pytest.mark.parametrize("damage", ["short", "gone", "junk"])
def test_a_damaged_pack_is_made_again(tmp_path: Path, cache: Path, damage: str) -> None:
    opened(tmp_path, tar(SDIST))
    (pack,) = cache.rglob("*.pack")
    (listing,) = cache.glob("archives-1/*.json")
    if damage == "short":
        pack.write_bytes(pack.read_bytes()[:-1])
    elif damage == "gone":
        pack.unlink()
    else:
        listing.write_bytes(b"[")
    assert contents(opened(tmp_path, tar(SDIST))) == PLAIN


HOSTILE = {"../up.py": b"x\n", "/etc/abs.py": b"x\n", "a/../../b.py": b"x\n", "C:/w.py": b"x\n", "ok.py": b"ok\n"}


@pytest.mark.parametrize("pack", [tar, zipped])
def test_names_that_lead_out_are_never_paths(tmp_path: Path, pack) -> None:  # type: ignore[no-untyped-def]
    inside = tmp_path / "one" / "two"
    inside.mkdir(parents=True)
    tree = opened(inside, pack(HOSTILE))
    assert contents(tree) == {"ok.py": b"ok\n"}
    assert codes(tree) == ["V-SRC-OUTSIDE"]
    assert "4 files" in tree.diagnostics[0].message  # type: ignore[index]
    # The folder's parents are this test's own: other tests write at the same time.
    assert not list(tmp_path.rglob("*.py"))
    assert not Path("/etc/abs.py").exists()


def test_backslashes_in_a_zip_are_separators(tmp_path: Path) -> None:
    data = zipped({"a!!!up.py": b"x\n", "ok.py": b"ok\n"}).replace(b"a!!!up.py", b"..\\..\\u.p")
    assert sorted(contents(opened(tmp_path, data))) == ["ok.py"]
    data = zipped({"a!!b.py": b"x\n"}).replace(b"a!!b.py", b"..\\b.py")
    assert codes(opened(tmp_path, data, "second")) == ["V-SRC-OUTSIDE"]


def test_links_are_left_out_and_said_so(tmp_path: Path) -> None:
    soft, hard = link("pkg/soft.py", "/etc/passwd"), link("pkg/hard.py", "pkg/a.py", tarfile.LNKTYPE)
    tree = opened(tmp_path, tar(PLAIN, soft, hard))
    assert contents(tree) == PLAIN
    assert [(said.code, said.where) for said in tree.diagnostics] == [("V-SRC-LINK", "pkg/hard.py, pkg/soft.py")]
    info = zipfile.ZipInfo("link.py")
    info.external_attr = 0o120777 << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(info, "/etc/passwd")
        archive.writestr("a.py", "a = 1\n")
    tree = opened(tmp_path, buffer.getvalue(), "zip")
    assert contents(tree) == {"a.py": b"a = 1\n"}
    assert codes(tree) == ["V-SRC-LINK"]


def test_devices_and_folders_named_like_source_are_nothing(tmp_path: Path) -> None:
    device, folder, fifo = tarfile.TarInfo("dev.py"), tarfile.TarInfo("dir.py"), tarfile.TarInfo("fifo.py")
    device.type, folder.type, fifo.type = tarfile.CHRTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE
    assert contents(opened(tmp_path, tar(PLAIN, device, folder, fifo))) == PLAIN


def test_the_last_of_two_files_with_one_name_counts(tmp_path: Path) -> None:
    data = tar({"a.py": b"1\n", "b.py": b"2\n"}).replace(b"b.py", b"a.py")
    data = _with_checksums(data)
    assert contents(opened(tmp_path, data)) == {"a.py": b"2\n"}


def _with_checksums(data: bytes) -> bytes:
    """`data`, a tar of two small files, with the header sums that its changed names need."""
    blocks = bytearray(data)
    for offset in (0, 1024):
        blocks[offset + 148 : offset + 156] = b" " * 8
        blocks[offset + 148 : offset + 156] = b"%06o\0 " % sum(blocks[offset : offset + 512])
    return bytes(blocks)


def test_large_files_are_left_out_and_said_so(tmp_path: Path) -> None:
    files = {"large.py": bytes(MAX_FILE + 1), "a.py": b"a\n"}
    for name, data in (("tar", tar(files)), ("zip", zipped(files))):
        tree = opened(tmp_path, data, name)
        assert contents(tree) == {"a.py": b"a\n"}
        assert codes(tree) == ["V-SRC-TOO-LARGE"]


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sixty-fourth of the real limits, so that a bomb of the real shape is made and read at once."""
    monkeypatch.setattr("verispec.static.sources.archive.MAX_FILE", MAX_FILE // 64)
    monkeypatch.setattr("verispec.static.sources.archive.FREE_BYTES", FREE_BYTES // 64)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("suffix", ["py", "bin"])
def test_a_compressed_bomb_is_cut_off(tmp_path: Path, suffix: str, cache: Path) -> None:
    """Zeros shrink a thousand times; both those that would be kept and those that are skipped cost time."""
    chunk = bytes(MAX_FILE // 64)
    number = 2 * FREE_BYTES // MAX_FILE
    files = {"a.py": b"a = 1\n"} | {f"z{index}.{suffix}": chunk for index in range(number)}
    tree = opened(tmp_path, gzip.compress(tar(files), 9))
    assert contents(tree)["a.py"] == b"a = 1\n"
    assert codes(tree) == ["V-SRC-BOMB"]
    assert sum(path.stat().st_size for path in cache.rglob("*.pack")) <= (FREE_BYTES + MAX_FILE) // 64


@pytest.mark.usefixtures("small_limits")
def test_a_zip_bomb_is_cut_off(tmp_path: Path) -> None:
    number = 2 * FREE_BYTES // MAX_FILE
    files = {"a.py": b"a = 1\n"} | {f"z{index}.py": bytes(MAX_FILE // 64) for index in range(number)}
    tree = opened(tmp_path, zipped(files))
    assert contents(tree)["a.py"] == b"a = 1\n"
    assert codes(tree) == ["V-SRC-BOMB"]


def test_a_header_that_claims_gigabytes_is_cut_off(tmp_path: Path) -> None:
    """Extended headers are read into memory whole, before anything of the entry is known."""
    header = tarfile.TarInfo("x")
    header.type = tarfile.XHDTYPE
    header.size = 60 * 2**20
    data = tar({"a.py": b"a = 1\n"})[:1024] + header.tobuf() + bytes(60 * 2**20)
    tree = opened(tmp_path, gzip.compress(data, 9))
    assert contents(tree) == {"a.py": b"a = 1\n"}
    assert codes(tree) == ["V-SRC-BOMB"]


def test_sizes_that_a_zip_claims_are_not_believed(tmp_path: Path) -> None:
    data = bytearray(zipped({"a.py": b"a = 1\n" * 1000}))
    for signature, offset in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = data.index(signature) + offset
        data[at : at + 4] = struct.pack("<I", 2**31)
    assert codes(opened(tmp_path, bytes(data))) in (["V-SRC-BROKEN-ARCHIVE"], [])


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
def test_a_broken_archive_gives_what_comes_before_the_break(tmp_path: Path, kept: float) -> None:
    noise = bytes((index * 7919 >> 3) % 251 for index in range(20_000))
    data = gzip.compress(tar({f"{index}.py": noise[index:] for index in range(10)}))
    tree = opened(tmp_path, data[: int(len(data) * kept)])
    assert codes(tree) == ["V-SRC-BROKEN-ARCHIVE"]
    assert all(noise.endswith(data) for data in contents(tree).values())


def test_a_stream_that_is_no_tar_is_said(tmp_path: Path) -> None:
    assert codes(opened(tmp_path, gzip.compress(b"hello" * 1000))) == ["V-SRC-BROKEN-ARCHIVE"]


def test_an_encrypted_zip_is_said(tmp_path: Path) -> None:
    data = bytearray(zipped({"a.py": b"a = 1\n"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    data[data.index(b"PK\x03\x04") + 6] |= 1
    assert codes(opened(tmp_path, bytes(data))) == ["V-SRC-BROKEN-ARCHIVE"]


def test_an_endless_chain_of_headers_is_said(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type = tarfile.GNUTYPE_LONGNAME
    header.size = 4
    data = (header.tobuf() + b"a.py".ljust(512, b"\0")) * 3000
    assert codes(opened(tmp_path, data)) in (["V-SRC-BROKEN-ARCHIVE"], ["V-SRC-BOMB"])


def test_too_many_files_stop_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verispec.static.sources.archive.MAX_FILES", 5)
    tree = opened(tmp_path, tar({f"{index}.py": b"" for index in range(9)}))
    assert codes(tree) == ["V-SRC-TOO-MANY"]
    assert len(contents(tree)) == 5


def test_names_that_are_not_utf8_are_shown_with_escapes(tmp_path: Path) -> None:
    tree = opened(tmp_path, tar({"\udcff.py": b"odd = 1\n"}))
    assert contents(tree) == {"\\xff.py": b"odd = 1\n"}
    assert codes(tree) == ["V-SRC-NAME"]


def test_a_file_that_is_no_archive_is_no_tree(tmp_path: Path) -> None:
    for name, data in (("a.py", b"a = 1\n"), ("empty", b"")):
        with pytest.raises(VerispecError, match="V-SRC-NOT-A-TREE"):
            opened(tmp_path, data, name)
