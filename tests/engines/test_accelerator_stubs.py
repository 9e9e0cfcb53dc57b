"""Stubs let code be imported, and never take part in a result."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from verispec import exits
from verispec.engines import SamplerBatch, UnsupportedCall
from verispec.engines.accelerator_stubs import (
    StubUsed,
    bare_package,
    import_under_test,
    install,
    without_pinned_memory,
    without_streams,
)
from verispec.engines.adapters.npu_stubs import Stream
from verispec.engines.adapters.partial import jax_device, refuse, require_cpu
from verispec.engines.adapters.vllm_ascend import VllmAscend
from verispec.engines.registry import resolve
from verispec.errors import VerispecError


@pytest.fixture(autouse=True)
def modules(tmp_path: Path) -> Iterator[None]:
    """Forget stubs, bare packages and files of the test. Installed modules stay: NumPy loads once per process."""
    before = dict(sys.modules)
    yield
    for name in sys.modules.keys() - before.keys():
        spec = getattr(sys.modules[name], "__spec__", None)
        if spec is None or spec.origin is None or Path(spec.origin).is_relative_to(tmp_path):
            del sys.modules[name]


def test_missing_packages_get_stubs_and_installed_ones_stay() -> None:
    assert install({"no_npu": {}, "no_npu.ops": {"size": 3}, "json": {}}, {}, ()) == ("no_npu", "no_npu.ops")
    import json

    import no_npu.ops

    assert no_npu.ops.size == 3
    assert json.loads("1") == 1


def test_a_stub_can_be_inherited_from_and_named() -> None:
    install({"no_npu": {}}, {}, ())
    import no_npu

    class Child(no_npu.nn.Module):
        def take(self, x: no_npu.Tensor | None) -> None: ...

    assert Child().__class__.__name__ == "Child"
    assert "no_npu.nn" in repr(no_npu.nn)


@pytest.mark.parametrize(
    "use",
    [
        lambda stub: stub.add(1, 2),
        lambda stub: stub.size + 1,
        lambda stub: 1 - stub.size,
        lambda stub: stub.size < 3,
        lambda stub: bool(stub.flag),
        lambda stub: int(stub.size),
        lambda stub: list(stub.rows),
        lambda stub: stub.rows[0],
        lambda stub: stub.guard.__enter__(),
    ],
)
def test_a_stub_computes_nothing(use: object) -> None:
    install({"no_npu": {}}, {}, ())
    with pytest.raises((StubUsed, AttributeError)) as error:
        use(sys.modules["no_npu"])  # type: ignore[operator]
    if isinstance(error.value, StubUsed):
        assert error.value.exit_code == exits.CANNOT_TELL


def test_an_error_of_a_stub_crosses_processes() -> None:
    assert "no_npu.add" in str(pickle.loads(pickle.dumps(StubUsed("no_npu.add"))))


@pytest.mark.parametrize("name", ["engine.sampler", "engine.sampler.rules"])
def test_what_is_tested_is_never_a_stub(name: str) -> None:
    with pytest.raises(ValueError, match="under test"):
        install({}, {name: {}}, ("engine.sampler",))


def test_a_module_under_test_comes_from_a_file(tmp_path: Path) -> None:
    install({"no_npu": {}}, {}, ())
    with pytest.raises(StubUsed):
        import_under_test("no_npu")
    (tmp_path / "rules.py").write_text("from .gone import x\n")
    (tmp_path / "__init__.py").write_text("raise ImportError('looks for an accelerator')\n")
    bare_package("toy_engine", tmp_path)
    with pytest.raises(ModuleNotFoundError, match="gone"):
        import_under_test("toy_engine.rules")
    install({}, {"toy_engine.gone": {"x": 1}}, ("toy_engine.rules",))
    assert import_under_test("toy_engine.rules").x == 1


def test_pinned_memory_is_dropped_and_torch_is_as_before() -> None:
    before = torch.tensor
    with without_pinned_memory():
        assert torch.tensor([0], pin_memory=True).tolist() == [0]
        assert torch.arange(2, pin_memory=True).tolist() == [0, 1]
    assert torch.tensor is before


def test_streams_are_not_recorded_and_torch_is_as_before() -> None:
    before = torch.Tensor.record_stream
    with without_streams():
        torch.zeros(1).record_stream(Stream())
    assert torch.Tensor.record_stream is before


def test_a_batch_is_refused_by_its_fields() -> None:
    batch = SamplerBatch(torch.zeros(1, 4), [[]], torch.zeros(1), seeds=[None])
    refuse(batch, seeds="no seeds", min_p="no min_p")
    seeded = SamplerBatch(torch.zeros(1, 4), [[]], torch.zeros(1), seeds=[3])
    with pytest.raises(UnsupportedCall, match="no seeds"):
        refuse(seeded, seeds="no seeds")


def test_partial_engines_run_on_the_cpu() -> None:
    require_cpu("cpu", "x")
    with pytest.raises(VerispecError, match="V-ENG-DEVICE"):
        require_cpu("cuda", "x")


def test_jax_must_run_on_the_device_that_is_asked_for() -> None:
    processor = SimpleNamespace(platform="cpu", device_kind="cpu")
    jax = SimpleNamespace(devices=lambda: [processor])
    assert jax_device(jax, "cpu") == ("cpu", processor)
    with pytest.raises(VerispecError, match="JAX would run on cpu"):
        jax_device(jax, "cuda")


def test_a_source_without_a_sampler_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VerispecError, match="V-ENG-ASCEND"):
        VllmAscend(str(tmp_path))


def test_mlx_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx", None)  # As if it were not installed.
    with pytest.raises(VerispecError, match="V-ENG-MLX"):
        resolve("mlx-lm")


def test_tpu_inference_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)  # As if it were not installed.
    with pytest.raises(VerispecError, match="V-ENG-TPU"):
        resolve("tpu-inference")
