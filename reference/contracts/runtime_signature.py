"""runtime_signature: what callers pass binds to the implementation that runs, on this platform, now."""

from verispec.reference.contracts._model import Clause, Contract

CONTRACT = Contract(
    name="runtime_signature",
    family="signature",
    summary="Every caller of every op binds to the implementation that really runs, by name, order, default and flag.",
    axes={},
    params=(),
    clauses=(
        Clause(
            "SIG-1",
            "What callers pass binds to the implementation that runs: no unexpected keyword, no missing argument.",
            "vllm#41932, vllm#46069",
        ),
        Clause(
            "SIG-2",
            "Where arguments are forwarded by position, the implementation has its parameters in the kernel's order.",
            "vllm 0.33.0 vllm.triton_utils.dispatcher.KernelOverride",
        ),
        Clause(
            "SIG-3",
            "Where the kernel itself cannot run, an implementation is installed where callers look.",
            "vllm#58214",
        ),
        Clause(
            "SIG-4",
            "Every parameter of the contract that is no tuning parameter can be passed.",
            "contract; vllm 0.33.0 Triton kernels",
        ),
        Clause(
            "SIG-5",
            "A compile-time mode that a caller leaves out is off.",
            "vllm 0.33.0 vllm.utils.cpu_triton_utils; an older caller must get what it had",
        ),
    ),
    returns="nothing: binding is all that is judged",
)
