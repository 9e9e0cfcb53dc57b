"""The address of a server, as in ``http://HOST:PORT?name=value&...``."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from verispec.engines.protocol.generation import DTYPES, LOGPROBS_MODES, METHODS
from verispec.errors import VerispecError

SCHEMES = ("http://", "https://")
FORM = "http://HOST:PORT[?model=NAME&checkpoint=FOLDER&reference=URL]"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server, with the facts that its caller states.

    Attributes:
        scheme: "http" or "https".
        host: name or number.
        port: number.
        prefix: path before ``/v1``.
        model: name of the model in requests; empty takes the server's first.
        checkpoint: folder of the served checkpoint; None leaves the server's own log-probabilities as the reference.
        reference: address of a server of the same model without speculation; empty for none.
        dialect: name of the server's parameters beyond the common ones; empty detects it.
        method: drafting method of the server; one of `METHODS`.
        k: drafts per step.
        dtype: dtype that the server computes in; one of `DTYPES`.
        logprobs_mode: kind of the server's log-probabilities; empty is what its dialect documents.
        timeout: seconds without a byte after which a request fails.
        metrics: True reads counters of drafts from ``/metrics``.
        stated: names of the options that the address has.
    """

    scheme: str
    host: str
    port: int
    prefix: str = ""
    model: str = ""
    checkpoint: Path | None = None
    reference: str = ""
    dialect: str = ""
    method: str = "none"
    k: int = 3
    dtype: str = "float32"
    logprobs_mode: str = ""
    timeout: float = 60.0
    metrics: bool = False
    stated: frozenset[str] = frozenset()

    @property
    def where(self) -> str:
        """The address without options, for messages."""
        return f"{self.scheme}://{self.host}:{self.port}{self.prefix}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the parts of an address.

        Args:
            text: ``http://HOST:PORT`` with options as its query; a ``/v1`` at the end of the path is dropped.

        Raises:
            VerispecError: V-HTTP-URL, for an address or option that cannot be used.
        """
        parts = urlsplit(text)
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise _bad(text, f"the port of {text!r} is not a number from 1 to 65535") from error
        if f"{parts.scheme}://" not in SCHEMES or not parts.hostname:
            raise _bad(text, f"{text!r} names no host")
        if parts.username is not None:
            where = f"{parts.scheme}://{parts.hostname}"  # Nothing secret is repeated.
            raise _bad(where, "an address holds no user name or password", "set VERISPEC_HTTP_TOKEN to send a token")
        try:
            options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError as error:
            raise _bad(text, f"{parts.query!r} is not name=value&name=value") from error
        known = {name: _READERS[name](value) for name, value in options.items() if name in _READERS}
        for name in options.keys() - known.keys():
            near = difflib.get_close_matches(name, _READERS, n=1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise _bad(text, f"unknown option {name!r}", f"{meant}options are {', '.join(_READERS)}")
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.scheme, parts.hostname, port, prefix, **known, stated=frozenset(known))


def _bad(where: str, message: str, hint: str = f"write {FORM}") -> VerispecError:
    return VerispecError("V-HTTP-URL", message, where=f"--engine {where}", hint=hint)


def _folder(value: str) -> Path:
    folder = Path(value).expanduser().resolve()
    if not (folder / "config.json").is_file():
        raise _bad(f"...checkpoint={value}", f"{value!r} is not a checkpoint folder: it has no config.json")
    return folder


def _url(value: str) -> str:
    Address.parse(value)
    return value


def _one_of(name: str, allowed: tuple[str, ...]):  # type: ignore[no-untyped-def]
    def read(value: str) -> str:
        if value not in allowed:
            raise _bad(f"...{name}={value}", f"{name} must be one of {', '.join(allowed)}, got {value!r}")
        return value

    return read


def _number(name: str, kind: type, least: float):  # type: ignore[no-untyped-def]
    def read(value: str) -> float:
        try:
            number: float = kind(value)
        except ValueError:
            number = least - 1
        if number < least:
            raise _bad(f"...{name}={value}", f"{name} must be a number of at least {least}, got {value!r}")
        return number

    return read


def _yes(value: str) -> bool:
    return bool(_one_of("metrics", ("yes", "no"))(value) == "yes")


DIALECTS = ("openai", "vllm", "llama.cpp", "transformers")
"""Names of the tables of parameters in `wire`."""

_READERS = {
    "model": str,
    "checkpoint": _folder,
    "reference": _url,
    "dialect": _one_of("dialect", DIALECTS),
    "method": _one_of("method", METHODS),
    "k": _number("k", int, 1),
    "dtype": _one_of("dtype", DTYPES),
    "logprobs_mode": _one_of("logprobs_mode", LOGPROBS_MODES),
    "timeout": _number("timeout", float, 0.001),
    "metrics": _yes,
}
