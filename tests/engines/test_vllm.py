"""Engine vllm over a toy: ops are reached through call sites, and unsupported calls are distinguished from crashes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_vllm

from verispec.engines import CallShape, Unsupported, UnsupportedCall
from verispec.engines.adapters.vllm.installed import fallbacks
from verispec.engines.registry import resolve
from verispec.errors import VerispecError

Toy = Callable[..., Path]


def expand(engine: Any, dtype: torch.dtype = torch.float32, **changed: Any) -> list[float]:
    """The op expand_batch_to_tokens of `engine` on two requests with 1 and 2 drafts."""
    op = engine.op("expand_batch_to_tokens")
    assert not isinstance(op, Unsupported), op.reason
    out = torch.full((3,), -7, dtype=dtype)
    arguments = {
        "output_ptr": out,
        "input_ptr": torch.tensor([2, 0], dtype=dtype),
        "cu_num_tokens_ptr": torch.tensor([1, 3], dtype=torch.int32),
        "replace_from": 0,
        "replace_to": 1,
        "MAX_NUM_TOKENS": 2,
    }
    op(**{**arguments, **changed})
    values: list[float] = out.tolist()
    return values


@pytest.mark.parametrize("generation", ["registry", "runner"])
def test_an_op_is_reached_through_the_caller_of_either_generation(toy: Toy, generation: str) -> None:
    toy(generation, toy_vllm.RIGHT)
    assert expand(resolve("vllm")) == [2, 1, 1]


@pytest.mark.parametrize("generation", ["registry", "runner"])
def test_a_write_that_is_lost_stays_lost(toy: Toy, generation: str) -> None:
    toy(generation, toy_vllm.LOST_WRITE)
    engine = resolve("vllm")
    assert expand(engine) == [-7, -7, -7]
    assert expand(engine, torch.int64) == [2, 1, 1]


def test_a_fallback_where_callers_do_not_look_is_not_used(toy: Toy) -> None:
    """The runner assigns the kernel's name, but the caller's dispatcher keeps the function without effect."""
    toy("runner", toy_vllm.RIGHT, misplaced=True)
    engine = resolve("vllm")
    assert not engine.definitions()["expand_batch_to_tokens"].runs
    with pytest.raises(TypeError, match="not subscriptable"):
        expand(engine)


def test_a_fault_between_the_caller_and_a_right_fallback_is_seen(toy: Toy) -> None:
    folder = toy("registry", toy_vllm.RIGHT)
    dispatcher = folder / "vllm/triton_utils/dispatcher.py"
    launch = "return lambda **kwargs: self.func("
    dispatcher.write_text(dispatcher.read_text().replace(launch, "return lambda **kwargs: print("))
    assert expand(resolve("vllm")) == [-7, -7, -7]


def test_a_keyword_that_only_the_kernel_takes_is_a_crash(toy: Toy) -> None:
    """As in 0.20.0: the caller passes a new flag by name, the fallback does not have it."""
    folder = toy("runner", toy_vllm.RIGHT)
    fallback = folder / "vllm/utils/cpu_triton_utils.py"
    fallback.write_text(fallback.read_text().replace(", MAX_NUM_TOKENS=None", ""))
    with pytest.raises(TypeError, match="unexpected keyword argument 'MAX_NUM_TOKENS'"):
        expand(resolve("vllm"))


def test_a_kernel_without_any_fallback_is_a_gap(toy: Toy) -> None:
    folder = toy("runner", toy_vllm.RIGHT)
    runner = folder / "vllm/v1/worker/cpu_model_runner.py"
    runner.write_text(runner.read_text().replace(".expand_kernel = ", ".another_kernel = "))
    op = resolve("vllm").op("expand_batch_to_tokens")
    assert isinstance(op, Unsupported)
    assert "no CPU implementation" in op.reason


def test_a_refusal_in_words_before_any_write_is_a_gap(toy: Toy) -> None:
    toy("registry", toy_vllm.REFUSES)
    with pytest.raises(UnsupportedCall, match="float tables are not supported"):
        expand(resolve("vllm"))


def test_an_assertion_after_a_write_is_a_crash(toy: Toy) -> None:
    toy("registry", toy_vllm.FAILS_LATE)
    with pytest.raises(AssertionError, match="too late"):
        expand(resolve("vllm"))


def test_a_launch_with_more_tokens_than_the_caller_allows_is_refused(toy: Toy) -> None:
    toy("registry", toy_vllm.RIGHT)
    with pytest.raises(UnsupportedCall, match="MAX_NUM_TOKENS=128, asked for 129"):
        expand(resolve("vllm"), MAX_NUM_TOKENS=129)


def test_definitions_say_who_calls_and_with_what(toy: Toy) -> None:
    toy("runner", toy_vllm.RIGHT)
    live = resolve("vllm").definitions()["expand_batch_to_tokens"]
    assert live.where == "vllm.v1.sample.rejection_sampler.expand_kernel"
    assert live.parameters[0] == "output_ptr"
    assert (live.shape, live.runs) == (CallShape(5, ("MAX_NUM_TOKENS",)), True)
    assert live.implementation.__name__ == "_expand_kernel_impl"


def test_the_description_says_how_the_fallbacks_came(toy: Toy) -> None:
    toy("runner", toy_vllm.RIGHT)
    described = resolve("vllm").describe()
    assert (described.name, described.version, described.device) == ("vllm", "0.99.0", "cpu")
    assert described.details["fallbacks installed by"] == "CPUModelRunner._postprocess_triton"
    assert described.details["vLLM's HAS_TRITON"] == "False"


def test_a_vllm_that_lacks_a_requirement_says_so(toy: Toy) -> None:
    folder = toy("registry", toy_vllm.RIGHT)
    sampler = folder / "vllm/v1/sample/rejection_sampler.py"
    sampler.write_text("import a_module_that_is_not_there\n" + sampler.read_text())
    with pytest.raises(VerispecError) as error:
        resolve("vllm")
    assert error.value.diagnostic.code == "V-ENG-VLLM"
    assert "a_module_that_is_not_there" in error.value.diagnostic.cause


def test_another_device_than_vllms_is_refused(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    toy("registry", toy_vllm.RIGHT)
    monkeypatch.setattr("verispec.engines.registry.require_cuda", lambda: None)
    with pytest.raises(VerispecError, match="this vLLM is for cpu"):
        resolve("vllm", "cuda")


def test_what_vllm_prints_does_not_reach_our_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    with fallbacks.quiet():
        print("noise")
    print("ours")
    assert capfd.readouterr().out == "ours\n"


def test_methods_that_assign_fallbacks_are_found_in_a_runners_source() -> None:
    assert fallbacks.replacing_methods(toy_vllm.RUNNER) == [("CPUModelRunner", "_postprocess_triton")]
