"""The page of each rule: the smallest source that it reports, and how to repair it."""

from __future__ import annotations

from typing import Final

EXAMPLES: Final = {
    "SIG101": """
        @triton.jit
        def accept(out, n, BLOCK: tl.constexpr): ...

        accept[grid](out, n, BLOCK=16, SYNTHETIC_MODE=True)   # TypeError: unexpected keyword""",
    "SIG102": """
        @triton.jit
        def accept(out, n, limit, BLOCK: tl.constexpr): ...

        accept[grid](out, n, BLOCK=16)                        # TypeError: missing limit""",
    "SIG103": """
        def accept_cpu(out, n): ...                           # the CPU's counterpart of accept(out, n, stride)

        accept[grid](out, n, stride)                          # TypeError: 3 arguments for 2""",
    "SIG104": """
        def slots_cpu(positions, block_size, slots): ...      # the kernel is slots(positions, slots)

        slots[grid](positions, slot_mapping)                  # block_size receives the slot mapping""",
    "SIG105": """
        @triton.jit
        def offset(row, stride): ...

        @triton.jit
        def accept(out, n):
            tl.store(out + offset(n), 1)                      # TypeError while compiling: missing stride""",
    "SIG106": """
        @triton.jit
        def accept(out, n, BLOCK: tl.constexpr): ...

        grid = lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)
        accept[grid](out, n, BLOCK=16)                        # KeyError: BLOCK_SIZE""",
    "SIG107": """
        @triton.jit
        def accept(out, n, BLOCK):                            # BLOCK: tl.constexpr
            rows = tl.arange(0, BLOCK)                        # ValueError while compiling""",
    "SIG201": """
        _accept = launcher(accept)                            # captures the kernel at import

        sampler.accept = accept_cpu                           # nobody reads sampler.accept any more""",
    "SIG202": """
        sampler.accept, sampler.resample = accept_cpu, resample_cpu
        # sampler also launches flatten[grid](...), which has no counterpart""",
    "SIG203": """
        host.proposer.prepare_inputs = prepare_inputs_npu     # the host now calls it prepare_next_inputs""",
    "SIG204": """
        def topk(logits, n, state=None): ...                  # host
        def topk_npu(logits, n): ...                          # plugin
        host.sampler.topk = topk_npu                          # a caller may pass state""",
    "SIG205": """
        topk(logits, 1, state=st)                             # host, module sampler
        host.sampler.topk = topk_npu                          # plugin: topk_npu(logits, n) takes no state""",
    "SIG206": """
        class Runner:                                         # host
            def step(self): self.propose(ids, sampling, spec=1)
            def propose(self, ids, sampling, spec=0): ...

        class NPURunner(Runner):                              # plugin
            def propose(self, ids, sampling): ...             # TypeError in the inherited step""",
    "SIG207": """
        host.sampler.accept = fallbacks.accept_cpu            # fallbacks calls it accept_impl now: AttributeError""",
    "SIG208": """
        register_kernels({                                    # --since: the table before also had
            "engine.sampler.accept": accept_cpu,              # "engine.sampler.resample": resample_cpu
        })""",
    "SIG301": """
        ops.def("expand(Tensor! out, Tensor input) -> ()");
        void expand(Tensor& out);                             // one parameter less than the schema""",
    "SIG302": """
        ops.def("expand(Tensor! out, Tensor input, int limit) -> ()");

        torch.ops._C.expand(out, value)                       # RuntimeError: missing limit""",
    "SIG303": """
        ops.def("fill(Tensor out) -> ()");                    // no Tensor!
        void fill(Tensor& out) { out.fill_(1); }""",
    "SIG304": """
        def resize(out: Tensor, n: int) -> Tensor: ...
        def resize_fake(out: Tensor) -> Tensor: ...           # torch.compile passes n too

        direct_register_custom_op("resize", resize, fake_impl=resize_fake)""",
    "SIG305": """
        def fill(output: Tensor) -> None: ...

        direct_register_custom_op("fill", fill, mutates_args=["out"])   # ValueError at import""",
    "SIG401": """
        wide = out.to(torch.int64)
        torch.ops._C.fill(wide)                               # out keeps what was there""",
    "SIG402": """
        def accept_cpu(out, n, SYNTHETIC_MODE=False):
            out[:] = n                                        # SYNTHETIC_MODE changes nothing""",
    "SIG403": """
        row = tl.program_id(0)
        tl.load(logits_ptr + row * vocab_size)                # wraps past 2^31""",
    "SIG404": """
        grid = (triton.cdiv(n, 16),)                          # AttributeError where Triton is a placeholder
        accept[grid](out, n)                                  # has a fallback for that very platform""",
    "SIG501": """
        GREEDY_TEMPERATURE = 0                                # sampler.py
        GREEDY_TEMPERATURE = -1                               # rejection_sampler.py""",
    "SIG502": """
        class CPURunner(GPURunner):
            def load_model(self):                             # GPURunner.load_model also calls
                self.load_drafter()                           # set_aux_hidden_state_layers""",
    "SIG503": """
        class Model(SupportsEagle3):
            def set_aux_hidden_state_layer(self, layers): ... # the hook is ..._layers; nobody calls this one""",
    "SIG504": """
        class Model(Base, SupportsEagle3): ...                # nvidia/model.py
        class Model(Base): ...                                # amd/model.py""",
    "SIG601": """
        class Request:
            def __init__(self, tokens, *, seed): ...

        Request(tokens, sampling_seed=1)                      # a change renamed the parameter here or there""",
    "SIG602": """
        class Proposer:
            def propose(self, ids, spec): ...

        class NGram(Proposer):
            def propose(self, ids): ...                       # a change added spec to the base only""",
    "SIG603": """
        config.speculative.num_tokens                         # a change renamed the field""",
    "SIG701": """
        def verify(logits):                                   # --since: returned sampled, counts
            return sampled, counts, mask

        sampled, counts = verify(logits)                      # ValueError: too many values to unpack""",
    "SIG702": """
        class NgramInput:
            def depth(self): return self.width                # --since: was a property

        size = verify_input.depth - 1                         # TypeError: a method minus 1""",
    "SIG703": """
        async def take_drafts(self): ...                      # --since: was def take_drafts

        tokens = handler.take_drafts().ids                    # AttributeError: a coroutine has no ids""",
    "SIG704": """
        class Speculator:
            def on_draft_begin(self, n): ...                  # --since: was on_decode_begin

        class MTP(Speculator):
            def on_decode_begin(self, n): self.skip(True)     # nobody calls it any more""",
    "SIG705": """
        def verify(logits, use_block=False): ...              # --since: was block_verification

        fn = partial(verify, block_verification=True)         # TypeError when fn is called""",
    "SIG706": """
        class Sampler:
            def __init__(self, rates):                        # --since: the lines were exchanged
                warm_up(self.synthetic)                       # AttributeError
                self.synthetic = rates is not None""",
    "SIG707": """
        class Config:
            sampling: str = "greedy"                          # --since: was sample_method

        if config.sample_method == "greedy": ...              # AttributeError""",
}
"""Description of each rule's findings, without arguments that do not matter."""

REPAIRS: Final = {
    "SIG101": "Add the parameter to the implementation and give it its meaning there, or refuse the feature by name.",
    "SIG102": "Pass the argument, or give the parameter a default that keeps the old behaviour.",
    "SIG103": "Give the implementation the kernel's parameters, in the kernel's order.",
    "SIG104": "Give the fallback the kernel's parameter order, or forward by keyword.",
    "SIG105": "Bring the call and the called kernel to the same parameters.",
    "SIG106": "Read the kernel's own parameter in the grid.",
    "SIG107": "Annotate the parameter as tl.constexpr.",
    "SIG201": "Install the override where callers read the name, or through a registry that rebinds every holder.",
    "SIG202": "Add the counterpart to the platform's table, or reject the feature on that platform by name.",
    "SIG203": "Find the new name in the host, and install the override there. --patches lists all of them.",
    "SIG204": "Give the replacement the parameters of the original.",
    "SIG205": "Give the replacement the parameters that the host passes; keep old hosts with a default.",
    "SIG206": "Give the override the parameters of the host's method; **kwargs keeps it open for later ones.",
    "SIG207": "Use the present name of the value.",
    "SIG208": "Put the entry back, or reject the feature on that platform by name.",
    "SIG301": "Bring schema and function to the same parameters.",
    "SIG302": "Bring call and schema to the same parameters.",
    "SIG303": "Write Tensor! in the schema.",
    "SIG304": "Give the fake the parameters of the op, in the op's order.",
    "SIG305": "Name a parameter of the op.",
    "SIG401": "Keep the converted tensor, and copy it back with out.copy_(wide).",
    "SIG402": "Implement the flag, or raise if it is on.",
    "SIG403": "Convert the index first: tl.program_id(0).to(tl.int64).",
    "SIG404": "Use a helper of your own, or give the attribute to the placeholder.",
    "SIG501": "Define the constant once, and import it.",
    "SIG502": "Call the hook, or super().",
    "SIG503": "Rename the method to the hook's name.",
    "SIG504": "Implement the protocol, or reject the feature on that platform by name.",
    "SIG601": "Bring the call and the signature to the same parameters.",
    "SIG602": "Give the override the parameters of the base's method.",
    "SIG603": "Use the present name, or restore the old one.",
    "SIG701": "Unpack as many values as the function returns, or return what its callers unpack.",
    "SIG702": "Change the uses of the member together with it.",
    "SIG703": "Await the call, or keep the function synchronous.",
    "SIG704": "Rename the override together with the method of its base.",
    "SIG705": "Rename the keyword in the call too, or take it again.",
    "SIG706": "Set the attribute above the line that reads it.",
    "SIG707": "Use the present name, or restore the old one until nobody uses it.",
}
"""Repair of a finding, by rule."""
