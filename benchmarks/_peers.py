"""The Triton kernels of a vLLM source tree, for the same work as the reference's ops.

vLLM verifies in one host function, `rejection_sample`. It launches two kernels for probabilistic_rejection and two for
residual_resample. This module launches them one by one, with the arguments of the host function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
import triton

from verispec.engines.adapters.vllm.source.tree import Kernels
from verispec.engines.adapters.vllm.source.triton_engine import TritonKernels
from verispec.reference.contracts import load

_UTILS = "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils"


class Verification:
    """vLLM's slot-indexed kernels with the inputs of one op and their scratch."""

    def __init__(self, kernels: Kernels, inputs: dict[str, Any], block: bool) -> None:
        self._load = kernels.load
        self.inputs, self.block = inputs, block
        target, draft = inputs["target_logits"], inputs["draft_logits"]
        self.rows, vocabulary = target.shape
        self.requests = inputs["idx_mapping"].shape[0]
        self.vocabulary = vocabulary if draft is None else min(vocabulary, draft.shape[2])
        self.has_draft = draft is not None
        self.draft_strides = draft.stride()[:2] if draft is not None else (0, 0)
        self.blocks = triton.cdiv(self.vocabulary, 8192)
        self.race_blocks = triton.cdiv(self.vocabulary, 1024)
        empty = target.new_empty
        self.argmax = empty((self.rows, self.blocks), dtype=torch.int64)
        names = ("target_max", "target_sum", "draft_max", "draft_sum", "mass")
        self.scratch = {name: empty((self.rows, self.blocks), dtype=torch.float32) for name in names}
        self.log_p = empty(self.rows, dtype=torch.float32)
        self.sampled = empty((self.requests, inputs["steps"] + 1), dtype=torch.int64)
        self.num_sampled = empty(self.requests, dtype=torch.int32)
        self.target_lse = empty(self.requests, dtype=torch.float32)
        self.draft_lse = empty(self.requests, dtype=torch.float32)
        self.race_argmax = empty((self.requests, self.race_blocks), dtype=torch.int64)
        self.race_max = empty((self.requests, self.race_blocks), dtype=torch.float32)
        self.kernels = {
            name: self._load(f"{_UTILS}.{name}")
            for name in (
                "_compute_local_logits_stats_kernel",
                "_compute_cumulative_log_p_kernel",
                "_compute_local_residual_mass_kernel",
                "_rejection_kernel",
                "_resample_kernel",
                "_insert_resampled_kernel",
            )
        }

    def _common(self) -> dict[str, Any]:
        i, s = self.inputs, self.scratch
        return {
            "sampled_ptr": self.sampled,
            "sampled_stride": self.sampled.stride(0),
            "rejected_steps_ptr": self.num_sampled,
            "rejected_step_ptr": self.num_sampled,
            "num_sampled_ptr": self.num_sampled,
            "target_rejected_logsumexp_ptr": self.target_lse,
            "draft_rejected_logsumexp_ptr": self.draft_lse,
            "target_logits_ptr": i["target_logits"],
            "target_logits_stride": i["target_logits"].stride(0),
            "draft_logits_ptr": i["draft_logits"],
            "draft_logits_stride_0": self.draft_strides[0],
            "draft_logits_stride_1": self.draft_strides[1],
            "target_local_argmax_ptr": self.argmax,
            "target_local_argmax_stride": self.argmax.stride(0),
            "target_local_max_ptr": s["target_max"],
            "target_local_max_stride": self.blocks,
            "target_local_sumexp_ptr": s["target_sum"],
            "target_local_sumexp_stride": self.blocks,
            "draft_local_max_ptr": s["draft_max"],
            "draft_local_max_stride": self.blocks,
            "draft_local_sumexp_ptr": s["draft_sum"],
            "draft_local_sumexp_stride": self.blocks,
            "local_residual_mass_ptr": s["mass"],
            "local_residual_mass_stride": self.blocks,
            "cumulative_log_p_ptr": self.log_p if self.block else None,
            "draft_sampled_ptr": i["draft_sampled"],
            "cu_num_logits_ptr": i["cu_num_logits"],
            "idx_mapping_ptr": i["idx_mapping"],
            "expanded_idx_mapping_ptr": i["expanded_idx_mapping"],
            "expanded_local_pos_ptr": i["expanded_local_pos"],
            "temp_ptr": i["temperature"],
            "seed_ptr": i["seed"],
            "pos_ptr": i["pos"],
            "resampled_local_argmax_ptr": self.race_argmax,
            "resampled_local_argmax_stride": self.race_blocks,
            "resampled_local_max_ptr": self.race_max,
            "resampled_local_max_stride": self.race_blocks,
            "resample_num_blocks": self.race_blocks,
            "vocab_size": self.vocabulary,
            "num_logits": self.rows,
            "vocab_num_blocks": self.blocks,
            "synthetic_conditional_rates_ptr": None,
            "fly_entropy_ptr": None,
            "fly_entropy_threshold": 0.0,
            "contexts_ptr": None,
            "contexts_stride": 0,
            "watermarking_ptr": None,
            "watermarking_skip_mask_ptr": None,
            "watermark_key_0": 0,
            "watermark_key_1": 0,
            "HAS_DRAFT_LOGITS": self.has_draft,
            "PADDED_VOCAB_NUM_BLOCKS": triton.next_power_of_2(self.blocks),
            "PADDED_RESAMPLE_NUM_BLOCKS": triton.next_power_of_2(self.race_blocks),
            "SYNTHETIC_MODE": False,
            "USE_BLOCK_VERIFICATION": self.block,
            "FLY_WINDOW_SIZE": 0,
            "USE_FP64": False,
            "CONTEXT_WIDTH": 1,
            "WATERMARK": False,
            "DEDUPLICATE_CONTEXTS": False,
        }

    def _launch(self, name: str, grid: tuple[int, ...], **more: Any) -> None:
        kernel = self.kernels[name]
        available = {**self._common(), **more}
        kernel[grid](**{n: available[n] for n in kernel.arg_names}, **({"num_warps": 1} if len(grid) == 1 else {}))

    def stats(self) -> None:
        self._launch("_compute_local_logits_stats_kernel", (self.rows, self.blocks), BLOCK_SIZE=8192)

    def verify(self) -> None:
        self.stats()
        if self.block:
            self._launch("_compute_cumulative_log_p_kernel", (self.requests,))
            if self.has_draft:
                self._launch("_compute_local_residual_mass_kernel", (self.rows, self.blocks), BLOCK_SIZE=8192)
        self._launch("_rejection_kernel", (self.requests,))

    def step(self) -> None:
        """Run the whole verification of a step: it writes the counts, so that nothing has to be put back."""
        self.verify()
        self._resample()

    def resample(self, rejected: Any) -> None:
        # The insertion increments the counts, so that each run must start from the same values.
        self.num_sampled.copy_(rejected)
        self._resample()

    def _resample(self) -> None:
        self._launch("_resample_kernel", (self.requests, self.race_blocks), BLOCK_SIZE=1024)
        kernel = self.kernels["_insert_resampled_kernel"]
        available = self._common()
        kernel[(self.requests,)](**{n: available[n] for n in kernel.arg_names})


class Peers:
    """vLLM's counterparts of the reference's ops, as functions without arguments."""

    def __init__(self, source: str) -> None:
        self._kernels = Kernels(f"vllm@{source}", source)
        self._engine = TritonKernels(self._kernels, "cuda")
        self.version = self._kernels.version

    def verification(self, inputs: dict[str, Any], block: bool = False) -> Verification:
        return Verification(self._kernels, inputs, block)

    def flat(self, name: str, arguments: dict[str, Any], known: dict[str, int]) -> Callable[[], Any]:
        if name in self._GRIDS:
            # The engine reads the counts to compute the grid, which a captured graph cannot do. Here the host knows it.
            _, kernel = self._kernels.find(load(name))
            grid, given = self._GRIDS[name](arguments | known)
            passed = {n: given.get(n, arguments.get(n)) for n in kernel.arg_names}
            return lambda: kernel[grid](**passed)
        op = self._engine.op(name)
        return lambda: op(**arguments)

    _GRIDS: ClassVar[dict[str, Callable[[dict[str, Any]], tuple[tuple[int, ...], dict[str, Any]]]]] = {
        "sample_recovered_tokens": lambda a: ((a["cu_num_draft_tokens_ptr"].shape[0], a["max_spec_len"]), {}),
        "copy_and_expand_dflash_inputs": lambda a: (
            (a["query_start_loc_ptr"].shape[0] - 1, triton.cdiv(a["longest"], 256)),
            {"BLOCK_SIZE": 256},
        ),
        "copy_and_expand_eagle_inputs": lambda a: (
            (a["query_end_loc_ptr"].shape[0], triton.cdiv(a["longest"], 256)),
            {"BLOCK_SIZE_TOKENS": 256},
        ),
    }
    """Grid and further arguments of vLLM's kernels, by op."""

    def gumbel_sample(self, arguments: dict[str, Any]) -> Callable[[], Any]:
        function = self._kernels.load("vllm.v1.worker.gpu.sample.gumbel.gumbel_sample")
        given = {name: value for name, value in arguments.items() if name != "sampled"}
        return lambda: function(**given)

    def apply_top_k_top_p(self, logits: Any, k: Any, p: Any) -> Callable[[], Any]:
        function = self._kernels.load("vllm.v1.sample.ops.topk_topp_triton.apply_top_k_top_p_triton")
        return lambda: function(logits, k, p)
