"""States of recurrent layers: hybrids of several architectures in pieces, with rejections, and clear refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file
from train_fixtures.build import eagle3_head
from train_fixtures.export import save_eagle3
from train_fixtures.recipe import Recipe
from transformers import (
    FalconH1Config,
    FalconH1ForCausalLM,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    JambaConfig,
    JambaForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
    RecurrentGemmaConfig,
    RecurrentGemmaForCausalLM,
)

from verispec import fixtures
from verispec.engines.protocol.generation import GenerationRequest, LoadOptions
from verispec.errors import VerispecError
from verispec.reference.models import load_target, recurrent
from verispec.reference.models.recurrent import RecurrentPart, RecurrentStates, recurrent_layers
from verispec.reference.models.sharding import shard
from verispec.reference.runners.cpu import CPURunner

VOCAB = 32
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": 128, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    "initializer_range": 0.3,
}  # fmt: skip
KINDS = ["linear_attention", "full_attention", "linear_attention"]
MAMBA2: dict[str, Any] = {"mamba_n_heads": 2, "mamba_d_state": 8, "mamba_chunk_size": 8, "mamba_expand": 1}


def mamba2() -> PreTrainedModel:
    own = {"shared_intermediate_size": 32, "num_local_experts": 0, "num_experts_per_tok": 0, "layer_types": KINDS}
    return GraniteMoeHybridForCausalLM(GraniteMoeHybridConfig(**SIZES, **MAMBA2, **own, num_hidden_layers=3))


def mamba2_beside_attention() -> PreTrainedModel:
    own = {"head_dim": 16, "mamba_d_ssm": 32, "mamba_d_head": 16}
    return FalconH1ForCausalLM(FalconH1Config(**SIZES, **MAMBA2, **own, num_hidden_layers=2))


def gated_delta_net() -> PreTrainedModel:
    own = {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 16}
    own |= {"linear_value_head_dim": 16, "head_dim": 16, "num_experts": 0, "mlp_only_layers": [0, 1, 2]}
    return Qwen3NextForCausalLM(Qwen3NextConfig(**SIZES, **own, num_hidden_layers=3, layer_types=KINDS))


def short_convolution() -> PreTrainedModel:
    kinds = ["conv", "full_attention", "conv"]
    return Lfm2ForCausalLM(Lfm2Config(**SIZES, num_hidden_layers=3, block_auto_adjust_ff_dim=False, layer_types=kinds))


def forgetful() -> PreTrainedModel:
    """Mamba layers of transformers 5.23 start every chunk of several tokens from the empty state."""
    own = {"attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 1, "num_experts_per_tok": 1}
    own |= {"mamba_d_state": 8, "mamba_dt_rank": 4, "use_mamba_kernels": False}
    return JambaForCausalLM(JambaConfig(**SIZES, **own, num_hidden_layers=3))


def saved(make: Callable[[], PreTrainedModel], folder: Path) -> PreTrainedModel:
    torch.manual_seed(1)
    made = make().eval()
    made.save_pretrained(folder)
    return made


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    torch.manual_seed(2)
    LlamaForCausalLM(LlamaConfig(**SIZES, num_hidden_layers=1)).save_pretrained(tmp_path / "draft")
    return tmp_path / "draft"


@pytest.mark.parametrize("make", [mamba2, mamba2_beside_attention, gated_delta_net, short_convolution])
def test_pieces_and_rejections_leave_the_state_of_the_accepted_tokens(
    make: Callable[[], PreTrainedModel], tmp_path: Path, draft: Path
) -> None:
    """Four requests in two places, prompts in chunks, and one, two, three or no drafts accepted in a step."""
    model = saved(make, tmp_path / "target")
    options = LoadOptions(
        method="draft_model",
        draft=draft,
        rejection_sample_method="synthetic",
        synthetic_acceptance_rates=(0.9, 0.6, 0.3),
        max_num_seqs=2,
        max_num_batched_tokens=9,
    )
    prompts = [tuple(torch.randint(1, VOCAB, (5 + 3 * n,)).tolist()) for n in range(4)]
    asked = [GenerationRequest(prompt, max_tokens=12, logprobs=0) for prompt in prompts]
    results = CPURunner(tmp_path / "target", options).generate(asked)
    accepted = {step.accepted for result in results for step in result.steps if step.drafted == 3}
    assert accepted == {0, 1, 2, 3}
    for prompt, result in zip(prompts, results, strict=True):
        with torch.inference_mode():
            rows = model(torch.tensor([[*prompt, *result.token_ids]]), use_cache=False).logits[0].log_softmax(-1)
        wanted = rows[len(prompt) - 1 : -1].gather(1, torch.tensor(result.token_ids)[:, None])[:, 0]
        found = torch.tensor([entry.sampled for entry in result.logprobs])
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_other_dtypes_run(dtype: str, tmp_path: Path) -> None:
    saved(mamba2, tmp_path / "target")
    runner = CPURunner(tmp_path / "target", LoadOptions(method="ngram", ngram_min=1, dtype=dtype))
    [result] = runner.generate([GenerationRequest((1, 2, 3, 1, 2, 3, 1), max_tokens=12)])
    assert len(result.token_ids) == 12
    assert runner.metrics().num_drafts > 0


def test_a_small_hybrid_runs_in_one_thread(tmp_path: Path) -> None:
    """The fixture `one_thread` puts the number of threads back."""
    saved(mamba2, tmp_path / "target")
    runner, seen = CPURunner(tmp_path / "target", LoadOptions()), []
    runner._model.model.norm.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    torch.set_num_threads(2)
    runner.generate([GenerationRequest((1, 2, 3), max_tokens=3)])
    assert (seen, torch.get_num_threads()) == ([1, 1, 1], 2)


def states_of(slots: int = 2, drafts: int = 2) -> tuple[PreTrainedModel, RecurrentStates]:
    torch.manual_seed(1)
    model = mamba2().eval().requires_grad_(False)
    return model, RecurrentStates(model, slots, drafts, torch.from_numpy)


def run(model: PreTrainedModel, states: RecurrentStates, *parts: RecurrentPart) -> torch.Tensor:
    """Run the first recurrent layer over tokens that are the same for every request, [T, H]."""
    states.select(parts)
    rows = torch.linspace(-2, 2, 12 * 32).cos().view(12, 32)
    tokens = torch.cat([rows[part.computed : part.computed + part.num_tokens] for part in parts])
    output: torch.Tensor = model.model.layers[0].mamba(hidden_states=tokens[None])[0]
    return output


def test_poison_in_a_slot_reaches_no_other_request() -> None:
    model, states = states_of()
    whole = run(model, states, RecurrentPart(0, 0, 8, 0))
    run(model, states, RecurrentPart(0, 0, 4, 0), RecurrentPart(1, 0, 3, 0))
    states.poison(1)
    later = run(model, states, RecurrentPart(0, 4, 4, 2))
    torch.testing.assert_close(later, whole[4:])
    again = run(model, states, RecurrentPart(1, 0, 4, 0))
    torch.testing.assert_close(again, whole[:4])


def test_a_read_of_a_poisoned_state_shows() -> None:
    model, states = states_of()
    run(model, states, RecurrentPart(1, 0, 3, 0))
    states.poison(1)
    states._first[1], states._last[1] = 3, 3
    assert run(model, states, RecurrentPart(1, 3, 1, 0)).isnan().any()


@pytest.mark.parametrize("computed", [2, 6])
def test_a_state_that_is_not_there_is_named(computed: int) -> None:
    model, states = states_of()
    run(model, states, RecurrentPart(1, 0, 5, 2))
    message = rf"V-RUN-RECURRENT.*slot 1 has no state after {computed} tokens\n.*those after 3 to 5 tokens"
    with pytest.raises(VerispecError, match=message):
        states.select([RecurrentPart(1, computed, 1, 0)])


def test_a_layer_that_forgets_its_state_is_refused(tmp_path: Path) -> None:
    saved(forgetful, tmp_path / "target")
    with pytest.raises(VerispecError, match=r"V-RUN-RECURRENT.*JambaMambaMixer does not continue from its state"):
        CPURunner(tmp_path / "target", LoadOptions())


def test_unknown_recurrent_layers_are_refused() -> None:
    model = RecurrentGemmaForCausalLM(RecurrentGemmaConfig(**SIZES, num_hidden_layers=3, lru_width=32))
    with pytest.raises(VerispecError, match=r"V-RUN-RECURRENT.*recurrent layers of an unknown kind"):
        recurrent_layers(model)


def test_an_old_transformers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "Cache", object)
    with pytest.raises(VerispecError, match=f"V-RUN-RECURRENT.*transformers {transformers.__version__}"):
        recurrent_layers(mamba2())


def test_a_recurrent_draft_model_is_refused() -> None:
    hybrid = fixtures.model("hybrid")
    with pytest.raises(VerispecError, match=r"V-GEN-OPTION.*draft model has recurrent layers"):
        CPURunner(hybrid, LoadOptions(method="draft_model", draft=hybrid))


def test_ranks_are_refused() -> None:
    with pytest.raises(VerispecError, match=r"V-RANK-PLAN.*recurrent layers"):
        shard(load_target(fixtures.model("hybrid")), 0, 1)


def test_adapters_are_refused(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"lora_alpha": 8}')
    save_file({}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(
        VerispecError, match=r"V-GEN-OPTION.*lora_adapters must be \(\) for a target with recurrent layers"
    ):
        CPURunner(fixtures.model("hybrid"), LoadOptions(lora_adapters=(tmp_path,)))
    tree = LoadOptions(
        method="draft_model", draft=fixtures.model("draft"), draft_sample_method="greedy", num_speculative_tokens=2,
        speculative_token_tree=((0,), (1,)),
    )  # fmt: skip
    with pytest.raises(VerispecError, match=r"V-GEN-OPTION.*speculative_token_tree must be None"):
        CPURunner(fixtures.model("hybrid"), tree)


def test_attention_alone_has_no_states() -> None:
    assert recurrent_layers(load_target(fixtures.model("draft"))) == []
    assert len(recurrent_layers(load_target(fixtures.model("hybrid")))) == 3


def test_an_eagle3_head_drafts_for_a_hybrid(tmp_path: Path) -> None:
    """The head reads hidden states, as of any target; its drafts are rejected, and the text is the plain one."""
    sizes = replace(Recipe(), target=Recipe().hybrid, aux_layers=(1, 2, 3))
    hybrid = fixtures.model("hybrid")
    torch.manual_seed(4)
    save_eagle3(tmp_path / "eagle3", eagle3_head(load_target(hybrid), torch.arange(0, 2048, 2), sizes), sizes)
    asked = [GenerationRequest(tuple(range(start, start + 20)), max_tokens=16) for start in (5, 200)]
    drafting = CPURunner(hybrid, LoadOptions(method="eagle3", draft=tmp_path / "eagle3"))
    texts = [[result.token_ids for result in r.generate(asked)] for r in (CPURunner(hybrid, LoadOptions()), drafting)]
    assert texts[0] == texts[1]
    assert drafting.metrics().num_draft_tokens > drafting.metrics().num_accepted_tokens
