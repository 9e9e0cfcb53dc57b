"""Call a PyTorch function of a plugin of vLLM with the arguments of the contract of the kernel that it replaces."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verispec.engines import OpFunction, UnsupportedCall
from verispec.engines.adapters.vllm.launch import map_parameters
from verispec.engines.adapters.vllm.refusals import guarded
from verispec.reference.contracts import Contract

Values = Mapping[str, Any]


def plugin_op(
    contract: Contract,
    function: Callable[..., Any],
    *,
    without: Sequence[str] = (),
    own: Callable[[Values], Values] = lambda given: {},
    returned: tuple[str, str] | None = None,
) -> OpFunction:
    """Return the plugin's function as an op.

    Plugins divide by q where vLLM multiplies by its inverse.

    Args:
        contract: contract of the op.
        function: the plugin's function.
        without: flags of the contract that the plugin lacks.
        own: values of parameters by the plugin's own names, from the arguments by the contract's.
        returned: output of the contract that the function returns instead of writing it, and the cumulative counts of
            its tokens; None if it writes. What is after the last token stays.
    """
    parameters = list(inspect.signature(function).parameters)
    names = {"q": "inv_q_ptr", **map_parameters(contract, parameters)}

    def call(**given: Any) -> None:
        if lost := [flag for flag in without if given.get(flag)]:
            raise UnsupportedCall(f"its PyTorch ops have no {', '.join(lost)}")
        arguments = {mine: given[theirs] for mine, theirs in names.items() if mine in parameters and theirs in given}
        if "q" in arguments:
            arguments["q"] = 1 / arguments["q"]
        answer = function(**arguments | {name: v for name, v in own(given).items() if name in parameters})
        if returned and len(given[returned[1]]):
            count = int(given[returned[1]][-1])
            given[returned[0]][:count].copy_(answer[:count])

    return guarded(contract, call)
