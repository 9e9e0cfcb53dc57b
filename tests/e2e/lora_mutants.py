"""Runners with one fault in their LoRA adapters: ``--engine lora_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from runner_mutants import engine_with

from verispec.engines.protocol.generation import LoadOptions
from verispec.reference.models.lora import LoraAdapters
from verispec.reference.runners.cpu import CPURunner

Selected = Sequence[int | None]


class _Changed(CPURunner):
    """Base of the runners that give the tokens of a pass other adapters."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        if self._lora is not None:
            right = self._lora.select
            self._lora.select = lambda adapters, lens, upload: self._select(  # type: ignore[method-assign]
                right, adapters, lens, upload
            )

    def _select(self, right: Callable[..., None], adapters: Selected, lens: np.ndarray, upload: Any) -> None:
        raise NotImplementedError


class AdapterOfTheFirst(_Changed):
    """Every token of a pass has the adapter of its first request."""

    def _select(self, right: Callable[..., None], adapters: Selected, lens: np.ndarray, upload: Any) -> None:
        right([adapters[0]] * len(adapters), lens, upload)


class AdapterOfThePlace(_Changed):
    """A place of the batch keeps the adapter of its first request."""

    def _select(self, right: Callable[..., None], adapters: Selected, lens: np.ndarray, upload: Any) -> None:
        kept = vars(self).setdefault("kept", [])
        kept.extend(adapters[len(kept) :])
        right(kept[: len(adapters)], lens, upload)


class NoneIsTheLast(_Changed):
    """A request without an adapter has index -1, which picks the last one (vllm#48421)."""

    def _select(self, right: Callable[..., None], adapters: Selected, lens: np.ndarray, upload: Any) -> None:
        last = len(self.options.lora_adapters) - 1
        mixed = any(adapter is not None for adapter in adapters)
        right([last if adapter is None and mixed else adapter for adapter in adapters], lens, upload)


class DraftsWithout(_Changed):
    """The drafts of a request have no adapter: its map has one token a request."""

    def _select(self, right: Callable[..., None], adapters: Selected, lens: np.ndarray, upload: Any) -> None:
        expanded = [
            adapter if place == 0 or length > 4 else None
            for adapter, length in zip(adapters, lens.tolist(), strict=True)
            for place in range(length)
        ]
        right(expanded, np.ones(len(expanded), dtype=lens.dtype), upload)


class PromptWithout(_Changed):
    """A prompt's keys and values are computed without the adapter."""

    def _select(self, right: Callable[..., None], adapters: Selected, lens: np.ndarray, upload: Any) -> None:
        right(
            [None if length > 4 else adapter for adapter, length in zip(adapters, lens.tolist(), strict=True)],
            lens,
            upload,
        )


class MiddleChunksWithout(_Changed):
    """The chunks of a prompt between the first and the last one are read without the adapter."""

    def _launch(self, scheduled: Any, on_emit: Any) -> None:
        self._middle = [bool(part.request.num_computed) and not part.samples for part in scheduled]
        super()._launch(scheduled, on_emit)

    def _select(self, right: Callable[..., None], adapters: Selected, lens: np.ndarray, upload: Any) -> None:
        chosen = [None if middle else own for own, middle in zip(adapters, self._middle, strict=True)]
        right(chosen, lens, upload)


class ScaleLeftOut(CPURunner):
    """The factor lora_alpha / r is left out."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        from verispec.reference.models import lora

        lora._scale = lambda folder: lambda rank: 1.0
        super().__init__(target, options)


class LastAdapterAlone(CPURunner):
    """A second adapter of a layer takes the place of the first."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        right = LoraAdapters._adder
        LoraAdapters._adder = lambda self, pairs: right(self, dict([max(pairs.items())]))  # type: ignore[method-assign]
        super().__init__(target, options)


adapter_of_the_first = engine_with(AdapterOfTheFirst)
adapter_of_the_place = engine_with(AdapterOfThePlace)
none_is_the_last = engine_with(NoneIsTheLast)
drafts_without = engine_with(DraftsWithout)
prompt_without = engine_with(PromptWithout)
middle_chunks_without = engine_with(MiddleChunksWithout)
scale_left_out = engine_with(ScaleLeftOut)
last_adapter_alone = engine_with(LastAdapterAlone)
