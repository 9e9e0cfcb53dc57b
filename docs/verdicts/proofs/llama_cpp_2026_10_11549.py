"""Four faults of llama.cpp in xllamacpp 2026.10.11549, with that library alone.

    pip install xllamacpp==2026.10.11549 gguf numpy
    python llama_cpp_2026_10_11549.py

Seen on 2026-11-24 and 2026-11-29 on Linux: the lines in the comments.
"""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import numpy as np
import xllamacpp

VOCAB, WIDTH = 64, 32


def saved(path: Path, seed: int) -> str:
    """Write a Llama model of one layer with random weights, and return its path."""
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(VOCAB)
    writer.add_tokenizer_model("rwkv")  # It has no end of sequence.
    writer.add_token_list([f"<{token}>" for token in range(VOCAB)])
    writer.add_token_types([gguf.TokenType.NORMAL] * VOCAB)
    square = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    for name in ("token_embd", "output"):
        writer.add_tensor(f"{name}.weight", random.normal(size=(VOCAB, WIDTH)).astype(np.float32))
    for name in square:
        writer.add_tensor(f"blk.0.{name}.weight", random.normal(size=(WIDTH, WIDTH)).astype(np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def served(target: str, draft: str = "", batch: int = 2048) -> xllamacpp.Server:
    """Return a server of a target with four slots, with a draft model or without."""
    options = xllamacpp.CommonParams()
    options.model.path, options.port, options.verbosity = target, 0, 0
    options.cpuparams.n_threads, options.n_parallel, options.n_ctx = 1, 4, 1024
    options.n_batch = options.n_ubatch = batch
    if draft:
        options.speculative.draft.mparams.path = draft
        options.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    return xllamacpp.Server(options)


def logprobs(answer: dict) -> list[float]:
    """Return the log-probabilities of a part of an answer."""
    found = answer["choices"][0]["logprobs"]
    return [round(entry["logprob"], 3) for entry in found["content"]] if found else []


with tempfile.TemporaryDirectory() as made:
    target = saved(Path(made) / "target.gguf", 0)
    request = {"prompt": [5, 9, 17], "max_tokens": 5, "temperature": 0.0, "logprobs": 1}
    plain = served(target)
    for name, server in (("without drafts", plain), ("with a draft model", served(target, target))):
        pieces: list[dict] = []
        server.handle_completions(request | {"stream": True}, pieces.append)
        print(f"{name}: log-probabilities {logprobs(server.handle_completions(request))}")  # 0.0 but the first
        print(f"{name}, streamed: {[value for piece in pieces for value in logprobs(piece)]}")  # The first alone.
    answer = plain.handle_completions(request | {"logit_bias": [[9999, 1.0]]})
    print(f"a bias of token 9999 of {VOCAB}:", answer.get("error", answer["choices"][0]["text"]))  # A text.
    hot = {"prompt": [5, 9, 17], "max_tokens": 1, "temperature": 50.0, "top_p": 1.0, "min_p": 0.0, "verbose": True}
    for top_k in (0, 2**32 + 1, 2**40 + 3):  # 0 keeps all.
        answers = [plain.handle_completions(hot | {"top_k": top_k, "seed": seed}) for seed in range(100)]
        texts = {answer["choices"][0]["text"] for answer in answers}
        read = answers[0]["__verbose"]["generation_settings"]["top_k"]
        print(f"a top_k of {top_k} is read as {read}: {len(texts)} tokens in 100 texts")  # As 1 and 3: 1 and 3 tokens.
    # GGML_ASSERT(add_ok && "batch must be large enough to hold the sampled and draft tokens"), and SIGABRT: four slots
    # with three drafts each want 16 tokens. The server has started without a word.
    small = served(target, saved(Path(made) / "draft.gguf", 1), batch=10)
    with ThreadPoolExecutor(4) as threads:
        body = {"prompt": list(range(5, 45)), "max_tokens": 20, "temperature": 0.0}
        list(threads.map(small.handle_completions, [body] * 16))
