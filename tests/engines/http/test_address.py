"""Addresses, and servers that cannot be reached, hang up, stall, are busy or answer nonsense."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from verispec import exits, fixtures
from verispec.engines import GenerationRequest, Unsupported, UnsupportedCall
from verispec.engines.adapters.http import lifeline
from verispec.engines.adapters.http.address import Address
from verispec.engines.adapters.http.client import Client, ServerFault
from verispec.engines.adapters.http.engine import HttpEngine, metrics_of
from verispec.engines.adapters.http.plain import names_of
from verispec.engines.adapters.http.server import HttpServer, prometheus
from verispec.engines.adapters.http.wire import DIALECTS, body_of, streamed_answer
from verispec.engines.registry import require_known, resolve
from verispec.errors import VerispecError

REQUEST = GenerationRequest((5, 6), max_tokens=2)


@contextmanager
def answering(*replies: bytes | Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve one connection per reply: bytes to send after the request, or what to do with the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for reply in replies:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                if callable(reply):
                    reply(connection)
                else:
                    connection.sendall(reply)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        thread.join(5)


def reply(status: int, body: str, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n{body}".encode()


def reset(connection: socket.socket) -> None:
    """Close with RST, as a process that is killed with unread requests does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


MODELS = reply(200, '{"data": [{"id": "m", "owned_by": "vllm"}]}')


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://", "names no host"),
        ("http://h:99999", "port"),
        ("http://h:1?modle=x", "did you mean model"),
        ("http://h:1?k=0", "at least 1"),
        ("http://h:1?timeout=soon", "timeout must be a number"),
        ("http://h:1?dtype=int4", "dtype must be one of"),
        ("http://h:1?metrics=maybe", "metrics must be one of yes, no"),
        ("http://h:1?checkpoint=/nowhere", "is not a checkpoint folder"),
        ("http://h:1?reference=ftp://x", "names no host"),
        ("http://me:secret@h:1", "VERISPEC_HTTP_TOKEN"),
        ("http://h:1?model", "not name=value"),
    ],
)
def test_a_bad_address_is_explained(address: str, message: str) -> None:
    with pytest.raises(VerispecError, match="V-HTTP-URL") as error:
        Address.parse(address)
    assert message in str(error.value)
    assert "secret" not in str(error.value)


def test_an_address_has_its_options() -> None:
    found = Address.parse("https://h/api/v1?model=m&method=ngram&k=5&metrics=yes")
    assert (found.where, found.model, found.method, found.k, found.metrics) == (
        "https://h:443/api",
        "m",
        "ngram",
        5,
        True,
    )


def test_addresses_are_known_names() -> None:
    require_known("http://h:1?reference=http://x@y")


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(VerispecError, match="V-HTTP-CONNECT") as error:
        resolve(f"http://127.0.0.1:{port}")
    assert error.value.exit_code == exits.CANNOT_TELL


def test_a_device_is_refused() -> None:
    with pytest.raises(VerispecError, match="V-ENG-DEVICE"):
        resolve("http://127.0.0.1:1", "cpu")


def test_an_unknown_model_is_refused_with_those_served() -> None:
    with answering(MODELS) as address, pytest.raises(VerispecError, match=r"V-HTTP-MODEL.*(\n.*)*it serves m"):
        HttpServer(Address.parse(f"{address}?model=other"))


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (
            reply(500, '{"error": {"message": "CUDA error: out of memory"}}'),
            "answers 500.*CUDA error: out of memory.*busy",
        ),
        (reply(502, "<html>Bad Gateway</html>"), "answers 502.*<html>Bad Gateway</html>.*busy or broken"),
        (reply(404, '{"detail": "Not Found"}'), r"answers 404.*Not Found.*\?model=NAME"),
        (reply(200, "<html>Welcome</html>"), "no list of models: <html>Welcome</html>.*correct host and port"),
        (reply(200, "[]"), r"no list of models: \[\].*correct host and port"),
        (reply(200, "{}"), "no list of models: {}.*correct host and port"),
        (reply(200, '{"data": []}'), r"lists no model: {.data.: \[\]}.*\?model=NAME"),
        (reply(401, '{"error": {"message": "no API key"}}'), "answers 401: no API key.*hint:  set VERISPEC_HTTP_TOKEN"),
        (reset, "V-HTTP-LOST.*/v1/models.*if the server speaks TLS, write https://"),
        (lambda connection: threading.Event().wait(1), "V-HTTP-TIMEOUT.*timeout=SECONDS"),
    ],
    ids=["500", "502", "404", "html", "list", "object", "empty", "401", "reset", "silent"],
)
def test_a_list_of_models_that_does_not_come_is_said_in_the_servers_words(
    page: bytes | Callable[[socket.socket], None], words: str
) -> None:
    with answering(page) as address, pytest.raises(VerispecError) as caught:
        HttpServer(Address.parse(f"{address}?timeout=0.3"))
    assert re.search(words, " ".join(str(caught.value).split(" ")).replace("\n", " ")), str(caught.value)
    assert caught.value.exit_code == exits.CANNOT_TELL


def test_a_named_model_needs_no_list() -> None:
    with answering(reply(404, "no such page")) as address:
        assert HttpServer(Address.parse(f"{address}?model=m")).model == "m"


def test_a_wrong_token_is_not_called_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERISPEC_HTTP_TOKEN", "other")
    with answering(reply(401, "bad key")) as address, pytest.raises(VerispecError, match="is set to another token"):
        HttpServer(Address.parse(address))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ssl.SSLCertVerificationError("self-signed certificate"), "is not trusted(.|\n)*SSL_CERT_FILE"),
        (ssl.SSLError("wrong version number"), "does not speak TLS(.|\n)*write http://"),
    ],
    ids=["certificate", "plain"],
)
def test_what_tls_lacks_is_said(error: ssl.SSLError, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: http.client.HTTPSConnection) -> None:
        raise error

    monkeypatch.setattr(http.client.HTTPSConnection, "connect", refuse)
    with pytest.raises(VerispecError, match=words):
        HttpServer(Address.parse("https://127.0.0.1:1"))


def test_a_text_server_needs_a_checkpoint() -> None:
    with answering(MODELS) as address, pytest.raises(VerispecError, match="V-HTTP-TOKENS"):
        HttpServer(Address.parse(f"{address}?dialect=transformers"))


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", "V-HTTP-LOST.*before any answer"),
        (reset, "V-HTTP-LOST.*before any answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{", "V-HTTP-LOST.*inside of the answer"),
        (b"SMTP ready\r\n", "V-HTTP-ANSWER.*not HTTP"),
        (reply(500, "boom"), "V-HTTP-STATUS"),
        (reply(200, "<html>"), "V-HTTP-ANSWER"),
        (reply(200, "[]"), "V-HTTP-ANSWER"),
        (reply(200, "{}"), "V-HTTP-ANSWER"),
        (reply(200, '{"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": [1, 2]}}]}'), "V-HTTP-ANSWER"),
        (reply(200, '{"choices": [3]}'), "V-HTTP-ANSWER"),
        (lambda connection: threading.Event().wait(1), "V-HTTP-TIMEOUT"),
    ],
    ids=lambda value: "" if callable(value) else str(value)[:20],
)
def test_a_servers_fault_fails_the_case(
    answer: bytes | Callable[[socket.socket], None], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifeline, "RESTART", 0.2)
    with answering(MODELS, answer) as address:
        server = HttpServer(Address.parse(f"{address}?timeout=0.3"))
        with pytest.raises(ServerFault, match=code):
            server.ask([REQUEST])


def test_a_refusal_has_the_servers_words() -> None:
    with answering(MODELS, reply(400, '{"error": {"message": "no such thing"}}')) as address:
        server = HttpServer(Address.parse(address))
        with pytest.raises(UnsupportedCall, match="400: no such thing"):
            server.ask([REQUEST])


def test_a_busy_server_is_asked_again() -> None:
    busy = reply(503, "later", "Retry-After: 0\r\n")
    with answering(busy, busy, reply(200, "fine")) as address:
        assert Client(Address.parse(address)).get("/x").text == "fine"


def test_a_lost_answer_is_not_asked_for_again() -> None:
    with answering(b"", reply(200, "fine")) as address:
        with pytest.raises(ServerFault):
            Client(Address.parse(address)).post("/x", {})
        assert Client(Address.parse(address)).get("/x").text == "fine"


def test_the_token_is_sent_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def note(connection: socket.socket) -> None:
        connection.sendall(reply(200, "fine"))

    monkeypatch.setenv("VERISPEC_HTTP_TOKEN", "hush")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            seen.append(connection.recv(65536).decode())
            note(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    Client(Address.parse(f"http://127.0.0.1:{listener.getsockname()[1]}")).get("/x")
    thread.join()
    listener.close()
    assert "Authorization: Bearer hush" in seen[0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([b'data: {"error": {"message": "oom"}}\n', b"\n"], "an error came"),
        ([b"data: [DONE]\n", b"\n", b"data: {}\n", b"\n"], "after \\[DONE\\]"),
        ([b"data: {\n", b"\n"], "not JSON"),
        ([b"data: [DONE]\n", b"\n"], "no choices"),
    ],
)
def test_a_stream_that_cannot_be_read(lines: list[bytes], message: str) -> None:
    with pytest.raises(ServerFault, match=message):
        streamed_answer(lines, REQUEST)


def test_a_stream_without_its_end_mark_is_seen() -> None:
    answer = streamed_answer([b": ping\n", b'data: {"choices": [{"text": "a"}]}\n', b"\n"], REQUEST)
    assert not answer.ended
    assert answer.choices[0].text == "a"


def test_text_after_the_finish_reason_is_late() -> None:
    parts = [b'{"text":"a","finish_reason":"stop"}', b'{"text":"b"}']
    lines = [line for part in parts for line in (b'data: {"choices":[' + part + b"]}\n", b"\n")]
    assert streamed_answer(lines, REQUEST).choices[0].late
    assert not streamed_answer(lines[:2], REQUEST).choices[0].late


UNKNOWN = '{"data": [{"id": "m", "owned_by": "somebody"}]}'
IDS = '{"choices": [{"text": "a", "token_ids": [5]}]}'
TEXTS = '{"choices": [{"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [0], "top_logprobs": [{}]}}]}'


@pytest.mark.parametrize(
    ("replies", "always"),
    [
        ([reply(200, IDS)], {"return_token_ids": True}),
        ([reply(400, "{}"), reply(200, TEXTS)], {"logprobs": 1}),
        ([reply(400, "{}"), reply(200, '{"choices": [{"text": "a"}]}')], {}),
    ],
    ids=["ids", "texts", "neither"],
)
def test_a_server_of_an_unknown_kind_is_asked_for_tokens(replies: list[bytes], always: dict[str, Any]) -> None:
    with answering(reply(200, UNKNOWN), *replies) as address:
        assert HttpServer(Address.parse(address))._dialect.always == always


def test_a_token_written_as_text_has_the_id_of_its_name() -> None:
    class Tokenizer:
        texts = ("a", "b", "b", "\ufffd")

        def get_vocab(self) -> dict[str, int]:
            return {"a": 0, "Xb": 1, "b": 2, "Xc": 3}

        def decode(self, ids: list[int]) -> str:
            return self.texts[ids[0]]

    names = names_of(Tokenizer())
    assert names == {"a": 0, "Xb": 1, "Xc": 3}
    lines = [b'data: {"choices":[{"text":"a","logprobs":{"tokens":["a"],"token_logprobs":[-1.0]}}]}\n', b"\n"]
    assert streamed_answer(lines, REQUEST, names).choices[0].token_ids == (0,)
    assert streamed_answer(lines, REQUEST).choices[0].token_ids is None


def test_both_forms_of_logprobs_are_read() -> None:
    forms = [
        b'{"tokens":["token_id:7"],"token_logprobs":[-1.0],"top_logprobs":[{"token_id:3":-0.5,"token_id:7":-1.0}]}',
        b'{"content":[{"id":7,"logprob":-1.0,"top_logprobs":[{"id":3,"logprob":-0.5},{"id":7,"logprob":-1.0}]}]}',
    ]
    for form in forms:
        asked = GenerationRequest((5,), logprobs=1)
        [choice] = streamed_answer(
            [b'data: {"choices":[{"text":"a","logprobs":' + form + b"}]}\n", b"\n"], asked
        ).choices
        assert choice.token_ids == (7,)
        assert choice.logprobs[0].sampled == -1.0
        assert choice.logprobs[0].top == ((3, -0.5),)


def test_a_parameter_that_the_dialect_lacks_is_refused() -> None:
    asked = GenerationRequest((5,), top_k=3)
    with pytest.raises(UnsupportedCall, match="has no top_k"):
        body_of(asked, DIALECTS["openai"], "m", str)
    assert body_of(asked, DIALECTS["vllm"], "m", str)["top_k"] == 3
    with pytest.raises(UnsupportedCall, match="counts the prompt's tokens"):
        body_of(GenerationRequest((5,), presence_penalty=1.0), DIALECTS["llama.cpp"], "m", str)
    with pytest.raises(UnsupportedCall, match="forbids the end token"):
        body_of(GenerationRequest((5,), ignore_eos=True), DIALECTS["llama.cpp"], "m", str)


def test_llama_cpp_is_always_asked_for_token_ids() -> None:
    dialect = DIALECTS["llama.cpp"]
    bodies = [body_of(GenerationRequest((5,), logprobs=count), dialect, "m", str) for count in (None, 0, 4)]
    assert [body["logprobs"] for body in bodies] == [1, 1, 4]
    content = b'{"content":[{"id":7,"logprob":-1.0,"top_logprobs":[{"id":7,"logprob":-1.0}]}]}'
    lines = [b'data: {"choices":[{"text":"a","logprobs":' + content + b"}]}\n", b"\n"]
    [choice] = streamed_answer(lines, REQUEST).choices
    assert (choice.token_ids, choice.logprobs) == ((7,), ())


def test_ids_that_are_not_all_are_none() -> None:
    told = b'{"content":[{"id":7,"logprob":-1.0,"top_logprobs":[]}]}'
    lines = [b'data: {"choices":[{"text":"a","logprobs":' + told + b"}]}\n", b"\n"]
    lines += [b'data: {"choices":[{"text":"b","logprobs":null}]}\n', b"\n"]
    assert streamed_answer(lines, REQUEST).choices[0].token_ids is None


def test_what_the_server_was_not_started_with_is_unsupported() -> None:
    target = fixtures.model("target")
    with answering(MODELS) as address:
        engine = HttpEngine(Address.parse(f"{address}?checkpoint={target}&method=ngram"))
    for options, reason in (
        ({"method": "none"}, "the server was started with method=ngram, as its address says"),
        ({"num_speculative_tokens": 5}, "the server's address has no k, which counts as k=3"),
        ({"max_model_len": 96}, "its address has no such option"),
    ):
        assert engine.load(target, **{"method": "ngram", **options}).reason.endswith(reason)
    assert isinstance(engine.load(fixtures.model("draft"), method="ngram"), Unsupported)
    assert not isinstance(engine.load(target, method="ngram"), Unsupported)


def test_options_of_another_method_are_unsupported_too() -> None:
    """A server's own method beside the options of another is no configuration, and must not be built."""
    target, draft = fixtures.model("target"), fixtures.model("draft")
    with answering(MODELS) as address:
        engine = HttpEngine(Address.parse(f"{address}?checkpoint={target}&method=draft_model"))
    tree = {"speculative_token_tree": ((0,), (1,), (0, 0), (0, 1)), "draft_sample_method": "greedy"}
    for options in (
        {"method": "suffix"},
        {"method": "ngram", "ngram_min": 2},
        {"method": "draft_model", "draft": draft, "num_speculative_tokens": 4, **tree},
    ):
        assert isinstance(engine.load(target, **options), Unsupported)
    assert not isinstance(engine.load(target, method="draft_model", draft=draft), Unsupported)


def test_counters_are_read_by_position() -> None:
    page = "\n".join(
        [
            "# HELP x y",
            'vllm:spec_decode_num_drafts_total{engine="0"} 4.0',
            'vllm:spec_decode_num_draft_tokens_total{engine="0"} 12.0',
            'vllm:spec_decode_num_accepted_tokens_total{engine="0"} 5.0',
            'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 3.0',
            'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 2.0',
            'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"} 0.0',
        ]
    )
    address = Address.parse("http://h:1?k=3&metrics=yes")
    assert metrics_of(prometheus(page), address).accepted_per_position == (3, 2, 0)
    with pytest.raises(VerispecError, match="V-HTTP-METRICS"):
        metrics_of({}, address)
