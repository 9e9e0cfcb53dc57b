"""Engine vllm over a toy: ops are reached through call sites, and unsupported calls are distinguished from crashes."""

from __future__ import annotations

import inspect
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


def test_a_refusal_is_a_gap_for_a_single_element_of_any_stride(toy: Toy) -> None:
    toy("registry", toy_vllm.REFUSES)
    output = torch.full((4,), -7.0)[::3][:1]
    assert output.stride() == (3,)
    with pytest.raises(UnsupportedCall, match="float tables are not supported"):
        expand(resolve("vllm"), output_ptr=output)


def test_an_assertion_after_a_write_is_a_crash(toy: Toy) -> None:
    toy("registry", toy_vllm.FAILS_LATE)
    with pytest.raises(AssertionError, match="too late"):
        expand(resolve("vllm"))


def test_a_launch_with_more_tokens_than_the_caller_allows_is_refused(toy: Toy) -> None:
    toy("registry", toy_vllm.RIGHT)
    with pytest.raises(UnsupportedCall, match="MAX_NUM_TOKENS=128 for these arguments, asked for 129"):
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


PLUGIN = """\
import vllm.v1.sample.rejection_sampler as sampler


def expand(output, input, cu_num_tokens, replace_from, replace_to):
    start = 0
    for value, end in zip(input.tolist(), cu_num_tokens.tolist()):
        output[start:end] = replace_to if value == replace_from else value
        start = end


class Launched:
    def __getitem__(self, grid):
        return lambda *args, MAX_NUM_TOKENS: expand(*args)


def register():
    if hasattr(sampler, "_expand"):
        sampler._expand = expand
    else:
        sampler.expand_kernel = Launched()
"""
LOADER = """\
plugins_loaded = False


def load_general_plugins():
    global plugins_loaded
    if plugins_loaded:
        return
    plugins_loaded = True
    from importlib.metadata import entry_points

    for entry in entry_points(group="vllm.general_plugins"):
        entry.load()()
"""


def add_plugin(folder: Path) -> None:
    """Install a plugin that repairs the lost write, beside the toy in `folder`."""
    (folder / "toy_plugin.py").write_text(PLUGIN)
    (folder / "vllm/plugins").mkdir()
    (folder / "vllm/plugins/__init__.py").write_text(LOADER)
    info = folder / "toy_plugin-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-plugin\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\nrepair = toy_plugin:register\n")


def test_a_plugin_is_loaded_and_named(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)  # tpu-inference loads none, for all of its process
    add_plugin(toy("registry", toy_vllm.LOST_WRITE))
    engine = resolve("vllm")
    assert expand(engine) == [2, 1, 1]
    assert engine.describe().details["plugins"] == "toy-plugin 1.2"
    live = engine.definitions()["expand_batch_to_tokens"]
    assert (live.implementation.__module__, live.runs) == ("toy_plugin", True)
    assert live.parameters == ("output", "input", "cu_num_tokens", "replace_from", "replace_to"), "the dispatcher's own"
    inspect.signature(live.implementation).bind(*live.parameters[: live.shape.positional])
    scalars = {"replace_from": 0, "replace_to": 1, "MAX_NUM_TOKENS": 2}
    tensors = {name: name for name in ("output_ptr", "input_ptr", "cu_num_tokens_ptr")}
    setup = engine.standalone_call("expand_batch_to_tokens", scalars, tensors).setup
    assert setup.index("load_general_plugins()") < setup.index("current_platform.register_triton_kernel_overrides()")


def test_neither_vllms_own_plugins_nor_those_that_it_omits_are_named(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallbacks, "require_extension", lambda folder: None)  # this plugin loads no ops
    folder = toy("registry", toy_vllm.RIGHT)
    add_plugin(folder)
    (folder / "toy_plugin-1.2.dist-info/entry_points.txt").write_text(
        "[vllm.general_plugins]\nown = vllm.platforms:Platform\n"
    )
    assert "plugins" not in resolve("vllm").describe().details
    (folder / "toy_plugin-1.2.dist-info/entry_points.txt").write_text(
        "[vllm.general_plugins]\nrepair = toy_plugin:register\n"
    )
    monkeypatch.setenv("VLLM_PLUGINS", "another")
    assert "plugins" not in resolve("vllm").describe().details


def test_the_platforms_override_comes_after_a_plugin(toy: Toy) -> None:
    """The CPU runner of older releases assigns its fallback over the plugin's kernel, as in vLLM."""
    add_plugin(toy("runner", toy_vllm.LOST_WRITE))
    assert expand(resolve("vllm")) == [-7, -7, -7]
