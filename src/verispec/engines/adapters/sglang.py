"""Engine ``sglang@SOURCE``: the verification kernels of SGLang out of any tree or release.

They run in Triton's interpreter, or with ``--device cuda`` on a GPU.

What `eagle_sample` of its speculative workers does is done here with its own parts: verification of a greedy step
(`verify_tree_greedy_triton`, over chains) or rejection sampling (`chain_speculative_sampling_triton`, by tokens or by
blocks) after its renormalisation of top-k and top-p (`renorm_triton`). SGLang's batches are rectangular: every
request has the same number of drafts. Requests of one step are therefore verified in groups of equal numbers.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch

from verispec.engines import Description, Engine, OpFunction, SamplerBatch, Unsupported, UnsupportedCall
from verispec.engines.accelerator_stubs import bare_packages, import_under_test, install
from verispec.engines.adapters import sglang_slots as kv
from verispec.engines.adapters.partial import (
    PartialEngine,
    choose_interpreter,
    import_errors,
    limits_of_triton,
    refuse,
    version_of,
)
from verispec.engines.adapters.rectangular import Group, by_groups
from verispec.engines.adapters.sglang_trees import TREE_OPS, verify_chains
from verispec.errors import VerispecError

_CHAIN = ("sglang.kernels.ops.speculative.reject_sampling", "sglang.srt.speculative.reject_sampling")
"""Modules of the rejection sampler: from release 0.5.16 on, and before it."""
_GREEDY, _RENORM = "sglang.kernels.ops.speculative.spec_tree", "sglang.kernels.ops.sampling.renorm_triton"
_PARTS = ("kernels", "kernels.ops", "kernels.ops.speculative", "kernels.ops.sampling", "srt.speculative")
_PLATFORMS = ("cpu", "cuda", "hip", "musa", "npu", "xpu")
_REPLACED: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "sglang.srt": {},
        "sglang.srt.platforms": {},
        "sglang.srt.platforms.interface": {},
        # No platform, so that no compiled kernels are imported beside those in Triton.
        "sglang.srt.utils": {f"is_{platform}": lambda: False for platform in _PLATFORMS},
    }
)
NO_LIMIT = 1 << 30
"""Its top-k of a request without one."""


class Sglang(PartialEngine):
    """A tree of SGLang.

    Args:
        source: the tree.
        device: "cuda", or "cpu" for the interpreter, which has to be chosen before Triton is imported.
    """

    lacks: ClassVar = {
        "op": "its Triton kernels are those of trees, of whole chains and of KV slots",
        "load": "its model runner needs an accelerator",
        "definitions": "its callers choose their kernels on an accelerator; verispec signatures reads them from source",
    }

    def __init__(self, source: str, device: str) -> None:
        from verispec.engines.checkout import unpack

        root = unpack(source)
        root = root / "python" if (root / "python/sglang").is_dir() else root
        self._root, self._version = root, version_of(root, "sglang", source)
        found = [name for name in _CHAIN if _file(root, name).is_file()]
        if not found:
            raise VerispecError(
                "V-ENG-SGLANG",
                "the source holds no rejection sampler of SGLang in Triton",
                where=source,
                hint="name a folder or a release of SGLang, 0.5.14 or later",
            )
        tested = tuple(name for name in (found[0], _GREEDY, _RENORM) if _file(root, name).is_file())
        self._stubs = install({}, {**_REPLACED, **kv.REPLACED}, (*tested, *kv.TESTED))
        bare_packages(root, "sglang", (*_PARTS, *kv.PARTS))
        with import_errors(
            "V-ENG-SGLANG",
            "the kernels of this SGLang cannot be imported",
            f"sglang@{source}",
            "install the package that is missing beside torch and triton",
        ):
            self._parts = {name: import_under_test(name) for name in tested}
        self._chain = self._parts[found[0]].chain_speculative_sampling_triton
        self._device = device

    def describe(self) -> Description:
        """Return the version, and the stubs of missing parts."""
        triton = str(importlib.import_module("triton").__version__)
        where = "in its interpreter" if self._device == "cpu" else f"on {torch.cuda.get_device_name()}"
        details = {"triton": f"{triton} {where}", "stubs": " ".join(self._stubs)}
        return Description("sglang", self._version, self._device, self._device, details)

    def op(self, name: str) -> OpFunction | Unsupported:
        """Return its kernel of an op on trees; that of the exact rule verifies chains alone."""
        if name == "verify_tree_sampled":
            return partial(_limited, verify_chains, self._chain)
        if name == "compute_slot_mapping":
            return self._slots()
        if name not in TREE_OPS:
            return super().op(name)
        launcher, kernel, wrapper, launch = TREE_OPS[name]
        module = self._parts.get(_GREEDY)
        function = getattr(module, launcher, None)
        if function is None and hasattr(module, kernel):
            function = partial(launch, getattr(module, kernel))
        if function is None:
            return Unsupported("this SGLang has its kernels of trees in a module that asks its accelerator")
        return partial(_limited, wrapper, function)

    def _slots(self) -> OpFunction | Unsupported:
        """Return the op over the kernels that write and read its table of slots."""
        if not all(_file(self._root, name).is_file() for name in kv.TESTED):
            return Unsupported("this SGLang has its kernels of KV slots in other modules")
        try:
            table, slots = (import_under_test(name) for name in kv.TESTED)
        except ImportError as error:
            return Unsupported(f"its kernels of KV slots cannot be imported: {error}")
        return partial(_limited, partial(kv.map_slots, table), slots)

    def sampler(self, family: str = "flat") -> Any | Unsupported:
        """Return the sampler of chains, which verifies by tokens or, for "block", by blocks."""
        if family == "flat":
            return ChainSampler(self._chain, self._parts, self._device)
        if family != "block":
            return Unsupported(f"SGLang has no {family} sampler")
        if "block_verification" not in inspect.signature(self._chain).parameters:
            return Unsupported("this SGLang has no block verification")
        return ChainSampler(self._chain, self._parts, self._device, block_verification=True)


class ChainSampler:
    """Verify drafts as `eagle_sample` does for chains with ``--speculative-use-rejection-sampling``.

    Args:
        chain: its rejection sampler.
        parts: modules of the tree by name.
        device: device of its kernels' tensors.
        options: further options of `chain`.
    """

    def __init__(self, chain: Callable[..., None], parts: Mapping[str, Any], device: str, **options: bool) -> None:
        self._chain, self._parts, self._device, self._options = chain, parts, device, options

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        """Return the emitted tokens of one step."""
        refuse(
            batch,
            min_p="its rejection sampling ignores min_p",
            synthetic_rates="its simulated acceptance is another sampler",
            seeds="its seeded numbers are hashed with sequence lengths, which a step does not have",
        )
        if any(token < 0 for ids in batch.draft_token_ids for token in ids):
            raise UnsupportedCall("its drafters make no padding tokens")
        greedy = bool((batch.temperature == 0).all())
        if not greedy and batch.num_drafts and batch.draft_probs is None:
            raise UnsupportedCall("without draft probabilities it verifies by a kernel in CUDA")
        return by_groups(batch, lambda group: self._group(batch, group, greedy))

    def _group(self, batch: SamplerBatch, group: Group, greedy: bool) -> list[list[int]]:
        """Return the tokens of requests with the same number of drafts."""
        group = replace(
            group,
            logits=group.logits.to(self._device),
            drafts=group.drafts.to(self._device),
            draft_probs=None if group.draft_probs is None else group.draft_probs.to(self._device),
        )
        with torch.device(self._device), limits_of_triton():
            return self._tokens(batch, group, greedy)

    def _tokens(self, batch: SamplerBatch, group: Group, greedy: bool) -> list[list[int]]:
        size, width = len(group.requests), group.count + 1
        # The chain as a tree: each token's only child is the next one, none has a sibling.
        index = torch.arange(size * width).reshape(size, width)
        child = torch.arange(1, width + 1).expand(size, width).clone()
        child[:, -1] = -1
        tree = {
            "predicts": torch.zeros(size * width, dtype=torch.int32),
            "accept_index": torch.full((size, width), -1, dtype=torch.int32),
            "accept_token_num": torch.zeros(size, dtype=torch.int32),
            # The root is the last token of the text, which is no part of a step; it is never compared.
            "candidates": torch.cat((torch.zeros(size, 1, dtype=torch.int64), group.drafts), dim=1),
        }
        links = (index, child, torch.full_like(child, -1))
        if greedy:
            self._verify_greedy(tree, links, group.logits)
        else:
            q = group.draft_probs
            self._verify_sampled(
                tree,
                links,
                self._target(batch, group),
                torch.zeros(size, group.count, batch.vocab_size) if q is None else q,
            )
        accepted = tree["accept_token_num"].tolist()
        return [
            [int(tree["predicts"][int(i)]) for i in row[: n + 1]]
            for row, n in zip(tree["accept_index"], accepted, strict=True)
        ]

    def _verify_greedy(self, tree: dict[str, Any], links: tuple[Any, ...], logits: torch.Tensor) -> None:
        function = getattr(self._parts.get(_GREEDY), "verify_tree_greedy_triton", None)
        if function is None:
            raise UnsupportedCall("this SGLang verifies greedy steps in a module that asks its accelerator")
        argmax = logits.argmax(dim=-1)
        function(*tree.values(), *links, argmax)

    def _verify_sampled(self, tree: dict[str, Any], links: tuple[Any, ...], p: torch.Tensor, q: torch.Tensor) -> None:
        names = ("retrive_index", "retrive_next_token", "retrive_next_sibling")
        self._chain(
            **tree,
            **dict(zip(names, links, strict=True)),
            uniform_samples=torch.rand_like(tree["candidates"], dtype=torch.float32),
            uniform_samples_for_final_sampling=torch.rand(len(p)),
            target_probs=p,
            draft_probs=q,
            threshold_single=1.0,
            threshold_acc=1.0,
            deterministic=True,
            **self._options,
        )

    def _target(self, batch: SamplerBatch, group: Group) -> torch.Tensor:
        """Return the target's probabilities [G, width, V]; a greedy request has temperature 1 and top-k 1."""
        width, temperature = group.count + 1, self._of(group, batch.temperature)
        greedy = temperature == 0
        temperature = temperature.masked_fill(greedy, 1.0)
        probabilities = torch.softmax(group.logits / temperature[:, None, None], dim=-1).flatten(0, 1)
        top_k = torch.full((len(greedy),), NO_LIMIT, dtype=torch.int32)
        if batch.top_k is not None:
            top_k = self._of(group, batch.top_k).to(torch.int32)
        top_k = top_k.masked_fill(greedy, 1)
        if bool((top_k < batch.vocab_size).any()):
            probabilities = self._renormalized("top_k", probabilities, top_k.repeat_interleave(width))
        if batch.top_p is not None and bool((batch.top_p < 1).any()):
            top_p = self._of(group, batch.top_p).masked_fill(greedy, 1.0)
            probabilities = self._renormalized("top_p", probabilities, top_p.repeat_interleave(width))
        return probabilities.reshape(*group.logits.shape)

    def _of(self, group: Group, values: torch.Tensor) -> torch.Tensor:
        return group.of(values).to(self._device)

    def _renormalized(self, limit: str, probabilities: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        if _RENORM not in self._parts:
            raise UnsupportedCall("this SGLang has no renormalisation in Triton")
        function = getattr(self._parts[_RENORM], f"{limit}_renorm_probs_triton")
        limited: torch.Tensor = function(probabilities.as_subclass(OnDevice), values)
        return limited.as_subclass(torch.Tensor)


class OnDevice(torch.Tensor):  # type: ignore[misc]
    """A tensor that says it is on a GPU, which the renormalisation requires and the interpreter does not need."""

    is_cuda = True


def _limited(wrapper: Callable[..., None], function: Callable[..., None], **arguments: Any) -> None:
    with limits_of_triton():
        wrapper(function, **arguments)


def _file(root: Path, module: str) -> Path:
    return root / f"{module.replace('.', '/')}.py"


def create(source: str, device: str | None = None) -> Engine:
    """Return the SGLang of a source.

    Args:
        source: a folder, ``folder#REV``, an archive or ``name==version``.
        device: None or "cpu" for the interpreter, or "cuda".

    Raises:
        VerispecError: V-ENG-SGLANG, the source has no such sampler, or this process runs Triton otherwise.
            V-ENG-INTERPRETER, Triton's interpreter cannot run here.
    """
    if device == "cuda":
        return Sglang(source, "cuda")
    choose_interpreter(f"sglang@{source}", "V-ENG-SGLANG")
    return Sglang(source, "cpu")
