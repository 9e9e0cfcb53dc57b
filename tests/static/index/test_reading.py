"""Reading of files, caching of summaries, and broken or adversarial source."""

import ast
import os
import pickle
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verispec.errors import VerispecError
from verispec.static import MemoryTree, SourceFile, check_tree
from verispec.static import cache as cache_module
from verispec.static.cache import FactCache, readers_digest
from verispec.static.facts import LARGEST
from verispec.static.readers import python
from verispec.static.readers.extraction import facts

GOOD = """
import triton

@triton.jit
def k(a):
    pass

def run(a):
    k[(1,)](a, B=1)
"""

BROKEN = {
    "not Python": (b"import triton\n@triton.jit\ndef k(:\n", "V-SRC-UNPARSABLE"),
    "not UTF-8": (b"import triton\n@triton.jit\ndef k():\n    return '\xff\xfe'\n", "V-SRC-UNPARSABLE"),
    "null bytes": (b"import triton\n@triton.jit\ndef k():\n    \x00\n", "V-SRC-UNPARSABLE"),
    "parentheses": (b"import triton.jit\nx = " + b"(" * 5000 + b")" * 5000, "V-SRC-UNPARSABLE"),
    "attributes": (b"import triton.jit\nx = a" + b".b" * 100_000, "V-SRC-DEEP"),
    "minus signs": (b"import triton.jit\nx = " + b"-" * 100_000 + b"1", "V-SRC-DEEP"),
    "sums": (b"import triton.jit\nx = 1" + b"+1" * 100_000, "V-SRC-DEEP"),
    "too long": (b"import triton.jit\n" * (LARGEST // 18 + 1), "V-SRC-HUGE"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_file_is_reported_and_the_rest_is_judged(name):
    source, code = BROKEN[name]
    report = check_tree(MemoryTree({"engine/good.py": GOOD, "engine/bad.py": source}))
    (diagnostic,) = report.diagnostics
    assert (diagnostic.code, diagnostic.where) == (code, "engine/bad.py")
    assert diagnostic.cause and diagnostic.hint
    assert [finding.rule for finding in report.findings] == ["SIG101"]


def test_a_fault_of_a_reader_costs_one_file_and_is_not_remembered(monkeypatch, tmp_path):
    class Tree(MemoryTree):
        def files(self):
            for file in super().files():
                yield SourceFile(file.path, file.path, file.read, file.size)

    read = python.read

    def faulty(tree, data, **options):
        if b"odd" in data:
            raise KeyError("nobody thought of this")
        return read(tree, data, **options)

    tree = Tree({"engine/good.py": GOOD, "engine/odd.py": "import triton\n@triton.jit\ndef odd(): ...\n"})
    cache = tmp_path / "facts"
    monkeypatch.setattr(python, "read", faulty)
    report = check_tree(tree, cache=cache)
    (diagnostic,) = report.diagnostics
    assert (diagnostic.code, diagnostic.where) == ("V-SRC-CRASH", "engine/odd.py")
    assert "nobody thought of this" in diagnostic.cause and diagnostic.hint
    assert [finding.rule for finding in report.findings] == ["SIG101"]
    monkeypatch.setattr(python, "read", read)
    assert check_tree(tree, cache=cache).diagnostics == ()


def test_broken_cpp_is_read_as_far_as_it_goes():
    source = b'TORCH_LIBRARY(demo, m) { m.def("f(Tensor x) -> ()"); m.def("' + b"\xff" * 10 + b"(" * 20_000
    report = check_tree(MemoryTree({"a.cpp": source, "a.py": "import torch\ntorch.ops.demo.f(1, 2)\n"}))
    assert [finding.rule for finding in report.findings] == ["SIG302"]


def test_file_that_cannot_be_opened_is_reported():
    def fail() -> bytes:
        raise PermissionError("not yours")

    class Tree(MemoryTree):
        def files(self):
            yield from super().files()
            yield SourceFile("engine/locked.py", "", fail, 10)

    report = check_tree(Tree({"engine/good.py": GOOD}))
    assert [(d.code, d.where) for d in report.diagnostics] == [("V-SRC-UNREADABLE", "engine/locked.py")]
    assert len(report.findings) == 1


def test_empty_tree():
    report = check_tree(MemoryTree({}))
    assert report.findings == report.diagnostics == ()
    assert report.stats["files"] == 0


def test_unknown_rule():
    with pytest.raises(VerispecError) as caught:
        check_tree(MemoryTree({}), rules=["SIG999"])
    assert caught.value.diagnostic.code == "V-RULE-UNKNOWN"
    assert "SIG101" in caught.value.diagnostic.hint


@given(st.binary(max_size=300), st.sampled_from(["x.py", "x.cpp"]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_no_bytes_crash_a_reader(data, path, deep):
    pickle.dumps(facts(path, data, deep=deep))


EVERYTHING = """
import triton
match point:
    case {"a": [1, *rest], **others} | Point(x=0, y=y) if y:
        pass
    case None:
        pass
async def f(a, /, b, *c, d=1, **e):
    global g
    async with a as (b, c), d:
        return [x async for x in b if (y := x)]
@triton.jit
def k(a):
    try:
        yield from a
    except* ValueError as error:
        raise error from None
    finally:
        del a.b[1:2, ...], c
x: int = lambda *a: f"{a!r:>{1}}" @ a
a[b](c), a[b][c](*d), a[b](**{**c})
d["e"], (f, *g) = {1: 2, **c}, [{*c}, not a < b <= c]
"""


def test_every_construct_of_the_language_is_read():
    assert facts("x.py", EVERYTHING.encode(), deep=True).problem is None


@pytest.mark.parametrize("package", ["asyncio", "json", "unittest", "email"])
def test_real_packages_are_read(package):
    for path in (Path(ast.__file__).parent / package).glob("*.py"):
        assert facts(path.name, path.read_bytes(), deep=True).problem is None


PIECES = st.sampled_from([
    "import triton\n", "from . import x as y\n", "@triton.jit\n", "def f(a, *b, c=1, **d):\n    ", "class C(B):\n    ",
    "x = ", "k[(1,)](a, *b, **c)\n", "a.b.c = d\n", "register({'a.b.c': f})\n", "return (1,), dict(a=1)\n", "pass\n",
    "sys.modules['a.b']\n", "setattr(m, 'n', v)\n", "torch.ops.a.b(x.to(torch.int64))\n", "\n", "    ", "(", ")", "'",
])  # fmt: skip


@given(st.lists(PIECES, max_size=30).map("".join))
@settings(max_examples=300, deadline=None)
def test_no_arrangement_of_what_is_looked_for_crashes(text):
    check_tree(MemoryTree({"p/__init__.py": "", "p/a.py": text, "p/b.py": GOOD}))


def blobs(sources: dict[str, str], reads: list[str]) -> MemoryTree:
    """A tree whose files have content ids, and that notes what is read."""

    class Tree(MemoryTree):
        def files(self):
            for path, text in sources.items():

                def read(path=path, text=text) -> bytes:
                    reads.append(path)
                    return text.encode()

                yield SourceFile(path, str(hash(text)), read, len(text))

    return Tree({})


def test_known_content_is_not_read_again(tmp_path: Path):
    cache = tmp_path / "deep" / "facts.cache"
    first: list[str] = []
    before = check_tree(blobs({"a.py": GOOD, "b.py": "x = 1\n"}, first), cache=cache)
    assert sorted(first) == ["a.py", "b.py"]
    again: list[str] = []
    after = check_tree(blobs({"moved.py": GOOD, "b.py": "x = 2\n"}, again), cache=cache)
    assert again == ["b.py"]
    assert [f.rule for f in after.findings] == [f.rule for f in before.findings]


def test_one_cache_serves_many_trees_in_memory():
    cache, reads = FactCache(), []
    for _ in range(3):
        check_tree(blobs({"a.py": GOOD}, reads), cache=cache)
    assert reads == ["a.py"]


@pytest.mark.parametrize("content", [b"", b"garbage", pickle.dumps("other") + pickle.dumps({}), pickle.dumps([])])
def test_damaged_or_foreign_cache_is_an_empty_one(tmp_path: Path, content: bytes):
    path = tmp_path / "facts.cache"
    path.write_bytes(content)
    assert len(check_tree(blobs({"a.py": GOOD}, []), cache=path).findings) == 1
    assert pickle.loads(path.read_bytes()) == readers_digest()


def test_facts_of_edited_readers_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "facts.cache"
    reads: list[str] = []
    for expected in (["a.py"], ["a.py"], ["a.py", "a.py"]):
        path.with_name("facts.cache.verdicts").unlink(missing_ok=True)
        if len(expected) == 2:
            monkeypatch.setattr(cache_module, "readers_digest", lambda: "of an edited reader")
        assert len(check_tree(blobs({"a.py": GOOD}, reads), cache=path).findings) == 1
        assert reads == expected


def test_summaries_of_old_trees_do_not_pile_up(tmp_path: Path):
    path = tmp_path / "facts.cache"
    reads: list[str] = []
    for tree in ({"a.py": GOOD, "b.py": "x = 1\n"}, *({"a.py": GOOD, "c.py": f"x = {n}\n"} for n in range(20))):
        check_tree(blobs(tree, reads), cache=path)
        with path.open("rb") as file:
            pickle.load(file)
            assert len(pickle.load(file)) <= 8
    assert reads.count("a.py") == 1


def test_the_digest_of_the_readers_follows_their_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    static = tmp_path / "static"
    shutil.copytree(Path(cache_module.__file__).parent, static, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(cache_module, "__file__", str(static / "cache.py"))
    digest = cache_module.readers_digest.__wrapped__
    before = digest()
    (static / "pipeline.py").write_text("")
    assert digest() == before
    (static / "readers" / "scope.py").write_text("# edited\n")
    assert digest() != before


def test_a_host_is_read_again_for_its_calls_once(tmp_path: Path):
    path = tmp_path / "facts.cache"
    host = {"core/a.py": GOOD, "core/b.py": "x = 1\n"}
    plugin = MemoryTree({"plug/a.py": "import core.a\n"})
    for with_plugin, expected in ((False, ["core/a.py", "core/b.py"]), (True, ["core/a.py"]), (True, []), (False, [])):
        path.with_name("facts.cache.verdicts").unlink(missing_ok=True)
        reads: list[str] = []
        tree = blobs(host, reads)
        if with_plugin:
            check_tree(plugin, core=tree, cache=path)
        else:
            check_tree(tree, cache=path)
        assert sorted(reads) == expected


def test_many_processes_give_what_one_gives():
    filler = "\n".join(f"def f{n}(a, b):\n    return a.method_{n}(b)\n" for n in range(3000))
    sources = {f"engine/m{n}.py": GOOD.replace("B=1", f"B{n}=1") + filler for n in range(12)}
    assert sum(map(len, sources.values())) > 1 << 20
    report = check_tree(MemoryTree(sources))
    assert sorted(f.location.path for f in report.findings) == sorted(sources)


MANY = {f"m{n}.py": f"x = {n}\n" for n in range(cache_module._PARALLEL_FROM)}


def written_by(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """Note in `place` the process that writes a cache."""
    write = FactCache._write

    def noted(cache: FactCache) -> None:
        place.write_text(str(os.getpid()))
        write(cache)

    monkeypatch.setattr(FactCache, "_write", noted)


@pytest.mark.parametrize("forks", [True, False])
def test_a_large_cache_is_written_while_the_rules_are_applied(tmp_path: Path, monkeypatch, forks: bool):
    monkeypatch.setattr(cache_module, "can_fork", lambda: forks)
    written_by(monkeypatch, tmp_path / "writer")
    reads: list[str] = []
    assert len(check_tree(blobs({"a.py": GOOD, **MANY}, reads), cache=tmp_path / "facts").findings) == 1
    assert ((tmp_path / "writer").read_text() != str(os.getpid())) == forks
    reads.clear()
    check_tree(blobs({"a.py": GOOD, **MANY, "b.py": "y = 1\n"}, reads), cache=tmp_path / "facts")
    assert reads == ["b.py"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["facts", "facts.verdicts", "writer"]


def test_a_large_cache_that_cannot_be_written_is_an_error_here(tmp_path: Path, monkeypatch, capfd):
    monkeypatch.setattr(cache_module, "can_fork", lambda: True)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        check_tree(blobs(MANY, []), cache=tmp_path / "file" / "facts")
    assert capfd.readouterr().err == ""
