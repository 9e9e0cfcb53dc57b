"""Names are followed through imports, aliases, packages and classes."""

import pytest

from verispec.static import MemoryTree, check_tree
from verispec.static.facts import FileFacts, Param
from verispec.static.linking.binding import exchanged
from verispec.static.linking.index import build, module_name
from verispec.static.readers.outline import outline

KERNEL = "import triton\n\n@triton.jit\ndef k(a):\n    pass\n"
LAUNCHERS = {
    "from": "from p.sub.kernels import k\ndef f(a):\n    k[(1,)](a, B=1)\n",
    "renamed": "from p.sub.kernels import k as other\ndef f(a):\n    other[(1,)](a, B=1)\n",
    "module": "import p.sub.kernels\ndef f(a):\n    p.sub.kernels.k[(1,)](a, B=1)\n",
    "module renamed": "import p.sub.kernels as ks\ndef f(a):\n    ks.k[(1,)](a, B=1)\n",
    "relative": "from .sub.kernels import k\ndef f(a):\n    k[(1,)](a, B=1)\n",
    "relative module": "from .sub import kernels\ndef f(a):\n    kernels.k[(1,)](a, B=1)\n",
    "re-exported": "from p.sub import k\ndef f(a):\n    k[(1,)](a, B=1)\n",
    "in the function": "def f(a):\n    from p.sub.kernels import k\n    k[(1,)](a, B=1)\n",
    "alias": "from p.sub.kernels import k\nj = k\ndef f(a):\n    j[(1,)](a, B=1)\n",
    "local alias": "from p.sub.kernels import k\ndef f(a):\n    j = k\n    j[(1,)](a, B=1)\n",
    "class attribute": "from p.sub.kernels import k\nclass C:\n    k = k\n    def f(self, a):\n"
                       "        self.k[(1,)](a, B=1)\n",
    "inherited": "from p.sub.kernels import k\nclass B:\n    k = k\n\nclass C(B):\n    def f(self, a):\n"
                 "        self.k[(1,)](a, B=1)\n",
    "nested grid": "from p.sub.kernels import k\ndef f(a):\n    k[(a.shape[0], len(a[1:]))](a, B=1)\n",
    "long grid": "from p.sub.kernels import k\ndef f(a):\n    k[\n        (1,)\n    ](a, B=1)\n",
}  # fmt: skip


@pytest.mark.parametrize("name", LAUNCHERS)
def test_launch_is_followed_to_its_kernel(name):
    sources = {"p/__init__.py": "", "p/sub/__init__.py": "from .kernels import k\n", "p/sub/kernels.py": KERNEL}
    report = check_tree(MemoryTree({**sources, "p/launch.py": LAUNCHERS[name]}))
    assert [(f.rule, f.symbol) for f in report.findings] == [("SIG101", "p.sub.kernels.k")]


UNKNOWN = {
    "parameter": "from p.kernels import k\ndef f(a, k):\n    k[(1,)](a, B=1)\n",
    "reassigned": "from p.kernels import k\ndef f(a):\n    k = pick()\n    k[(1,)](a, B=1)\n",
    "loop": "from p.kernels import k\ndef f(a):\n    for k in a:\n        k[(1,)](a, B=1)\n",
    "elsewhere": "from q.kernels import k\ndef f(a):\n    k[(1,)](a, B=1)\n",
    "circle": "from p.launch import k\ndef f(a):\n    k[(1,)](a, B=1)\n",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_name_that_may_be_anything_is_left_alone(name):
    report = check_tree(MemoryTree({"p/__init__.py": "", "p/kernels.py": KERNEL, "p/launch.py": UNKNOWN[name]}))
    assert report.findings == ()


@pytest.mark.parametrize(
    "decorators",
    ["@triton.jit", "@triton.jit()", "@triton.jit(do_not_specialize=['a'])", "@triton.jit\n@staticmethod", "@jit"],
)
def test_every_form_of_the_decorator(decorators):
    text = f"import triton\nfrom triton import jit\n\n{decorators}\ndef k(a): ...\ndef f(a):\n    k[(1,)](a, B=1)\n"
    assert [f.rule for f in check_tree(MemoryTree({"p/a.py": text})).findings] == ["SIG101"]


@pytest.mark.parametrize(
    ("path", "packages", "name"),
    [
        ("p/a.py", {"p"}, "p.a"),
        ("p/__init__.py", {"p"}, "p"),
        ("x-1.0/p/q/a.py", {"x-1.0/p", "x-1.0/p/q"}, "p.q.a"),
        ("src/p/a.py", {"src/p"}, "p.a"),
        ("src/a.py", set(), "a"),
        ("a.py", set(), "a"),
    ],
)
def test_module_name(path, packages, name):
    assert module_name(path, packages) == name


def test_modules_come_in_the_order_of_their_paths() -> None:
    facts = {path: FileFacts(outline(b"")) for path in ("pkg/b.py", "pkg/__init__.py", "pkg/a.py")}
    assert list(build([(facts, False)]).modules) == ["pkg", "pkg.a", "pkg.b"]


def test_exchanged_arguments_come_in_the_order_of_the_parameters() -> None:
    params = [Param(name, "p", "", False) for name in ("a", "b", "b_ptr")]
    assert list(exchanged(["b", "a", "a"], params)) == [("b", "a"), ("a", "b"), ("b", "a"), ("a", "b_ptr")]
