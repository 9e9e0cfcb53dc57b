"""Engine ``onnxruntime-genai``: generation of ONNX Runtime GenAI on the CPU, in float32, one request after the other.

Its generator runs plain, with a draft model, or with n-grams. Checkpoints are converted by its own model builder.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from verispec.engines import Description, Engine, Unsupported, UnsupportedCall
from verispec.engines.adapters.checkpoints import content_key, end_tokens, tokenizer_of
from verispec.engines.adapters.partial import (
    PartialEngine,
    one_by_one,
    refuse_missing,
    require_cpu,
    require_known,
    require_room,
)
from verispec.engines.checkout import filled_folder
from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    LoadOptions,
    OnEmit,
    SpeculationMetrics,
    SpeculativeStep,
)
from verispec.engines.protocol.speculation import AUTO
from verispec.errors import VerispecError
from verispec.reference.models import load_target

MODEL = "genai_config.json"


class OnnxRuntime(PartialEngine):
    """The ONNX Runtime GenAI installed here."""

    lacks: ClassVar = {
        "op": "ONNX Runtime GenAI's verification has no name outside of its generator",
        "sampler": "ONNX Runtime GenAI's sampler has no name outside of its generator",
        "definitions": "ONNX Runtime GenAI has no kernels with callers of their own",
    }

    def __init__(self) -> None:
        try:
            self._genai: Any = importlib.import_module("onnxruntime_genai")
        except ImportError as error:
            raise VerispecError(
                "V-ENG-ONNX",
                "ONNX Runtime GenAI cannot be imported",
                where="--engine onnxruntime-genai",
                cause=f"{type(error).__name__}: {error}",
                hint="pip install onnxruntime-genai, and onnx and onnx-ir for its model builder",
            ) from error

    def describe(self) -> Description:
        """Return the versions of ONNX Runtime GenAI and ONNX Runtime."""
        details = {"onnxruntime": version("onnxruntime")}
        return Description("onnxruntime-genai", version("onnxruntime-genai"), "cpu", "cpu", details)

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        """Return a generator over the checkpoint folder `target`; see `Engine.load`."""
        wanted, plain = LoadOptions(**options), LoadOptions()
        for refused, reason in (
            (
                wanted.method not in ("none", "ngram", "draft_model"),
                f"this adapter converts no {wanted.method} drafter",
            ),
            (wanted.sampler != "flat", "ONNX Runtime GenAI has no random numbers counted by position"),
            (wanted.rejection_sample_method != "standard", "ONNX Runtime GenAI has one verification method"),
            (wanted.parallel_drafting, "ONNX Runtime GenAI's draft models draft one token after another"),
            (wanted.num_speculative_tokens_per_batch_size, "ONNX Runtime GenAI speculates for one sequence alone"),
            (wanted.speculative_token_tree, "ONNX Runtime GenAI drafts chains"),
            (wanted.method == "ngram" and wanted.ngram_min > plain.ngram_min, "its n-grams have one length"),
            (wanted.method == "ngram" and wanted.ngram_max > 15, "ONNX Runtime GenAI matches at most 15 tokens"),
            (wanted.num_speculative_tokens == AUTO, "ONNX Runtime GenAI drafts with one K"),
            (wanted.max_drafts > 16, "ONNX Runtime GenAI drafts at most 16 tokens"),
            (wanted.async_scheduling, "ONNX Runtime GenAI's generator has no scheduler"),
            (wanted.tensor_parallel_size > 1, "this adapter runs ONNX Runtime GenAI in one process"),
            (wanted.lora_adapters, "this adapter converts no LoRA adapters"),
            (wanted.dtype != "float32", "this adapter builds float32 models"),
            (wanted.num_blocks or wanted.block_size != plain.block_size, "its generator has no paged KV cache"),
            (wanted.draft_sample_method == "greedy", "ONNX Runtime GenAI's draft models draw their drafts"),
            (wanted.logprobs_mode != "raw", "ONNX Runtime GenAI reports no log-probabilities"),
        ):
            if refused:
                return Unsupported(reason)
        return OnnxRuntimeGenerator(self._genai, Path(target), wanted)


class OnnxRuntimeGenerator:
    """`onnxruntime_genai.Generator` behind the `Generator` protocol; one sequence at a time."""

    def __init__(self, genai: Any, target: Path, options: LoadOptions) -> None:
        self._genai, self._options = genai, options
        self._seeds = itertools.count(options.seed)  # of requests without one: no two draw alike
        self._folder = _converted(target) if options.draft is None else _joined(target, Path(options.draft))
        config = json.loads((target / "config.json").read_text(encoding="utf-8"))
        self._eos = end_tokens(target, config)
        self._vocab_size = int(config["vocab_size"])
        longest = int(config["max_position_embeddings"])
        if options.max_model_len > longest:
            raise VerispecError(
                "V-GEN-OPTION",
                f"max_model_len={options.max_model_len} is more than the model's {longest} positions",
                where="max_model_len",
                hint=f"give at most {longest}, or 0",
            )
        self._limit = options.max_model_len or longest
        self._stops: tuple[int, ...] | None = None
        self._model: Any = None
        self._model_for(tuple(self._eos))

    def generate(self, requests: Sequence[GenerationRequest], on_emit: OnEmit | None = None) -> list[GenerationResult]:
        """Run the requests one by one, and call `on_emit` after each; see `Generator.generate`."""
        return one_by_one(requests, on_emit, self._one)

    def metrics(self) -> SpeculationMetrics:
        """Return no counts: results have the steps."""
        return SpeculationMetrics()

    def close(self) -> None:
        """Free the model."""
        self._model = None

    def _model_for(self, stops: tuple[int, ...]) -> Any:
        """Return the model with these stop tokens, which belong to its configuration."""
        if stops != self._stops:
            config = self._genai.Config(str(self._folder))
            config.overlay(json.dumps({"model": {"eos_token_id": list(stops)}}))
            try:
                self._model = self._genai.Model(config)
            except RuntimeError as error:
                raise VerispecError(
                    "V-ENG-ONNX",
                    "ONNX Runtime GenAI refuses the models",
                    where=str(self._folder),
                    cause=str(error),
                    hint="name folders of one family, with the same vocabulary",
                ) from error
            self._stops = stops
        return self._model

    def _one(self, index: int, request: GenerationRequest) -> GenerationResult:
        _reject_missing(request)
        length = len(request.prompt_token_ids)
        require_room(index, length, self._limit)
        require_known(index, request.prompt_token_ids, self._vocab_size)
        stops = tuple(sorted({*request.stop_token_ids, *([] if request.ignore_eos else self._eos)}))
        generator = self._genai.Generator(model := self._model_for(stops), self._parameters(model, request))
        generator.append_tokens(np.array(request.prompt_token_ids, np.int32))
        token_ids: list[int] = []
        steps: list[SpeculativeStep] = []
        before = self._counts(generator)
        while not generator.is_done():
            generator.generate_next_token()
            token_ids.append(int(generator.get_next_tokens()[0]))
            now = self._counts(generator)
            if now[0] > before[0]:
                steps.append(SpeculativeStep(now[1] - before[1], now[2] - before[2]))
            elif len(token_ids) > sum(step.accepted + 1 for step in steps):
                steps.append(SpeculativeStep(0, 0))
            before = now
        reason = FinishReason.STOP if token_ids[-1] in stops else FinishReason.LENGTH
        # The suite knows the drafts' distribution without limits; the draft model here has the request's top-k.
        return GenerationResult(tuple(token_ids), reason, steps=() if request.top_k else tuple(steps))

    def _parameters(self, model: Any, request: GenerationRequest) -> Any:
        options, length = self._options, len(request.prompt_token_ids)
        chosen = self._genai.GeneratorParams(model)
        search = {
            "max_length": min(length + request.max_tokens, self._limit),
            "min_length": length + request.min_tokens if request.min_tokens else 0,
            "do_sample": not request.greedy,
            "repetition_penalty": request.repetition_penalty,
        }
        if not request.greedy:
            seed = next(self._seeds) if request.seed is None else request.seed
            search |= {"temperature": request.temperature, "top_k": request.top_k, "top_p": request.top_p}
            search["random_seed"] = seed % 2**31
        chosen.set_search_options(**search)
        if options.method != "none":
            chosen.set_speculative_options(max_draft_tokens=options.max_drafts)
        if options.method == "ngram":
            chosen.set_speculative_options(ngram_size=options.ngram_max + 1)  # The suffix and the token after it.
        return chosen

    def _counts(self, generator: Any) -> tuple[int, int, int]:
        """Return rounds, proposed and accepted drafts so far."""
        found = generator.get_speculative_stats()
        return found["rounds"], found["draft_tokens_proposed"], found["draft_tokens_accepted"]


def _converted(folder: Path) -> Path:
    """Return a folder with the ONNX model of a checkpoint, made by the engine's builder and cached by its content."""
    if (folder / MODEL).is_file():
        return folder

    def fill(to: Path) -> None:
        size = load_target(folder).config.vocab_size  # Refuses a folder that is no checkpoint.
        with tempfile.TemporaryDirectory() as made:
            source = Path(made) / "checkpoint"
            shutil.copytree(folder, source)
            tokenizer_of(folder, size).save_pretrained(source)  # The builder wants one.
            options = ["-i", str(source), "-o", str(to), "-c", made, "-p", "fp32", "-e", "cpu"]
            command = [sys.executable, "-m", "onnxruntime_genai.models.builder", *options]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            raise UnsupportedCall(f"the model builder of ONNX Runtime GenAI does not convert {folder.name}: {last}")
        _add_end(to, size)

    source_text = Path(__file__).read_text(encoding="utf-8")
    return filled_folder("onnxruntime-genai", content_key((folder,), version("onnxruntime-genai"), source_text), fill)


def _add_end(folder: Path, vocab_size: int) -> None:
    """Add a token of the logit -inf, and make it the end of sequence: the engine has at least one such token."""
    onnx: Any = importlib.import_module("onnx")
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    graph, helper, types = model.graph, onnx.helper, onnx.TensorProto
    for node in graph.node:
        node.output[:] = ["logits_of_model" if name == "logits" else name for name in node.output]
    graph.initializer.append(helper.make_tensor("one_token", types.INT64, [6], [0, 0, 0, 0, 0, 1]))
    graph.initializer.append(helper.make_tensor("never", types.FLOAT, [], [-np.inf]))
    graph.node.append(helper.make_node("Pad", ["logits_of_model", "one_token", "never"], ["logits"]))
    for output in graph.output:
        if output.name == "logits":
            output.type.tensor_type.shape.dim[2].dim_value = vocab_size + 1
    onnx.save(model, folder / "model.onnx")
    config = json.loads((folder / MODEL).read_text(encoding="utf-8"))
    config["model"] |= {"vocab_size": vocab_size + 1, "eos_token_id": [vocab_size], "pad_token_id": vocab_size}
    (folder / MODEL).write_text(json.dumps(config), encoding="utf-8")


def _joined(target: Path, draft: Path) -> Path:
    """Return a folder whose configuration names a target and its draft model."""
    models = {"decoder": _converted(target), "draft": _converted(draft)}

    def fill(to: Path) -> None:
        configs = {part: json.loads((folder / MODEL).read_text(encoding="utf-8")) for part, folder in models.items()}
        joined = configs["decoder"]
        for part, folder in models.items():
            (to / part).mkdir()
            for path in folder.glob("model.onnx*"):
                os.link(path, to / part / path.name)
            joined["model"][part] = configs[part]["model"]["decoder"] | {"filename": f"{part}/model.onnx"}
        (to / MODEL).write_text(json.dumps(joined), encoding="utf-8")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(models["decoder"] / name, to / name)

    return filled_folder("onnxruntime-genai", content_key(tuple(models.values()), "joined"), fill)


def _reject_missing(request: GenerationRequest) -> None:
    """Raise UnsupportedCall for parameters that ONNX Runtime GenAI lacks."""
    missing = (
        (request.min_p, "min-p"),
        (request.top_p < 1, "exact top-p: its nucleus may have a few tokens more, as its source says"),
        (request.presence_penalty or request.frequency_penalty, "presence or frequency penalty"),
        (request.bad_words, "bad words"),
        (request.allowed_token_ids, "allowed token ids"),
        (request.logit_bias, "logit bias"),
        (request.grammar is not None, "grammars of token ids"),
        (request.logprobs is not None or request.prompt_logprobs is not None, "log-probabilities"),
        (request.n > 1, "several samples of one prompt with drafts"),
        (request.stop, "stop strings among token ids"),
        (request.abort_after is not None, "aborts of a request by its batch"),
    )
    refuse_missing("ONNX Runtime GenAI", missing)


def create(device: str | None = None) -> Engine:
    """Return the ONNX Runtime GenAI installed here.

    Args:
        device: None or "cpu".

    Raises:
        VerispecError: V-ENG-ONNX when the package is missing, V-ENG-DEVICE for another device.
    """
    require_cpu(device, "onnxruntime-genai")
    return OnnxRuntime()
