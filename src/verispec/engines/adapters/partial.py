"""The answers of an engine to the parts that its adapter lacks."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from verispec.engines import OpFunction, SamplerBatch, Unsupported, UnsupportedCall
from verispec.errors import VerispecError


class PartialEngine:
    """Base of adapters that offer a few parts; `lacks` gives the reason for each of the others."""

    lacks: ClassVar[Mapping[str, str]] = {}

    def op(self, name: str) -> OpFunction | Unsupported:
        """Return why no op can be called."""
        return Unsupported(self.lacks["op"])

    def sampler(self, family: str = "flat") -> Any | Unsupported:
        """Return why no sampler can be called."""
        return Unsupported(self.lacks["sampler"])

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        """Return why nothing is generated."""
        return Unsupported(self.lacks["load"])

    def definitions(self) -> Mapping[str, Any] | Unsupported:
        """Return why no signatures are read."""
        return Unsupported(self.lacks["definitions"])

    def close(self) -> None:
        """Nothing is held."""


def refuse(batch: SamplerBatch, **reasons: str) -> None:
    """Raise UnsupportedCall if `batch` has a field that the engine lacks.

    Args:
        batch: one step.
        reasons: reasons by field name.

    Raises:
        UnsupportedCall: one of the fields is set; seeds count as set if one of them is not None.
    """
    for name, reason in reasons.items():
        value = getattr(batch, name)
        if value is not None and not (name == "seeds" and all(seed is None for seed in value)):
            raise UnsupportedCall(reason)


def require_cpu(device: str | None, engine: str) -> None:
    """Raise an error unless `device` is "cpu" or None.

    Args:
        device: requested device, None for the engine's choice.
        engine: its name, for the message.

    Raises:
        VerispecError: V-ENG-DEVICE, for any other device.
    """
    if device not in (None, "cpu"):
        raise VerispecError(
            "V-ENG-DEVICE",
            f"{engine} is tested on the CPU only",
            where=f"--device {device}",
            hint="omit --device, or give --device cpu",
        )


def jax_device(jax: Any, device: str) -> tuple[str, Any]:
    """Return the kind of the device that JAX runs on, such as "NVIDIA H200", and the device.

    Args:
        jax: the module.
        device: "cpu" or "cuda", the device that is asked for.

    Raises:
        VerispecError: V-ENG-DEVICE, JAX would run on another one.
    """
    found = jax.devices()[0]
    if found.platform != {"cpu": "cpu", "cuda": "gpu"}[device]:
        raise VerispecError(
            "V-ENG-DEVICE",
            f"JAX would run on {found.device_kind}",
            where=f"--device {device}",
            hint="pip install 'jax[cuda13]' on a machine with a GPU, or omit --device",
        )
    return found.device_kind, found


def choose_interpreter(engine: str, code: str) -> None:
    """Make Triton run its interpreter in this process, before it is imported.

    Args:
        engine: name of the engine, for messages.
        code: code of the error.

    Raises:
        VerispecError: with the code, Triton was imported already and compiles. V-ENG-INTERPRETER, the interpreter
            cannot run here.
    """
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise VerispecError(
            code,
            "Triton was imported before its interpreter was chosen",
            where=f"--engine {engine}",
            hint="set TRITON_INTERPRET=1",
        )
    os.environ["TRITON_INTERPRET"] = "1"
    from verispec.engines import triton_interpreter

    triton_interpreter.prepare(engine)


def limits_of_triton() -> AbstractContextManager[None]:
    """Return `triton_interpreter.limits()`; Triton is imported no earlier than this."""
    from verispec.engines import triton_interpreter

    return triton_interpreter.limits()


def require_room(index: int, length: int, limit: int) -> None:
    """Raise an error unless a prompt leaves room for a token.

    Args:
        index: place of the request in its batch.
        length: tokens of the prompt.
        limit: maximum tokens of the sequence.

    Raises:
        VerispecError: V-GEN-PROMPT, there is no room.
    """
    if length >= limit:
        raise VerispecError(
            "V-GEN-PROMPT",
            f"the prompt has {length} tokens; the limit is {limit}",
            where=f"request {index}",
            hint="shorten the prompt, or load with a larger max_model_len",
        )


def require_known(index: int, token_ids: Sequence[int], vocab_size: int) -> None:
    """Raise an error unless the vocabulary has every token of a prompt.

    Args:
        index: place of the request in its batch.
        token_ids: the prompt.
        vocab_size: tokens of the target's vocabulary.

    Raises:
        VerispecError: V-GEN-PROMPT, a token is outside of it.
    """
    if unknown := [token for token in token_ids if not 0 <= token < vocab_size]:
        raise VerispecError(
            "V-GEN-PROMPT",
            f"the prompt has token {unknown[0]}, which the vocabulary lacks",
            where=f"request {index}",
            hint="pass ids of the target's tokenizer",
        )


def imported(code: str, engine: str, modules: Iterable[str], install: str) -> tuple[Any, ...]:
    """Return modules of an engine by name.

    Args:
        code: code of the error.
        engine: name of the engine on the command line.
        modules: names of its modules.
        install: hint for a missing module.

    Raises:
        VerispecError: `code`, a module cannot be imported.
    """
    with import_errors(code, f"{engine} cannot be imported", engine, install):
        return tuple(importlib.import_module(name) for name in modules)


@contextmanager
def import_errors(code: str, message: str, engine: str, hint: str) -> Iterator[None]:
    """Turn an ImportError of the block into a VerispecError about `engine`, its name on the command line."""
    try:
        yield
    except ImportError as error:
        cause = f"{type(error).__name__}: {error}"
        raise VerispecError(code, message, where=f"--engine {engine}", cause=cause, hint=hint) from error


def require_module(root: Path, module: str, code: str, source: str, *, what: str, hint: str) -> None:
    """Raise VerispecError with `code` unless the tree of `source` at `root` has the module, which is `what`."""
    if not (root / f"{module.replace('.', '/')}.py").is_file():
        raise VerispecError(code, f"the source holds no {what}", where=source, hint=hint)


def version_of(root: Path, project: str, source: str) -> str:
    """Return the version of an unpacked release by its metadata, else the last part of the source's name."""
    for path in (*root.glob(f"{project}-*.dist-info/METADATA"), root / "PKG-INFO"):
        if path.is_file() and (found := re.search(r"^Version: (.+)$", path.read_text("utf-8"), re.MULTILINE)):
            return found[1]
    return source.rpartition("/")[2]
