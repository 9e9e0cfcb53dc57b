"""Verification of draft trees: tokens and path of each request, and the path's keys and values in their places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from verispec.engines.protocol.generation import GenerationRequest
from verispec.errors import VerispecError
from verispec.reference.models.kv_cache import KVCache
from verispec.reference.proposers.tree import DraftTree
from verispec.reference.sampler import ops
from verispec.reference.sampler.min_p import mask_below_min_p
from verispec.reference.sampler.ops import PADDING_TOKEN
from verispec.reference.sampler.processors import needs_processing
from verispec.reference.sampler.top_k_top_p import apply_top_k_top_p

from .sampling import sampling_tensors
from .scheduler import Scheduled
from .verification import Verified


def check_tree_request(index: int, request: GenerationRequest) -> None:
    """Check that a request can be verified by trees.

    Raises:
        VerispecError: V-GEN-REQUEST for a parameter that depends on the tokens before a row, or wants rows of it.
    """
    if needs_processing(request) or request.logprobs is not None or request.grammar is not None:
        raise VerispecError(
            "V-GEN-REQUEST",
            "draft trees take temperature, top_k, top_p, min_p and limits alone",
            where=f"request {index}",
            hint="omit speculative_token_tree, so that drafts are a chain",
        )


def check_tree_model(model: PreTrainedModel) -> None:
    """Check that a target or draft model can run trees.

    Raises:
        VerispecError: V-GEN-OPTION for sliding windows: a node's place is not its position, from which they count.
    """
    found = (getattr(part, "sliding_window", None) for part in (model.config, *model.modules()))
    windows: list[int] = [window for window in found if window is not None]
    if windows:
        raise VerispecError(
            "V-GEN-OPTION",
            f"speculative_token_tree must be None for a model with sliding windows, of {max(windows)} tokens here",
            where="speculative_token_tree",
            hint="draft a chain",
        )


class TreeVerification:
    """Verifies the trees of a step by the argmax, or exactly where a request samples.

    Args:
        tree: shape of the trees; a step verifies the first nodes of it where drafts were cut.
        device: device of the runner.
    """

    def __init__(self, tree: DraftTree, device: torch.device) -> None:
        self._tree, self._device = tree, device

    def verify(self, logits: torch.Tensor, parts: Sequence[Scheduled]) -> tuple[Verified, list[list[int]]]:
        """Return the emitted tokens of `parts`, and the nodes of each path, its root first.

        Args:
            logits: [N + B, V]: for each part in turn the row after its root, then those after its nodes.
            parts: those of the step that sample.
        """
        tree, requests = self._tree, [part.request for part in parts]
        counts = np.array([part.num_drafts for part in parts])
        shape = (len(parts), tree.nodes)
        is_node = np.arange(tree.nodes) <= counts[:, None]
        candidates = np.full(shape, PADDING_TOKEN)
        for row, part in zip(candidates, parts, strict=True):
            row[1 : 1 + part.num_drafts] = part.draft_token_ids
        starts = np.cumsum(counts + 1) - (counts + 1)
        rows = starts[:, None] + np.minimum(np.arange(tree.nodes), counts[:, None])
        of_nodes = logits.float()[self._put(rows)]
        links = [np.where(link <= counts[:, None], link, -1) for link in (tree.next_token, tree.next_sibling)]
        given = {
            "predicts": torch.full((len(parts) * tree.nodes,), PADDING_TOKEN, dtype=torch.int32, device=self._device),
            "accept_index": torch.full(shape, PADDING_TOKEN, dtype=torch.int32, device=self._device),
            "accept_token_num": torch.zeros(len(parts), dtype=torch.int32, device=self._device),
            "candidates": self._put(np.where(is_node, candidates, PADDING_TOKEN)),
            "retrieve_index": self._put(np.arange(candidates.size).reshape(shape)),
            "retrieve_next_token": self._put(links[0]),
            "retrieve_next_sibling": self._put(links[1]),
        }
        argmax = of_nodes.argmax(dim=-1)
        if all(request.params.greedy for request in requests):
            ops.run("verify_tree_greedy", self._device, **given, target_predict=argmax)
        else:
            # A node is tested by its own random number. The root is never tested: its number decides the final draw.
            uniform = torch.zeros(shape, dtype=torch.float64, device=self._device)
            for row, request in zip(uniform, requests, strict=True):
                if not request.params.greedy:
                    row.uniform_(generator=request.generator)
            ops.run(
                "verify_tree_sampled",
                self._device,
                **given,
                uniform_samples=uniform,
                uniform_samples_for_final_sampling=uniform[:, 0],
                target_probs=self._probabilities(of_nodes, argmax, parts),
                draft_probs=None,
                WITHOUT_REPLACEMENT=False,
            )
        lengths = (given["accept_token_num"] + 1).tolist()
        places = [row[:length] for row, length in zip(given["accept_index"].tolist(), lengths, strict=True)]
        predicts = given["predicts"].tolist()
        emitted = [[predicts[place] for place in row] for row in places]
        token_ids = torch.full(shape, PADDING_TOKEN, dtype=torch.int32)
        for row, tokens in zip(token_ids, emitted, strict=True):
            row[: len(tokens)] = torch.tensor(tokens)
        paths = [[place - b * tree.nodes for place in row] for b, row in enumerate(places)]
        return Verified(token_ids.to(self._device), emitted, [[] for _ in parts]), paths

    def _probabilities(self, logits: torch.Tensor, argmax: torch.Tensor, parts: Sequence[Scheduled]) -> torch.Tensor:
        """Return the distributions [B, D, V] that tokens are drawn from; a greedy request's are its argmax."""
        flat = logits.reshape(-1, logits.shape[-1]).clone()
        params = sampling_tensors([part.request for part in parts], flat)

        def expand(values: torch.Tensor | None) -> torch.Tensor | None:
            return None if values is None else values.repeat_interleave(self._tree.nodes)

        is_greedy = params.temperature == 0
        flat /= params.temperature.masked_fill(is_greedy, 1.0).repeat_interleave(self._tree.nodes)[:, None]
        if params.min_p is not None:
            mask_below_min_p(flat, params.min_p.repeat_interleave(self._tree.nodes))
        if params.top_k is not None or params.top_p is not None:
            apply_top_k_top_p(flat, expand(params.top_k), expand(params.top_p), inplace=True)
        probabilities = torch.softmax(flat, dim=-1).view(logits.shape)
        probabilities[is_greedy] = torch.nn.functional.one_hot(argmax[is_greedy], logits.shape[-1]).float()
        return probabilities

    def _put(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)


def compact(cache: KVCache, parts: Sequence[Scheduled], paths: Sequence[Sequence[int]], block_size: int) -> None:
    """Move the keys and values of accepted nodes to the places after the root that their tokens get.

    Args:
        cache: KV cache of the target.
        parts: those of the step that sample, before their tokens are emitted.
        paths: nodes of each path, the root first.
        block_size: tokens per block.
    """
    sources: list[int] = []
    places: list[int] = []
    for part, path in zip(parts, paths, strict=True):
        root, blocks = part.request.num_tokens - 1, np.array(part.request.blocks)
        for place, node in enumerate(path):
            for slots, at in ((sources, root + node), (places, root + place)):
                slots.append(blocks[at // block_size] * block_size + at % block_size)
    device = cache.layers[0].device
    moved, to = torch.tensor(sources, device=device), torch.tensor(places, device=device)
    for layer in cache.layers:
        layer[to] = layer[moved]
