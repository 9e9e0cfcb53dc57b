"""Engine ``http://HOST:PORT``: any server that answers the OpenAI-compatible completions API."""

from verispec.engines.adapters.http.engine import create

__all__ = ["create"]
