"""Files that need a syntax tree: all that may define a kernel or an override, and few others."""

import pytest

from verispec.static import MemoryTree, SourceFile, check_tree
from verispec.static.readers.outline import outline
from verispec.static.readers.prefilter import defines, patches

NEEDED = {
    "kernel": "import triton\n@triton.jit\ndef k(a): ...\n",
    "kernel of Gluon": "from triton.experimental import gluon\n@gluon.jit\ndef k(a): ...\n",
    "decorator by its own name": "from triton import autotune, jit\n@jit\ndef k(a): ...\n",
    "decorator by another name": "from triton import jit as kernel\n@kernel\ndef k(a): ...\n",
    "module by another name": "import triton as tr\n@tr.jit\ndef k(a): ...\n",
    "stand-in for the module": "class T:\n    def __init__(self):\n        self.jit = None\n",
    "patch": "import a.b as b\nb.kernel = mine\n",
    "patch in brackets": "from a import b\nb.kernel = (\n    mine\n)\n",
    "patch in the first line": "import a; a.kernel = mine\nimport a\na.kernel = mine\n",
    "registry": "register({'a.b.kernel': mine})\n",
    "setattr on an import": "import a\nsetattr(a, 'kernel', mine)\n",
    "setattr on an alias": "def f():\n    import a.b\n    m = a.b\n    setattr(m, 'kernel', mine)\n",
    "setattr on a module by name": "import sys\nm = sys.modules['a.b']\nsetattr(m, name, mine)\n",
    "setattr on a choice": "m = a.b if new else a.c\nsetattr(m, name, mine)\n",
}
NOT_NEEDED = {
    "plain": "def f(a):\n    return a\n",
    "another compiler": "import cute\n@cute.jit\ndef k(a): ...\n",
    "another jit": "import torch\nf = torch.jit.script(g)\n",
    "own attribute": "import a\nclass C:\n    def f(self):\n        self.kernel = mine\n",
    "setattr on an object": "def f(config):\n    setattr(config, 'kernel', mine)\n",
    "setattr on itself": "class C:\n    def f(self, name):\n        setattr(self, name, mine)\n",
    "setattr on an attribute": "class C:\n  def f(self):\n    m = self.model\n    setattr(m, 'kernel', mine)\n",
    "setattr on something made": "m = Model()\nsetattr(m, 'kernel', mine)\n",
}


def takes_part(data: bytes) -> bool:
    return defines(data) or patches(data)


@pytest.mark.parametrize("name", NEEDED)
def test_definitions_and_overrides_are_read(name):
    assert takes_part(NEEDED[name].encode())


@pytest.mark.parametrize("name", NOT_NEEDED)
def test_nothing_else_is(name):
    assert not takes_part(NOT_NEEDED[name].encode())


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from a import kernel\nkernel[grid](x)\n", {"kernel"}),
        ("from a import kernel as k\nk[grid](x)\n", {"kernel"}),
        ("def f():\n    from a import (\n        one,\n        two,\n    )\n    one[grid](x)\n", {"one", "two"}),
        ("import a\na.kernel[grid](x)\n", {"kernel"}),
        ("import a\nk = a.kernel\nk[grid](x)\n", {"kernel"}),
        ("x[0](1)\ny = torch.max(x)\nz = f(x).max\n", set()),
        ("class C:\n    def f(self):\n        self.kernel[grid](x)\n", set()),
        ("import a\na.kernel[grid]\n", set()),
    ],
)
def test_names_that_a_file_may_launch(source, names):
    assert set(outline(source.encode()).launches.decode().split()) == names


CALLERS = {
    "from p.k import k\ndef run(a):\n    k[(1,)](a, B=1)\n",
    "from p.k import k as launch\ndef run(a):\n    launch[(1,)](a, B=1)\n",
    "from p import k as ops\ndef run(a):\n    ops.k[(1,)](a, B=1)\n",
    "import p.k\ndef run(a):\n    kernel = p.k.k\n    kernel[(1,)](a, B=1)\n",
    "class C:\n    def run(self, a):\n        from p.k import k\n        k[(1,)](a, B=1)\n",
}


@pytest.mark.parametrize("caller", sorted(CALLERS))
def test_every_caller_is_found(caller):
    tree = {"p/__init__.py": "", "p/k.py": NEEDED["kernel"], "p/caller.py": caller}
    assert [finding.rule for finding in check_tree(MemoryTree(tree)).findings] == ["SIG101"]
    assert not takes_part(caller.encode())


def test_a_file_that_only_shares_a_name_with_a_kernel_is_not_parsed():
    tree = {
        "p/__init__.py": "",
        "p/k.py": "import triton\n@triton.jit\ndef max(a): ...\n",
        "p/other.py": "import torch\ndef f(x):\n    return x[0](torch.max(x), torch.finfo(x.dtype).max)\n",
    }
    assert check_tree(MemoryTree(tree)).stats["trees_parsed"] == 1


PATCHES = {
    "assignment": "import p.k\ndef test(mine):\n    p.k.k = stub\ndef stub(a, b): ...\n",
    "setattr": "import p.k\ndef test():\n    setattr(p.k, 'k', stub)\ndef stub(a, b): ...\n",
    "a variable": "import p.k\ndef test():\n    name = 'k'\n    setattr(p.k, name, stub)\ndef stub(a, b): ...\n",
    "another name": "import p.alias\ndef test():\n    p.alias.launcher = stub\ndef stub(a, b): ...\n",
}


@pytest.mark.parametrize("name", PATCHES)
def test_a_test_that_replaces_a_kernel_is_read(name):
    tree = {
        "p/__init__.py": "",
        "p/k.py": NEEDED["kernel"],
        "p/alias.py": "from p.k import k\nlauncher = k\n",
        "p/caller.py": "import p.k\nimport p.alias\ndef run(a):\n    p.k.k[(1,)](a)\n    p.alias.launcher[(1,)](a)\n",
        "tests/test_k.py": PATCHES[name],
    }
    assert "tests/test_k.py" in check_tree(MemoryTree(tree)).participants


OTHER_PATCH = "import p.k\nimport p.host\n# k is a kernel\ndef test():\n    p.host.size = stub\ndef stub(a): ...\n"


def test_a_test_that_replaces_other_things_is_not_parsed():
    tree = {"p/__init__.py": "", "p/k.py": NEEDED["kernel"], "p/host.py": "def size(): ...\n"}
    for path, parsed in (("tests/test_host.py", 1), ("p/patch.py", 3)):
        assert check_tree(MemoryTree({**tree, path: OTHER_PATCH})).stats["trees_parsed"] == parsed


def test_a_plugin_lists_what_its_tests_replace(tmp_path):
    host = MemoryTree({"p/__init__.py": "", "p/host.py": "def size(): ...\n"})

    class Plugin(MemoryTree):
        def files(self):
            for file in super().files():
                yield SourceFile(file.path, "same", file.read, file.size)

    plugin = Plugin({"tests/test_host.py": "import p.host\np.host.size = stub\ndef stub(a): ...\n"})
    cache = tmp_path / "facts"
    assert check_tree(plugin, cache=cache).patches == ()
    assert [point.target for point in check_tree(plugin, core=host, cache=cache).patches] == ["p.host.size"]
