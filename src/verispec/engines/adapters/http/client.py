"""Requests over HTTP with the standard library: time limits, lost connections, retries, streams.

The standard library's client is enough, and it lets a caller close a connection in the middle of a stream. A request
is sent again only while the server has answered nothing of it: the connection was refused, or it answered 429 or 503.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from verispec import exits
from verispec.engines.adapters.http.address import Address
from verispec.errors import Diagnostic, RemoteFault, VerispecError

TOKEN = "VERISPEC_HTTP_TOKEN"
"""Environment variable of a bearer token; it never appears in an engine's name or a results file."""
ATTEMPTS = 4
"""Times that a request is sent while the server refuses the connection or says that it is busy."""
FIRST_WAIT = 0.2
"""Seconds before the second attempt; every further one waits twice as long, or as long as the server asks."""
LONGEST_WAIT = 5.0
BUSY = (429, 503)


class ServerFault(RemoteFault):
    """Raised for an act that no server may do, such as closing a connection in the middle of an answer.

    The case fails with it, unlike a `VerispecError`, which leaves the case undecided.
    """

    def __init__(self, code: str, message: str, where: str = "", cause: str = "") -> None:
        self.diagnostic = Diagnostic(code, message, where, cause)
        super().__init__(str(self.diagnostic))


@dataclass(frozen=True, slots=True)
class Reply:
    """Status and body of an answer."""

    status: int
    body: bytes

    @property
    def text(self) -> str:
        """The body as text; bytes that are no UTF-8 are replaced."""
        return self.body.decode("utf-8", "replace")


class Client:
    """Sends requests to one server, each over a connection of its own; safe in many threads."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def get(self, path: str) -> Reply:
        """Return the answer to GET, whatever its status.

        Args:
            path: below the address's prefix, with a leading slash.

        Raises:
            VerispecError: V-HTTP-CONNECT, the server cannot be reached.
            ServerFault: V-HTTP-TIMEOUT or V-HTTP-LOST, the answer did not arrive whole.
        """
        with self._exchange("GET", path, None) as response:
            return Reply(response.status, self._read(response, path))

    def post(self, path: str, body: bytes | Mapping[str, Any]) -> Reply:
        """Return the answer to POST, whatever its status.

        Args:
            path: below the address's prefix, with a leading slash.
            body: a mapping is sent as JSON, bytes are sent unchanged.

        Raises:
            VerispecError: V-HTTP-CONNECT, the server cannot be reached.
            ServerFault: V-HTTP-TIMEOUT or V-HTTP-LOST, the answer did not arrive whole.
        """
        with self._exchange("POST", path, body) as response:
            return Reply(response.status, self._read(response, path))

    @contextmanager
    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Yield the status and the lines of an answer; leaving early closes the connection.

        Args:
            path: below the address's prefix, with a leading slash.
            body: sent as JSON.

        Raises:
            VerispecError: V-HTTP-CONNECT, the server cannot be reached.
            ServerFault: V-HTTP-TIMEOUT or V-HTTP-LOST, the answer did not arrive whole.
        """
        with self._exchange("POST", path, body) as response:
            yield response.status, self._lines(response, path)

    @contextmanager
    def _exchange(
        self, method: str, path: str, body: bytes | Mapping[str, Any] | None
    ) -> Iterator[http.client.HTTPResponse]:
        payload = json.dumps(body).encode() if isinstance(body, Mapping) else body
        wait = FIRST_WAIT
        for attempt in range(1, ATTEMPTS + 1):
            connection = self._connection()
            try:
                response = self._send(connection, method, path, payload, last=attempt == ATTEMPTS)
                if response is not None and (response.status not in BUSY or attempt == ATTEMPTS):
                    yield response
                    return
                if response is not None:
                    wait = _asked_wait(response, wait)
            finally:
                connection.close()
            time.sleep(min(wait, LONGEST_WAIT))
            wait *= 2

    def _connection(self) -> http.client.HTTPConnection:
        address = self._address
        if address.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(address.host, address.port, timeout=address.timeout, context=context)
        return http.client.HTTPConnection(address.host, address.port, timeout=address.timeout)

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, payload: bytes | None, *, last: bool
    ) -> http.client.HTTPResponse | None:
        """Return the answer's head; None when the connection was refused and another attempt follows."""
        where = f"{method} {self._address.where}{path}"
        try:
            connection.connect()
        except (ConnectionError, socket.gaierror, TimeoutError, OSError) as error:
            if isinstance(error, ConnectionRefusedError) and not last:
                return None
            raise self._unreachable(error) from error
        headers = {"Content-Type": "application/json"} if payload is not None else {}
        if token := os.environ.get(TOKEN):
            headers["Authorization"] = f"Bearer {token}"
        try:
            connection.request(method, f"{self._address.prefix}{path}", payload, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise self._fault(error, where, begun=False) from error

    def _read(self, response: http.client.HTTPResponse, path: str) -> bytes:
        try:
            return response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._fault(error, f"{self._address.where}{path}", begun=True) from error

    def _lines(self, response: http.client.HTTPResponse, path: str) -> Iterator[bytes]:
        try:
            while line := response.readline():
                yield line
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._fault(error, f"{self._address.where}{path}", begun=True) from error

    def _unreachable(self, error: OSError) -> VerispecError:
        where = self._address.where
        message = f"no server answers at {where}"
        hint = "start the server, or correct host and port; GET /v1/models must answer"
        if isinstance(error, ssl.SSLCertVerificationError):
            message = f"the certificate of {where} is not trusted"
            hint = (
                "set SSL_CERT_FILE to a PEM file with it or its issuer, and write the host as the certificate names it"
            )
        elif isinstance(error, ssl.SSLError):
            message, hint = (
                f"the server at {where} does not speak TLS as asked",
                "if it speaks plain HTTP, write http://",
            )
        return VerispecError(
            "V-HTTP-CONNECT", message, where="--engine", cause=_text(error), hint=hint, exit_code=exits.CANNOT_TELL
        )

    def _fault(self, error: Exception, where: str, *, begun: bool) -> ServerFault:
        """Return the fault of a connection that failed; `begun` is True if the head of the answer had come."""
        if isinstance(error, TimeoutError):
            seconds = self._address.timeout
            return ServerFault("V-HTTP-TIMEOUT", f"no byte came for {seconds:g} s (option timeout)", where)
        if begun:
            return ServerFault("V-HTTP-LOST", "the connection ended inside of the answer", where, _text(error))
        if isinstance(error, OSError):
            return ServerFault("V-HTTP-LOST", "the connection ended before any answer", where, _text(error))
        return ServerFault("V-HTTP-ANSWER", "the server's answer is not HTTP", where, _text(error))


def _asked_wait(response: http.client.HTTPResponse, otherwise: float) -> float:
    """Return the seconds of a Retry-After header that has a number."""
    value = response.getheader("Retry-After") or ""
    return float(value) if value.isdigit() else otherwise


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
