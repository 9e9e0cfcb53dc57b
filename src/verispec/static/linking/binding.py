"""Binding of a call to a signature by Python's rules; a call that is not fully known is not reported."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from verispec.static.facts import Call, Function, LaunchSpec, Param

UNEXPECTED: Final = "unexpected keyword"
MISSING: Final = "missing argument"
SURPLUS: Final = "too many positionals"

LAUNCH_OPTIONS: Final = frozenset({
    "num_warps", "num_stages", "num_ctas", "num_consumer_groups", "num_buffers_warp_spec", "enable_warp_specialization",
    "reg_dec_producer", "reg_inc_consumer", "maxnreg", "cluster_dims", "ptx_version", "ptx_options", "ir_override",
    "enable_fp_fusion", "enable_reflect_ftz", "launch_cooperative_grid", "launch_cluster", "launch_pdl",
    "supported_fp8_dtypes", "deprecated_fp8_dot_operand_dtypes", "allowed_dot_input_precisions",
    "default_dot_input_precision", "max_num_imprecise_acc_default", "extern_libs", "debug", "sanitize_overflow",
    "backend_name", "arch", "instrumentation_mode", "waves_per_eu", "matrix_instr_nonkdim", "kpack", "schedule_hint",
    "allow_flush_denorm", "warp_size", "grf_mode", "generate_native_code", "split_barriers_scope", "noinline",
    "device", "stream", "device_type", "grid", "warmup", "multibuffer", "enable_ubuf_saving", "optimize_epilogue",
    "disable_auto_inject_block_sync", "enable_hivm_auto_cv_balance", "unit_flag", "inject_block_all",
    "inject_barrier_all", "limit_auto_multi_buffer_only_for_local_buffer", "limit_auto_multi_buffer_of_local_buffer",
    "set_workspace_multibuffer", "tile_mix_vector_loop", "tile_mix_cube_loop", "enable_auto_bind_sub_block",
    "enable_select_analysis", "enable_linearize", "num_vec_cores", "auto_blockify_size", "compile_mode", "mix_mode",
    "simt_stack_limit", "parallel_mode", "force_simt_only", "force_simt_template", "enable_mixed_cv",
    "hfusion_enable_multiple_consumer_fusion", "num_gpus", "minRegAutoWS", "maxRegAutoWS", "ctas_per_cga",
    "preferred_ctas_per_cga", "early_tma_store_lowering", "pingpongAutoWS", "kernel",
})  # fmt: skip
"""Keywords that Triton's launchers take for themselves, on any back end."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason why a call does not bind: `kind` is one of the three above, `names` are the parameters concerned."""

    kind: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(self.names)}"


def bind(
    params: Sequence[Param],
    positional: int,
    keywords: Collection[str],
    *,
    open_positional: bool = False,
    open_keywords: bool = False,
    given: Collection[str] | None = (),
    options: Collection[str] = (),
) -> list[Problem]:
    """Return the reasons why a call does not bind to `params`.

    Args:
        params: parameters of the function.
        positional: number of positional arguments.
        keywords: names of the keyword arguments.
        open_positional: True if the call has ``*arguments``.
        open_keywords: True if the call has ``**arguments``.
        given: parameters that somebody else supplies; None if unknown, and compile-time parameters are never missed.
        options: keywords that the launcher takes for itself.
    """
    places = [p for p in params if p.kind == "p"]
    names = {p.name for p in params if p.kind in "pk"}
    takes_more = any(p.kind == "*" for p in params)
    takes_any = any(p.kind == "**" for p in params)
    problems: list[Problem] = []
    if positional > len(places) and not takes_more:
        problems.append(Problem(SURPLUS, (f"{positional} for {len(places)}",)))
    filled = {p.name for p in places[:positional]}
    twice = [k for k in keywords if k in filled]
    if twice:
        problems.append(Problem(SURPLUS, tuple(f"{name} by position and by keyword" for name in twice)))
    unexpected = [k for k in keywords if k not in names and k not in options]
    if unexpected and not takes_any:
        problems.append(Problem(UNEXPECTED, tuple(unexpected)))
    if open_keywords or open_positional:
        return problems
    missing = [
        p.name
        for p in params
        if p.required
        and p.name not in filled
        and p.name not in keywords
        and not (p.constexpr if given is None else p.name in given)
    ]
    if missing:
        problems.append(Problem(MISSING, tuple(missing)))
    return problems


def bind_call(call: Call, function: Function, options: Collection[str] = ()) -> list[Problem]:
    """Return the reasons why `call`, read from source, does not bind to `function`; see `bind` for `options`."""
    return bind(
        function.params,
        len(call.positional),
        call.keywords,
        open_positional=call.open_positional,
        open_keywords=call.open_keywords,
        given=function.given,
        options=options,
    )


def dispatched(inputs: Iterable[str], params: Sequence[Param], spec: LaunchSpec) -> list[str]:
    """Return the kernel arguments that a dispatcher passes by name, in the kernel's order.

    An input goes to the parameter of its own name, of that name with ``_ptr``, or of either in upper case. Strides are
    taken from the tensors that are bound.

    Args:
        inputs: names of the dispatcher's parameters.
        params: parameters of the kernel.
        spec: launch specification, whose keys are passed unchanged.
    """
    names = [p.name for p in params if p.kind in "pk"]
    bound = set(spec.keys)
    for name in inputs:
        pointer = f"{name}_ptr"
        target = next((n for n in (name, pointer, name.upper(), pointer.upper()) if n in names), None)
        if target is not None:
            bound.add(target)
    for name in names:
        owner, separator, dimension = name.lower().rpartition("_stride")
        is_stride = separator and (not dimension or dimension.strip("_").isdigit())
        if is_stride and not {owner, f"{owner}_ptr"}.isdisjoint(b.lower() for b in bound):
            bound.add(name)
    return [n for n in names if n in bound] + sorted(bound - set(names))


def same(name: str, other: str) -> bool:
    """Return True if the parameters `name` and `other` differ only in case and in a pointer suffix."""
    return plain(name) == plain(other)


@cache
def plain(name: str) -> str:
    """Return `name` in lower case, without pointer suffix and outer underscores."""
    return name.lower().removesuffix("_ptr").strip("_")


def exchanged(passed: Sequence[str], params: Sequence[Param]) -> Iterator[tuple[str, str]]:
    """Yield (argument, its receiver) for two arguments that are each named like the other's parameter.

    Args:
        passed: names of the positional arguments.
        params: parameters of the function.
    """
    places = [p.name for p in params if p.kind == "p"]
    for first, (argument, receiver) in enumerate(zip(passed, places, strict=False)):
        for other, place in zip(passed[first + 1 :], places[first + 1 :], strict=False):
            names = plain(argument), plain(other)
            if names[0] != names[1] and names == (plain(place), plain(receiver)):
                yield argument, receiver
                yield other, place


def misplaced(passed: Sequence[str], params: Sequence[Param]) -> Iterator[tuple[str, str]]:
    """Yield (argument, its receiver) for arguments that land on another parameter although their own exists elsewhere.

    Args:
        passed: names of the positional arguments.
        params: parameters of the function.
    """
    places = [p.name for p in params if p.kind == "p"]
    known = {plain(name) for name in places}
    given = {plain(name) for name in passed}
    for argument, place in zip(passed, places, strict=False):
        # A parameter whose name no call passes may stand for anything.
        if plain(argument) != plain(place) and plain(argument) in known and plain(place) in given:
            yield argument, place
