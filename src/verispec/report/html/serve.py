"""Show the HTML page on this machine, and let it follow a run in progress."""

from __future__ import annotations

from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from verispec.errors import VerispecError

VERSION = "/version"
"""Address of a short text that changes whenever a results file does."""


def serve(files: Sequence[Path], port: int) -> None:
    """Serve the page of `files` on the loopback address until Ctrl-C; every request renders it anew."""
    try:
        server = make_server(files, port)
    except OSError as error:
        raise VerispecError(
            "V-REPORT-PORT",
            f"port {port} cannot be used",
            where="--port",
            cause=error.strerror or str(error),
            hint="name another port, or 0 for a free one",
        ) from error
    print(f"http://127.0.0.1:{server.server_port}/  (Ctrl-C ends it)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()


def make_server(files: Sequence[Path], port: int) -> ThreadingHTTPServer:
    """Return a server of the page of `files`, bound to the loopback address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == VERSION:
                self._answer(200, "text/plain", _version(files))
            elif self.path == "/":
                self._answer(*_page(files))
            else:
                self._answer(404, "text/plain", "there is only one page: /")

        def _answer(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the terminal for the run's own lines."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def _page(files: Sequence[Path]) -> tuple[int, str, str]:
    from verispec.report.html import as_html
    from verispec.report.html.inputs import read_all

    try:
        runs, findings = read_all(files)
    except VerispecError as error:  # a run that has only begun has no header yet
        return 503, "text/plain", f"{error}\n\nreload this page when the run has begun"
    return 200, "text/html", as_html(runs, findings=findings, live=VERSION)


def _version(files: Sequence[Path]) -> str:
    states = [path.stat() if path.exists() else None for path in files]
    return " ".join(f"{state.st_size}-{state.st_mtime_ns}" if state else "absent" for state in states)
