"""An engine whose ops run in a child process.

Triton's interpreter must be chosen before triton is imported, so it gets a process of its own. What
travels is storages, not tensors: strides, guard bands, aliases and changed inputs all survive the
trip, and `verispec.judge` sees the same memory as if the op had run here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from verispec.engines import Description, OpFunction, Unsupported, UnsupportedCall
from verispec.engines.adapters.vllm.launch import positional
from verispec.engines.process.proxy import Remote, portable
from verispec.engines.registry import resolve
from verispec.reference import contracts

LARGEST = 2**29
"""Bytes of one tensor that are sent; Triton's interpreter would take hours over more."""


class Child:
    """The engine `name` in a child process with `environment` added; ops only."""

    def __init__(self, name: str, device: str, environment: Mapping[str, str]) -> None:
        self._name = name
        self._remote = Remote("verispec.engines.process.subprocess_ops:OpServer", name, device, environment=environment)

    def describe(self) -> Description:
        """Return the engine's description."""
        described: Description = self._remote.call("describe")
        return described

    def op(self, name: str) -> OpFunction | Unsupported:
        """Return a function that runs the op `name` in the child process.

        It returns the op's value where the contract has one, and raises the engine's own exception, after copying back
        what the op has written.
        """
        refused = self._remote.call("refused", name)
        if refused is not None:
            assert isinstance(refused, Unsupported)
            return refused
        contract = contracts.load(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            parcel = TensorPayload(positional(contract, args, kwargs))
            storages, returned, error = self._remote.call("run", name, parcel)
            parcel.take_back(storages)
            if error is not None:
                raise error
            return returned

        call.__name__ = f"{self._name}/{name}"
        return call

    def tile_sizes(self, name: str) -> tuple[int, ...]:
        """Return the sizes that the engine in the child reports for the op `name`; none if it reports nothing."""
        told: tuple[int, ...] = self._remote.call("tile_sizes", name)
        return told

    def sampler(self, family: str = "flat") -> Unsupported:
        """Return `Unsupported` for every `family`."""
        return Unsupported(f"{self._name} has no whole sampler here: only its ops run in a child process")

    def load(self, target: Path, **options: Any) -> Unsupported:
        """Return `Unsupported` for every `target`."""
        return Unsupported(f"{self._name} does not generate here: only its ops run in a child process")

    def definitions(self) -> Unsupported:
        """Return `Unsupported`: the callables are in another process."""
        return Unsupported(f"{self._name} runs in a child process, its callables are not live here")

    def close(self) -> None:
        """End the child process."""
        self._remote.close()


class TensorPayload:
    """Arguments with their tensors taken apart into storages (one for all tensors that share it) and views on them."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._originals: list[torch.Tensor] = []
        self.storages: list[torch.Tensor] = []
        self.views: dict[str, tuple[int, torch.dtype, tuple[int, ...], tuple[int, ...], int]] = {}
        self.plain: dict[str, Any] = {}
        known: dict[int, int] = {}
        for name, value in arguments.items():
            if not isinstance(value, torch.Tensor):
                self.plain[name] = value
                continue
            storage = value.untyped_storage()
            if storage.nbytes() > LARGEST:
                raise UnsupportedCall(f"{name} has {storage.nbytes() >> 20} MiB, too much for a child process")
            if storage.data_ptr() not in known or not storage.nbytes():
                known[storage.data_ptr()] = len(self.storages)
                raw = torch.empty(0, dtype=torch.uint8, device=value.device).set_(storage)
                self._originals.append(raw)
                self.storages.append(raw.cpu())
            index = known[storage.data_ptr()]
            self.views[name] = (index, value.dtype, tuple(value.shape), value.stride(), value.storage_offset())

    def __getstate__(self) -> dict[str, Any]:
        return {"raw": [s.numpy().tobytes() for s in self.storages], "views": self.views, "plain": self.plain}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._originals = []
        self.storages = [_tensor(raw) for raw in state["raw"]]
        self.views, self.plain = state["views"], state["plain"]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments again, on the CPU of this process."""
        tensors = {
            name: torch.empty(0, dtype=dtype).set_(self.storages[index].untyped_storage(), offset, shape, stride)
            for name, (index, dtype, shape, stride, offset) in self.views.items()
        }
        return {**self.plain, **tensors}

    def take_back(self, storages: list[bytes]) -> None:
        """Copy the contents of the call's storages into the tensors that this parcel was made from.

        Args:
            storages: bytes of each storage after the call, in the order of `self.storages`.
        """
        for original, raw in zip(self._originals, storages, strict=True):
            after = _tensor(raw)
            if not torch.equal(original.cpu(), after):  # what did not change may be read-only
                original.copy_(after)


class OpServer:
    """The other side of `Child`."""

    def __init__(self, name: str, device: str) -> None:
        self._engine = resolve(name, device)

    def describe(self) -> Description:
        """Return the engine's description."""
        return self._engine.describe()

    def refused(self, name: str) -> Unsupported | None:
        """Return the engine's `Unsupported` for the op `name`; None if it has the op."""
        found = self._engine.op(name)
        return found if isinstance(found, Unsupported) else None

    def tile_sizes(self, name: str) -> tuple[int, ...]:
        """Return the sizes that the engine reports for the op `name`; none if it reports nothing."""
        tell = getattr(self._engine, "tile_sizes", None)
        return tuple(tell(name)) if callable(tell) else ()

    def run(self, name: str, parcel: TensorPayload) -> tuple[list[bytes], Any, Exception | None]:
        """Call the op `name`.

        Args:
            name: name of the op.
            parcel: its arguments.

        Returns:
            The bytes of all storages after the call, also after an exception; the value of an op whose contract has
            one, else None; and the exception.
        """
        function = self._engine.op(name)
        assert not isinstance(function, Unsupported)
        returned: Any = None
        error: Exception | None = None
        try:
            value = function(**parcel.arguments())
            returned = value if contracts.load(name).returns else None
        except Exception as raised:
            error = portable(raised)
        return [storage.numpy().tobytes() for storage in parcel.storages], returned, error


def _tensor(raw: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)
