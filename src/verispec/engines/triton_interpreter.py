"""Run kernels in Triton's interpreter: patch older releases, omit lost work, reject calls that no release supports.

A GPU's result is the reference for a kernel. Up to Triton 3.7 the interpreter's maxima and minima take NaN,
which a GPU's leave out, and it has no bool among a kernel's arguments. Up to 3.9 at least, its casts from float32
to bfloat16 cut the last bits off, where a GPU's round to the nearest number. A comparison of scalars does not combine
with one of vectors there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import triton
import triton.language as tl
from packaging.version import Version
from triton.runtime import interpreter

from verispec.engines import UnsupportedCall
from verispec.errors import VerispecError


def prepare(engine: str) -> None:
    """Patch this process's interpreter; call it before the first kernel runs.

    Args:
        engine: name of the engine, for messages.

    Raises:
        VerispecError: V-ENG-INTERPRETER, the installed Triton cannot run a loop beside the installed NumPy.
    """
    release, numpy = Version(triton.__version__), Version(np.__version__)
    if release < Version("3.7") and numpy >= Version("2.4"):
        raise VerispecError(
            "V-ENG-INTERPRETER",
            f"the interpreter of Triton {release} cannot run loops beside NumPy {numpy}",
            where=f"--engine {engine}",
            hint="pip install 'triton>=3.7', or 'numpy<2.4'; on a GPU this Triton is fine",
        )
    _omit_lost_work()
    _look_up_dtypes()
    _round_to_bfloat16()
    _spread_bools()
    if release < Version("3.8"):
        _leave_out_nan()
        _take_bools()


@contextmanager
def limits() -> Iterator[None]:
    """Turn failures of Triton alone into UnsupportedCall, because they are no faults of the kernel.

    NumPy refuses to reduce NaN alone, and in the interpreter plain Python values lack attributes that a compiled
    kernel's have. On a GPU a pass of the compiler may fail on a kernel of a tree that asks for another Triton. A kernel
    that Triton rejects, which is a CompilationError, is the kernel's own fault.

    Raises:
        UnsupportedCall: the body failed in one of these ways.
    """
    try:
        yield
    except triton.runtime.errors.InterpreterError as error:
        text = str(error)
        if "All-NaN slice" in text or "AttributeError" in text:
            raise UnsupportedCall(f"Triton's interpreter cannot run this, a GPU can: {text}") from error
        raise
    except RuntimeError as error:
        if "PassManager::run failed" in str(error):
            message = (
                f"a pass of the compiler of Triton {triton.__version__} fails; use the Triton that this tree asks for"
            )
            raise UnsupportedCall(message) from error
        raise


def _omit_lost_work() -> None:
    """Omit what takes half of the interpreter's time and changes no result.

    Sums and products of integers are computed in 64 bits too, for an assertion that is made in debug mode alone.
    Every call of a device function looks for builtins to patch, which the launch of the kernel has patched.
    """
    options = interpreter.interpreter_builder.options
    if not options.debug:
        interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)
    plain, plain_lang = interpreter._patch_builtin, interpreter._patch_lang
    first_builtins: dict[Any, str] = {}

    def is_patched(package: Any) -> bool:
        first = first_builtins.get(package)
        return first is not None and not tl.core.is_builtin(getattr(package, first, None))

    def patch_builtin(package: Any, *others: Any) -> None:
        if is_patched(package):
            return
        if package not in first_builtins:
            found = (name for name in sorted(dir(package)) if tl.core.is_builtin(getattr(package, name, None)))
            first_builtins[package] = next(found, "")
        plain(package, *others)

    @functools.cache
    def languages(function: Any) -> list[Any]:
        return [value for value in function.__globals__.values() if value is tl or value is tl.core]

    def patch_lang(function: Any) -> Any:
        # A launch patches `tl` and its tensors, and newer releases take that back at its end.
        if all(map(is_patched, (tl, tl.tensor, *languages(function)))):
            return None
        return plain_lang(function)

    interpreter._patch_builtin = patch_builtin
    interpreter._patch_lang = patch_lang


def _look_up_dtypes() -> None:
    """Keep NumPy's dtype of each type: the interpreter makes a table of all of them for each operation."""
    plain, known = interpreter._get_np_dtype, dict[str, Any]()

    def numpy_dtype(dtype: Any) -> Any:
        name = dtype.scalar.name
        if name not in known:
            known[name] = plain(dtype)
        return known[name]

    interpreter._get_np_dtype = numpy_dtype


def _round_to_bfloat16() -> None:
    builder = interpreter.InterpreterBuilder
    plain = builder.create_fp_trunc

    def create_fp_trunc(self: Any, source: Any, dtype: Any) -> Any:
        if source.dtype.scalar != tl.float32 or dtype.scalar != tl.bfloat16:
            return plain(self, source, dtype)
        bits = source.data.view(np.uint32)
        # A bfloat16 is the upper half of a float32. Half of its last bit, less one where that bit is even, carries
        # into the upper half exactly if the number rounds up, ties to even. NaN would carry into the sign.
        upper = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        rounded = np.where(np.isnan(source.data), 0x7FFF, upper).astype(np.uint16)
        return interpreter.TensorHandle(rounded, dtype.scalar)

    builder.create_fp_trunc = create_fp_trunc


def _spread_bools() -> None:
    """Keep a comparison of two scalars a bool where it meets a vector: its handle has the type of its operands."""
    builder = interpreter.InterpreterBuilder
    plain = builder.create_splat

    def create_splat(self: Any, *arguments: Any) -> Any:
        handle = plain(self, *arguments)
        if any(getattr(getattr(given, "data", None), "dtype", None) == np.bool_ for given in arguments):
            handle.data = handle.data.astype(np.bool_)
        return handle

    builder.create_splat = create_splat


def _leave_out_nan() -> None:
    builder, reductions = interpreter.InterpreterBuilder, interpreter.ReduceOps
    builder.create_maxnumf = lambda self, a, b: self.binary_op(a, b, np.fmax)
    builder.create_minnumf = lambda self, a, b: self.binary_op(a, b, np.fmin)
    without = {np.max: np.nanmax, np.min: np.nanmin, np.argmax: np.nanargmax, np.argmin: np.nanargmin}
    plain = reductions.min_max

    def min_max(self: Any, values: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        return plain(self, values, without.get(val_reduce_op, val_reduce_op), without.get(idx_reduce_op, idx_reduce_op))

    reductions.min_max = min_max


def _take_bools() -> None:
    plain = interpreter._implicit_cvt

    def convert(argument: Any) -> Any:
        if isinstance(argument, bool):
            return tl.tensor(interpreter.TensorHandle(np.array([argument]), tl.int1), tl.int1)
        return plain(argument)

    interpreter._implicit_cvt = convert
