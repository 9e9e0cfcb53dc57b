"""runtime_signature: callers bind to the implementation that runs on this platform."""

from verispec.reference.contracts._model import Clause, Contract

CONTRACT = Contract(
    name="runtime_signature",
    family="signature",
    summary="Every caller of every op binds to the implementation that runs, by name, order, default and flag.",
    axes={},
    params=(),
    clauses=(
        Clause(
            "SIG-1",
            "The arguments of callers bind to the implementation that runs: no unexpected keyword, no missing "
            "argument.",
            "vllm#41932, vllm#46069",
        ),
        Clause(
            "SIG-2",
            "Where callers forward arguments by position, the implementation has its parameters in the kernel's order.",
            "vllm 0.33.0 vllm.triton_utils.dispatcher.KernelOverride",
        ),
        Clause(
            "SIG-3",
            "Where the kernel cannot run, callers find an installed implementation.",
            "vllm#58214",
        ),
        Clause(
            "SIG-4",
            "Every parameter of the contract, except tuning parameters, can be passed.",
            "contract; vllm 0.33.0 Triton kernels",
        ),
        Clause(
            "SIG-5",
            "A compile-time mode that a caller omits is off.",
            "vllm 0.33.0 vllm.utils.cpu_triton_utils; an older caller must get its old behaviour",
        ),
    ),
    returns="nothing: only binding is checked",
)
