"""Names of engines: what is found, and one clear line for what is not."""

from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch

from verispec import exits
from verispec.engines import Description, Unsupported, registry
from verispec.engines.registry import BUILT_IN, BuiltIn, resolve
from verispec.errors import VerispecError


class Complete:
    """Answers the protocol, and nothing else."""

    def describe(self) -> Description:
        return Description("complete", "1", "cpu")

    def op(self, name: str) -> Unsupported:
        return Unsupported("no ops")

    def sampler(self, family: str = "flat") -> Unsupported:
        return Unsupported("no sampler")

    def load(self, target: Path, **options: Any) -> Unsupported:
        return Unsupported("no generation")

    def definitions(self) -> Unsupported:
        return Unsupported("no definitions")

    def close(self) -> None:
        """Nothing."""


COMPLETE = Complete()


class Outer:
    inner = Complete


def takes_arguments(engine: object) -> object:
    return engine


NOT_AN_ENGINE = 7


def code_of(name: str, device: str | None = None) -> str:
    with pytest.raises(VerispecError) as error:
        resolve(name, device)
    code = error.value.diagnostic.code
    assert error.value.exit_code == (exits.CANNOT_TELL if code == "V-ENG-PROTOCOL" else exits.USAGE)
    return code


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)


@pytest.mark.parametrize("attr", ["COMPLETE", "Complete", "Outer.inner"])
def test_module_attr_is_an_engine_or_makes_one(attr: str) -> None:
    assert resolve(f"test_resolve:{attr}").describe().name == "complete"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("nonsense", "V-ENG-UNKNOWN"),
        ("no_such_module:attr", "V-ENG-MODULE"),
        ("test_resolve:absent", "V-ENG-ATTR"),
        ("test_resolve:Outer.absent", "V-ENG-ATTR"),
        ("test_resolve:NOT_AN_ENGINE", "V-ENG-PROTOCOL"),
        ("test_resolve:takes_arguments", "V-ENG-PROTOCOL"),
        ("vllm@/no/such/tree", "V-SRC-NOT-FOUND"),
        ("vllm@", "V-ENG-UNKNOWN"),
    ],
)
def test_each_mistake_has_its_own_code(name: str, code: str) -> None:
    assert code_of(name) == code


@pytest.mark.parametrize(
    ("name", "is_address"), [("localhost:8911", True), ("localhost:8911/v1", True), ("no_such_module:Engine", False)]
)
def test_a_host_and_port_is_answered_with_its_address(name: str, is_address: bool) -> None:
    with pytest.raises(VerispecError, match="V-ENG-MODULE") as caught:
        resolve(name)
    assert (f"http://{name}" in caught.value.diagnostic.hint) == is_address


def test_a_tree_without_speculative_decoding_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("")
    assert code_of(f"vllm@{tmp_path}") == "V-ENG-NO-SPEC-DECODE"
    assert code_of(f"vllm-cpu@{tmp_path}") == "V-ENG-NO-SPEC-DECODE"


def test_an_unknown_revision_is_named() -> None:
    assert code_of(f"vllm@{Path(__file__).parents[2]}#no-such-revision") in ("V-GIT-REVISION", "V-SRC-NOT-FOUND")


@pytest.mark.parametrize("engine", ["reference", "vllm-cpu@tree"])
def test_engines_of_the_cpu_name_the_one_for_cuda(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.setattr(registry, "require_cuda", lambda: None)
    assert code_of(engine, "cuda") == "V-ENG-DEVICE"


def test_an_unknown_device_is_refused() -> None:
    assert code_of("reference", "tpu") == "V-ENG-DEVICE"


def made_on(device: str) -> Complete:
    assert device == "cuda"
    return Complete()


def test_an_engine_that_finds_a_gpu_itself_needs_no_torch_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    for name, finds_gpu in (("by jax", True), ("by torch", False)):
        engine = BuiltIn(__name__, "made_on", "an engine of a GPU", finds_gpu=finds_gpu)
        monkeypatch.setitem(registry.BUILT_IN, name, engine)
    assert isinstance(resolve("by jax", "cuda"), Complete)
    assert code_of("by torch", "cuda") == "V-ENG-DEVICE"


@pytest.mark.parametrize(
    ("built_for", "message", "words"),
    [
        (None, "", "is built without CUDA"),
        ("13.0", "The NVIDIA driver on your system is too old (found version 11040).", "driver is too old"),
        ("13.0", "Found no NVIDIA driver on your system.", "no NVIDIA driver"),
        ("13.0", "something else", "CUDA cannot be started"),
    ],
)
def test_cuda_that_cannot_be_used_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, built_for: str | None, message: str, words: str
) -> None:
    def fail() -> None:
        raise RuntimeError(message)

    monkeypatch.setattr(torch.version, "cuda", built_for)
    monkeypatch.setattr(torch.cuda, "init", fail)
    with pytest.raises(VerispecError, match=words) as error:
        resolve("reference:triton", "cuda")
    assert error.value.diagnostic.code == "V-ENG-DEVICE"


def test_cuda_without_a_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(VerispecError, match="no CUDA device is visible"):
        resolve("reference:triton", "cuda")


@pytest.mark.parametrize("name", ["reference:triton", "vllm@tree"])
def test_triton_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module = (
        "verispec.engines.adapters.reference" if name == "reference:triton" else "verispec.engines.adapters.vllm.source"
    )
    monkeypatch.setattr(f"{module}.find_spec", lambda package: None if package == "triton" else object())
    with pytest.raises(VerispecError, match="triton not installed") as error:
        resolve(name)
    assert error.value.diagnostic.code == "V-ENG-TRITON"


def test_kernels_that_are_not_built_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise ImportError("no module _csrc")

    monkeypatch.setattr("verispec.engines.adapters.reference.Reference", fail)
    assert code_of("reference") == "V-ENG-BUILD"


def test_a_third_party_registers_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", "test_resolve:Complete", registry.GROUP)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(registry, "entry_points", lambda group, name=None: [entry] if name in (None, "mine") else [])
    assert resolve("mine").describe().name == "complete"
    assert "mine" in registry.names()


def test_every_built_in_engine_has_its_factory() -> None:
    module = importlib.import_module
    wrong = [n for n, b in BUILT_IN.items() if not b.missing and not callable(getattr(module(b.module), b.factory))]
    assert wrong == []
