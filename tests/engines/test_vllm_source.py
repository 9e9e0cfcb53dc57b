"""Engines over source trees: kernels taken out and run, what cannot be bound named, faults of a tree seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import toy_source

from verispec.engines import CallShape, Unsupported, UnsupportedCall
from verispec.engines.adapters.vllm.source import compile as compile_
from verispec.engines.adapters.vllm.source import fallback_wiring
from verispec.engines.adapters.vllm.source.compile import schemas
from verispec.engines.adapters.vllm.source.extract import CannotExtract
from verispec.engines.adapters.vllm.source.tree import Kernels
from verispec.engines.registry import resolve
from verispec.errors import VerispecError
from verispec.reference import contracts
from verispec.suites.signatures import test_runtime_signature

EXPAND = "vllm.v1.sample.rejection_sampler.expand_kernel"
EXPAND_PARAMETERS = (
    "output_ptr",
    "input_ptr",
    "cu_num_tokens_ptr",
    "replace_from",
    "replace_to",
    "MAX_NUM_TOKENS",
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def interpreted(tmp_path: Path) -> Iterator[Any]:
    """The toy tree's Triton kernels in the interpreter."""
    with closing(resolve(f"vllm@{toy_source.write(tmp_path)}", "cpu")) as engine:
        yield engine


def expand(engine: Any) -> list[float]:
    op = engine.op("expand_batch_to_tokens")
    assert not isinstance(op, Unsupported), op.reason
    out = torch.full((4,), -7.0)
    op(
        output_ptr=out,
        input_ptr=torch.tensor([0.5, 0.0]),
        cu_num_tokens_ptr=torch.tensor([1, 3], dtype=torch.int32),
        replace_from=0,
        replace_to=1,
        MAX_NUM_TOKENS=2,
    )
    values: list[float] = out.tolist()
    return values


def test_a_kernel_runs_with_its_helpers_and_constants(interpreted: Any) -> None:
    assert expand(interpreted) == [0.5, 1.0, 1.0, -7.0]
    assert interpreted.describe().details["kernels"] == "Triton's interpreter"
    assert interpreted.describe().platform == "cuda"


def test_a_fault_of_the_tree_is_seen(tmp_path: Path) -> None:
    with closing(resolve(f"vllm@{toy_source.write(tmp_path, length='end - start - 1')}", "cpu")) as engine:
        assert expand(engine) == [-7.0, 1.0, -7.0, -7.0]


def test_a_parameter_that_we_do_not_know_is_a_gap(interpreted: Any) -> None:
    contract = contracts.load("rejection_greedy_sample")
    arguments: dict[str, Any] = {p.name: None for p in contract.params}
    counts = torch.tensor([1], dtype=torch.int32)
    arguments |= {"output_token_ids_ptr": torch.zeros(1, 2), "cu_num_draft_tokens_ptr": counts}
    with pytest.raises(UnsupportedCall, match="a_parameter_of_tomorrow"):
        interpreted.op("rejection_greedy_sample")(**arguments)


def test_kernels_that_the_tree_lacks_are_named(interpreted: Any) -> None:
    op = interpreted.op("sample_recovered_tokens")
    assert isinstance(op, Unsupported)
    assert "has no sample_recovered_tokens_kernel" in op.reason
    assert isinstance(interpreted.sampler(), Unsupported)


def test_sampled_rows_of_another_random_layout_are_refused(tmp_path: Path) -> None:
    tree = toy_source.write(tmp_path)
    gumbel = tree / "vllm/v1/worker/gpu/sample/gumbel.py"
    gumbel.parent.mkdir(parents=True)
    gumbel.write_text(
        "def gumbel_sample(logits, expanded_idx_mapping, temperature, seed, pos, apply_temperature):\n"
        "    return logits.argmax(-1)\n"
    )
    with closing(resolve(f"vllm@{tree}", "cpu")) as engine:
        op = engine.op("gumbel_sample")
        assert not isinstance(op, Unsupported)
        logits = torch.tensor([[0.0, 2.0], [3.0, 1.0]])
        arguments: dict[str, Any] = {
            "sampled": torch.full((2,), -7),
            "logits": logits,
            "expanded_idx_mapping": torch.tensor([0, -1]),
            "temperature": torch.zeros(1),
            "seed": torch.zeros(1, dtype=torch.int64),
            "pos": torch.arange(2),
            "apply_temperature": False,
            "is_drafting": False,
        }
        op(**arguments)
        assert arguments["sampled"].tolist() == [1, -7]
        with pytest.raises(UnsupportedCall, match="temperature 0"):
            op(**{**arguments, "temperature": torch.ones(1)})


def test_what_fails_outside_of_its_tree_is_named(tmp_path: Path) -> None:
    tree = toy_source.write(tmp_path)
    parts = tree / "vllm/v1/sample/parts.py"
    parts.write_text(parts.read_text().replace("ZERO: tl.constexpr = 0", "ZERO = 1 // 0"))
    with pytest.raises(CannotExtract, match="cannot run outside of its tree: ZeroDivisionError"):
        Kernels("vllm@tree", str(tree)).load(EXPAND)


def test_parameters_are_read_from_the_tree(tmp_path: Path) -> None:
    kernels = Kernels("vllm@tree", str(toy_source.write(tmp_path)))
    assert kernels.parameters(EXPAND)[-1] == "MAX_NUM_TOKENS"
    assert kernels.parameters("vllm.v1.sample.rejection_sampler.absent") == []
    assert kernels.parameters("vllm.nowhere.f") == []


def test_where_a_fallback_is_put_is_read_from_the_tree(tmp_path: Path) -> None:
    here = Kernels("x", str(toy_source.write(tmp_path / "here"))).sources
    assert fallback_wiring.fault(here, EXPAND) == ""
    elsewhere = Kernels("x", str(toy_source.write(tmp_path / "elsewhere", assigned="another_kernel"))).sources
    assert "nothing installs a fallback" in fallback_wiring.fault(elsewhere, EXPAND)


def test_a_fallback_beside_the_dispatcher_is_a_fault(tmp_path: Path) -> None:
    """As in 0.30.0: callers go through dispatchers, the runner still assigns the kernel's name."""
    tree = toy_source.write(tmp_path)
    sampler = tree / "vllm/v1/sample/rejection_sampler.py"
    dispatcher = "\n\n@warm(kernel=expand_kernel)\ndef _expand(output, input):\n    return (1,), {}\n"
    sampler.write_text(sampler.read_text().replace(toy_source.CALLER, dispatcher))
    fault = fallback_wiring.fault(Kernels("x", str(tree)).sources, EXPAND)
    assert "assigned to vllm.v1.sample.rejection_sampler.expand_kernel, but callers launch _expand.kernel" in fault
    runner = tree / "vllm/v1/worker/cpu_model_runner.py"
    runner.write_text(runner.read_text().replace(".expand_kernel =", "._expand.kernel ="))
    assert fallback_wiring.fault(Kernels("x", str(tree)).sources, EXPAND) == ""


@pytest.mark.parametrize(
    ("dispatched", "names", "shape"),
    [
        (False, "any", CallShape(5, ("MAX_NUM_TOKENS",))),
        (True, "any", CallShape(6, ())),
        (True, "the kernel's", CallShape(0, EXPAND_PARAMETERS)),
    ],
)
def test_how_a_trees_callers_reach_a_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dispatched: bool, names: str, shape: CallShape
) -> None:
    """Behind a dispatcher no launch reaches the kernel; arguments arrive by the kernel's names, or all by position."""
    tree = toy_source.write(tmp_path)
    sampler, fallbacks = tree / "vllm/v1/sample/rejection_sampler.py", tree / "vllm/utils/cpu_triton_utils.py"
    if dispatched:
        sampler.write_text(sampler.read_text().replace(toy_source.CALLER, "\n"))
    if names == "the kernel's":
        text = fallbacks.read_text().replace("output, input_val, cu_num_tokens", ", ".join(EXPAND_PARAMETERS[:3]))
        fallbacks.write_text(text)
    monkeypatch.setattr("verispec.engines.adapters.vllm.source.compile.load", lambda sources, engine: "toy")
    monkeypatch.setattr(
        "verispec.engines.adapters.vllm.source.cpu_engine.CpuFallbacks._compiled", lambda self, op: True
    )
    live = resolve(f"vllm-cpu@{tree}").definitions()["expand_batch_to_tokens"]
    assert live.shape == shape
    for judge in (
        test_runtime_signature.test_what_callers_pass_binds,
        test_runtime_signature.test_the_order_is_the_kernels,
        test_runtime_signature.test_every_parameter_can_be_passed,
    ):
        judge(live, "expand_batch_to_tokens")


def test_only_ops_of_the_one_file_are_registered() -> None:
    (found,) = schemas(toy_source.CPP, toy_source.BINDINGS)
    assert found[0].startswith("expand_kernel_impl(Tensor(a0!) output, Tensor input, Tensor ends, float")
    assert found[1] == "cpu_utils::expand_kernel_impl"


@pytest.mark.slow  # torch's headers take a compiler half a minute
def test_the_fallbacks_of_a_tree_are_compiled_alone(tmp_path: Path) -> None:
    engine = resolve(f"vllm-cpu@{toy_source.write(tmp_path)}")
    assert expand(engine) == [0.5, 1.0, 1.0, -7.0]
    assert engine.describe().platform == "cpu"
    lost = engine.op("compute_slot_mapping")
    assert isinstance(lost, Unsupported)


def test_a_missing_compiler_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(VerispecError, match="no C\\+\\+ compiler") as error:
        resolve(f"vllm-cpu@{toy_source.write(tmp_path)}")
    assert error.value.diagnostic.code == "V-ENG-COMPILER"


def test_a_file_that_does_not_compile_shows_the_first_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's headers are empty here; the compiler needs many seconds for all of them."""
    headers = tmp_path / "torch/include/torch"
    headers.mkdir(parents=True)
    for name in ("all.h", "library.h"):
        (headers / name).touch()
    found = SimpleNamespace(__file__=str(headers.parents[1] / "__init__.py"), __version__="2.13.0", _C=torch._C)
    monkeypatch.setattr(compile_, "torch", found)
    tree = toy_source.write(tmp_path)
    (tree / "csrc/cpu/spec_decode_utils.cpp").write_text(
        "#error torch changed\nvoid expand_kernel_impl(torch::Tensor& x) {}\n"
    )
    with pytest.raises(VerispecError, match="does not compile alone") as error:
        resolve(f"vllm-cpu@{tree}")
    assert "torch changed" in error.value.diagnostic.cause


def test_a_tree_without_cpu_fallbacks_says_since_when_there_are_some(tmp_path: Path) -> None:
    tree = toy_source.write(tmp_path)
    (tree / "csrc/cpu/spec_decode_utils.cpp").unlink()
    with pytest.raises(VerispecError, match=r"no csrc/cpu/spec_decode_utils.cpp") as error:
        resolve(f"vllm-cpu@{tree}")
    assert "0.20.0" in error.value.diagnostic.hint
