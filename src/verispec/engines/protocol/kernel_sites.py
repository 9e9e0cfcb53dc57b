"""The optional method by which an engine says where its kernels can be substituted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class KernelSites(Protocol):
    """An engine whose kernels `verispec transplant` can substitute inside its own sampler and programs."""

    def kernel_sites(self) -> Mapping[str, str]:
        """Return by op name the ``module:attr`` that the engine's own callers look up for every call.

        The attribute is a function. Its parameters are those of the op's contract, under the contract's names or
        under aliases that the contract lists; more parameters are ignored.
        """
        ...
