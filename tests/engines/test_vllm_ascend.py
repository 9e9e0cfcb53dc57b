"""Engine ``vllm-ascend@SOURCE``: both generations of its rejection sampler."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from verispec.engines.accelerator_stubs import bare_packages
from verispec.engines.adapters.vllm.installed.sampler import SAMPLER_MODULE
from verispec.engines.adapters.vllm_ascend import AscendSampler

PATCH = f"import {SAMPLER_MODULE} as sampler\nsampler.rejection_sample = 'its own'\n"


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return vLLM's module of the rejection sampler, as far as the adapter looks at it."""
    monkeypatch.setattr(torch, "npu", SimpleNamespace(), raising=False)  # the adapter leaves a stub there
    names = ("vllm", "vllm.v1", "vllm.v1.sample", "vllm.v1.sample.sampler", SAMPLER_MODULE)
    modules = {name: ModuleType(name) for name in names}
    modules["vllm.v1.sample.sampler"].Sampler = object  # type: ignore[attr-defined]
    modules[SAMPLER_MODULE].rejection_sample = "vLLM's"  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(modules[parent], child, module)
    return modules[SAMPLER_MODULE]


def test_its_own_class_is_driven(vllm: ModuleType) -> None:
    module = SimpleNamespace(AscendRejectionSampler=object(), rejection_sample="its own")
    sampler = AscendSampler(module, SimpleNamespace(AscendSampler=object))

    assert sampler._module is module
    assert module.RejectionSampler is module.AscendRejectionSampler
    assert vllm.rejection_sample == "vLLM's"


def test_without_a_class_its_worker_patches_vllms_module(
    vllm: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "vllm_ascend" / "patch" / "worker"
    worker.mkdir(parents=True)
    (worker / "patch_rejection_sampler.py").write_text(PATCH, encoding="utf-8")
    before = dict(sys.modules)
    bare_packages(tmp_path, "vllm_ascend", ("patch", "patch.worker"))
    try:
        sampler = AscendSampler(SimpleNamespace(), SimpleNamespace(AscendSampler=object))
    finally:
        for name in set(sys.modules) - set(before):
            if name.startswith("vllm_ascend"):
                del sys.modules[name]

    assert sampler._module is vllm
    assert vllm.rejection_sample == "its own"
