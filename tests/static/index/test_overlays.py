"""--core: a plugin's Python file at the path of a file of its host, and copies of the host that are not imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from verispec.report.signatures_check import Request, check
from verispec.static import Finding, Level, MemoryTree, check_tree

KERNEL = "import triton\n\n@triton.jit\ndef draw(x{more}):\n    pass\n"
HOST: dict[str, str | bytes] = {
    "core/__init__.py": "",
    "core/ops/__init__.py": "",
    "core/ops/kernels.py": KERNEL.format(more=", FLAG"),
    "core/run.py": "from core.ops.kernels import draw\n\ndef run(x):\n    draw[(1,)](x, FLAG=1)\n",
}
PLUGIN: dict[str, str | bytes] = {"plug/__init__.py": "", "plug/use.py": "import core.run\n"}


def found(plugin: dict[str, str | bytes], host: dict[str, str | bytes] = HOST) -> tuple[Finding, ...]:
    report = check_tree(MemoryTree(PLUGIN | plugin), core=MemoryTree(host), rules=["SIG101", "SIG102"])
    assert not report.diagnostics
    return report.findings


@pytest.mark.parametrize("packages", [["core/__init__.py", "core/ops/__init__.py"], ["core/ops/__init__.py"], []])
@pytest.mark.parametrize("root", ["", "src/"])
def test_a_file_in_a_package_of_the_host_takes_the_place_of_the_hosts(packages: list[str], root: str) -> None:
    """It is installed over the host's file, so that the host's callers meet it."""
    files = dict.fromkeys((root + package for package in packages), "")
    (finding,) = found(files | {f"{root}core/ops/kernels.py": KERNEL.format(more="")})
    assert (finding.level, finding.sides[0].location.path) == (Level.ERROR, "core/run.py")
    assert found(files | {f"{root}core/ops/kernels.py": HOST["core/ops/kernels.py"]}) == ()


@pytest.mark.parametrize("folder", ["third_party", "plug/vendored"])
def test_a_copy_that_nobody_imports_takes_no_place(folder: str) -> None:
    copy = {f"{folder}/{path}": text for path, text in HOST.items()}
    assert found(copy | {f"{folder}/core/ops/kernels.py": KERNEL.format(more="")}) == ()


def test_a_script_at_the_path_of_a_hosts_script() -> None:
    """Faults of the host's setup.py are not the plugin's."""
    wrong = f"{KERNEL.format(more='')}\ndraw[(1,)](1, FLAG=1)\n"
    assert found({"setup.py": ""}, HOST | {"setup.py": wrong}) == ()
    assert len(found({"setup.py": wrong}, HOST | {"setup.py": ""})) == 1


def test_the_hosts_file_is_named_below_the_host(tmp_path: Path) -> None:
    schema = 'TORCH_LIBRARY({}, ops) {{ ops.def("draw(Tensor x) -> Tensor"); }}\n'
    call = "import torch\n\ndef run(x):\n    return torch.ops.core_lib.draw(x, 1)\n"
    files = {
        "host/csrc/ops.cpp": schema.format("core_lib"), "host/core/__init__.py": "",
        "plugin/csrc/ops.cpp": schema.format("plug_lib"), "plugin/plug/run.py": call,
    }  # fmt: skip
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    report, _ = check(Request(str(tmp_path / "plugin"), str(tmp_path / "host"), rules=("SIG302",)))
    (finding,) = report.placed()
    assert finding.sides[1].location.path == f"{report.core}/csrc/ops.cpp"
