"""The end of a server is blamed on the case in which it ended, and on no other."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import own_server
import pytest
from judging import in_process
from own_server import OwnServer

from verispec import exits
from verispec.engines import GenerationRequest
from verispec.engines.adapters.http import lifeline
from verispec.engines.adapters.http.address import Address
from verispec.engines.adapters.http.client import ServerFault
from verispec.engines.adapters.http.engine import HttpEngine
from verispec.engines.adapters.http.lifeline import Lifeline
from verispec.engines.adapters.http.server import HttpServer
from verispec.engines.protocol.running_case import begin_case
from verispec.errors import VerispecError

PLAIN = GenerationRequest((5, 6, 7), max_tokens=2)
DEADLY = GenerationRequest((5, 6, 7), max_tokens=2, logprobs=2)


class Mortal(OwnServer):
    """Ends at the first request with log-probabilities; `lives` counts the requests until it is back."""

    status = 500
    """Status of its answers then; 0 closes the connection."""
    lost = 10**9
    """Requests that it does not answer."""
    ended = False

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        self.ended |= body.get("logprobs") is not None
        if self.ended and self.lost:
            self.lost -= 1
            if not self.status:
                raise ConnectionAbortedError
            raise own_server.BadRequest("EngineCore died")
        return super().make_request(body)

    def make_refusal(self, error: own_server.BadRequest) -> tuple[int, Mapping[str, Any]]:
        status, body = super().make_refusal(error)
        return (self.status if self.ended else status), body


class Resets(Mortal):
    status = 0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifeline, "RESTART", 0.2)
    monkeypatch.setattr(lifeline, "BETWEEN", 0.01)


@pytest.mark.parametrize("kind", [Mortal, Resets])
def test_only_the_case_in_which_a_server_ends_fails(kind: type[Mortal]) -> None:
    with kind().served() as address:
        server = HttpServer(Address.parse(address))
        begin_case("first")
        server.ask([PLAIN])
        begin_case("second")
        with pytest.raises(ServerFault, match=r"V-HTTP-DOWN.*stopped answering in this case"):
            server.ask([DEADLY])
        with pytest.raises(ServerFault, match="V-HTTP-DOWN"):
            server.ask([PLAIN])  # of the same case
        begin_case("third")
        for send in (lambda: server.ask([PLAIN] * 8), lambda: server.post(b"{")):
            with pytest.raises(VerispecError, match="the server is down since second"):
                send()


@pytest.mark.parametrize("lost", [1, 3])
def test_a_server_that_lives_on_fails_that_case_alone(lost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request is lost, or a supervisor starts the server again."""
    monkeypatch.setattr(lifeline, "RESTART", 60.0)
    own = Resets()
    own.lost = lost
    with own.served() as address:
        server = HttpServer(Address.parse(address))
        begin_case("first")
        server.ask([PLAIN])
        begin_case("second")
        with pytest.raises(ServerFault, match="V-HTTP-LOST") as caught:
            server.ask([DEADLY])
        assert ("the server was down after it" in str(caught.value)) == (lost > 1)
        own.lost = 0
        begin_case("third")
        assert server.ask([PLAIN])[0].choices[0].token_ids


def test_a_server_that_comes_back_late_is_used_again() -> None:
    own = Resets()
    with own.served() as address:
        server = HttpServer(Address.parse(address))
        server.ask([PLAIN])
        begin_case("second")
        with pytest.raises(ServerFault, match="V-HTTP-DOWN"):
            server.ask([DEADLY])
        own.lost = 0
        begin_case("third")
        assert server.ask([PLAIN])[0].choices[0].token_ids


def test_a_status_of_a_raw_body_is_the_servers_end_too() -> None:
    with Mortal().served() as address:
        server = HttpServer(Address.parse(address))
        server.ask([PLAIN])
        begin_case("second")
        with pytest.raises(ServerFault, match="V-HTTP-DOWN"):
            server.post(server.body(DEADLY))
        begin_case("third")
        with pytest.raises(VerispecError, match="down since second"):
            server.ask([PLAIN])


def test_the_first_request_of_a_run_can_be_the_last_of_its_server() -> None:
    with Mortal().served() as address:
        server = HttpEngine(Address.parse(address)).server()
        begin_case("first")
        with pytest.raises(ServerFault, match="V-HTTP-DOWN"):
            server.ask([DEADLY])
        begin_case("second")
        with pytest.raises(VerispecError, match="down since first"):
            server.ask([PLAIN])


def test_a_status_500_of_one_body_is_that_of_the_body() -> None:
    own = Mortal()
    own.lost = 1
    with own.served() as address:
        server = HttpServer(Address.parse(address))
        server.ask([PLAIN])
        assert server.post(server.body(DEADLY))[0] == 500


def test_a_server_that_somebody_stopped_is_blamed_for_nothing() -> None:
    """No connection is accepted any more, and no answer was lost: neither this case nor a later one fails."""
    with OwnServer().served() as address:
        server = HttpServer(Address.parse(address))
        server.ask([PLAIN])
    begin_case("second")
    for _ in range(2):
        with pytest.raises(VerispecError, match="V-HTTP-CONNECT"):
            server.ask([PLAIN])
    begin_case("third")
    with pytest.raises(VerispecError, match="down since second"):
        server.ask([PLAIN])


def test_a_lost_answer_counts_more_than_a_refused_connection_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 clients at the moment of the end: some are in flight, others connect too late."""
    with Resets().served() as address:
        server = HttpServer(Address.parse(address))
        server.ask([PLAIN])
        own = server._one

        def late(request: GenerationRequest, *, stream: bool) -> Any:
            if request.max_tokens == 3:
                raise VerispecError("V-HTTP-CONNECT", "connection refused", hint="start it")
            return own(request, stream=stream)

        monkeypatch.setattr(server, "_one", late)
        with pytest.raises(ServerFault, match="V-HTTP-DOWN"):
            server.ask([GenerationRequest((5, 6, 7), max_tokens=3), DEADLY])


def test_an_answer_of_before_the_end_is_not_shared() -> None:
    """One thread asks a server that lives, and while it waits, the server ends under another thread's request."""
    asked, ended = threading.Event(), threading.Event()

    def answers() -> bool:
        was_alive = not ended.is_set()
        asked.set()
        if was_alive:
            assert ended.wait(10)
            time.sleep(0.05)  # the other thread's question begins before this answer
        return was_alive

    def lost() -> None:
        assert asked.wait(10)
        ended.set()
        raise ServerFault("V-HTTP-LOST", "reset")

    def refused() -> None:
        raise VerispecError("V-HTTP-CONNECT", "refused", hint="start it")

    line = Lifeline("here", answers)
    with ThreadPoolExecutor(2) as pool:
        beside, dying = pool.submit(line.guarded, refused), pool.submit(line.guarded, lost)
    assert "V-HTTP-CONNECT" in str(beside.exception())
    assert "V-HTTP-DOWN" in str(dying.exception())


def test_a_run_has_one_failing_case_and_the_others_are_undecided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every case after it had an error of its own: connection reset, or status 500."""
    run = tmp_path / "run.jsonl"
    cases = ("text:SRV-1:prompts=texts", "answers:SRV-6:sampling=greedy", "text:SRV-3:*", "load:SRV-12:body=no JSON")
    with Mortal().served() as address:
        code, out, _ = in_process(
            capsys, "run", "--engine", address, "--out", str(run), *(f"--only=e2e/served_{case}" for case in cases)
        )  # fmt: skip
    assert code == exits.BAD
    records = [json.loads(line) for line in run.read_text().splitlines()]
    outcomes = {line["id"]: line for line in records if line["type"] == "case"}
    failed = [case for case, line in outcomes.items() if line["outcome"] == "fail"]
    assert failed == ["e2e/served_answers:SRV-6:sampling=greedy"], outcomes
    after = list(outcomes)[list(outcomes).index(failed[0]) + 1 :]
    assert after
    assert {outcomes[case]["outcome"] for case in after} == {"error"}
    assert all(f"the server is down since {failed[0]}" in outcomes[case]["reason"] for case in after)
    assert "1 cause" in out
