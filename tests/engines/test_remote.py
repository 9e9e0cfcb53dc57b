"""Objects and ops in another process: answers, exceptions, deaths, and memory that comes back as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import forkserver, popen_forkserver
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from verispec.engines import Unsupported, UnsupportedCall
from verispec.engines.process.proxy import Remote, RemoteDied, RemoteError
from verispec.engines.process.subprocess_ops import Child, TensorPayload
from verispec.errors import VerispecError
from verispec.judge._traceback import engine_traceback

KINDS = {"of its own": {"environment": {"TOLD": "yes"}}, "forked": {"preload": "remote_preload"}}


@pytest.fixture(autouse=True)
def fork_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fork from a server of the test: one that runs already, for a test before, imports nothing more."""
    server = forkserver.ForkServer()
    monkeypatch.setattr(forkserver, "set_forkserver_preload", server.set_forkserver_preload)
    own = SimpleNamespace(connect_to_new_process=server.connect_to_new_process, read_signed=forkserver.read_signed)
    monkeypatch.setattr(popen_forkserver, "forkserver", own)
    yield
    if (alive := vars(server)["_forkserver_alive_fd"]) is not None:
        os.close(alive)  # the server ends after its last child


@pytest.fixture(params=KINDS)
def remote(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    """In a process of its own, or in one that is forked from a process that has imported a module."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    made = Remote("remote_subject:Subject", 10, **KINDS[request.param])
    yield made
    made.close()


def test_state_lives_over_there(remote: Remote) -> None:
    assert remote.call("add", 1) == 11
    assert remote.call("add", 1) == 12
    assert remote.call("environment", "TOLD") == "yes"


@pytest.mark.parametrize("remote", ["of its own"], indirect=True)
def test_what_it_prints_does_not_reach_our_stdout(remote: Remote, capfd: pytest.CaptureFixture[str]) -> None:
    assert remote.call("chatter") == "answer"
    remote.close()
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "noise" in captured.err


def test_exceptions_come_through_whole(remote: Remote) -> None:
    with pytest.raises(UnsupportedCall) as gap:
        remote.call("raise_unsupported")
    assert gap.value.reason == "not here"
    with pytest.raises(VerispecError) as error:
        remote.call("raise_user_error")
    assert error.value.exit_code == 7
    assert error.value.diagnostic.hint == "do so"
    with pytest.raises(RemoteError, match="Odd: strange"):
        remote.call("raise_odd")
    with pytest.raises(RemoteError, match=r"^Lossy: code 5\n"):
        remote.call("raise_lossy")


@pytest.mark.parametrize("method", ["raise_unsupported", "raise_odd"])
def test_exceptions_bring_the_frames_of_the_other_side(remote: Remote, method: str) -> None:
    with pytest.raises((UnsupportedCall, RemoteError)) as caught:
        remote.call(method)
    text = engine_traceback(caught.value)

    assert f"in {method}\n" in text.partition("in the process of the engine:\n")[2]
    assert "in _serve" not in text
    assert str(Path(__file__).parent) not in text, "paths of the machine"


def test_forks_share_what_was_imported_once_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    first, second = (Remote("remote_subject:Subject", start, preload="remote_preload") for start in (1, 2))
    assert first.call("imported_by") == second.call("imported_by")
    assert first.call("pid") != second.call("pid")
    assert (first.call("add", 10), second.call("add", 10)) == (11, 12)
    first.close()
    assert second.call("add", 1) == 13
    second.close()


def test_an_engine_may_start_processes(remote: Remote) -> None:
    assert remote.call("children") == 0


def test_an_owner_that_leaves_its_fork_open_ends(tmp_path: Path) -> None:
    """A process waits for its children at its end, and nothing would tell this one to end."""
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from verispec.engines.process.proxy import Remote\n"
        "if __name__ == '__main__':\n"
        "    remote = Remote('remote_subject:Subject', 1, preload='remote_preload')\n"
        "    print(remote.call('add', 2))\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == "3\n"


def test_a_fork_ends_with_its_owner(tmp_path: Path) -> None:
    """Also while it is busy, and whatever ended the owner."""
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from verispec.engines.process.proxy import Remote\n"
        "if __name__ == '__main__':\n"
        "    remote = Remote('remote_subject:Subject', 1, preload='remote_preload')\n"
        "    print(remote.call('pid'), flush=True)\n"
        "    remote.call('sleep')\n"
    )
    owner = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        pid = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    for _ in range(1000):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the fork outlived its owner")


@pytest.mark.parametrize(("method", "how"), [("die", "signal SIGKILL"), ("leave", "exit code 3")])
def test_a_death_is_told_and_the_next_call_starts_anew(remote: Remote, method: str, how: str) -> None:
    remote.call("add", 5)
    with pytest.raises(RemoteDied, match=how):
        remote.call(method)
    assert remote.call("add", 1) == 11


def _travel(parcel: TensorPayload) -> TensorPayload:
    there = TensorPayload({})
    there.__setstate__(parcel.__getstate__())
    return there


def test_strides_gaps_and_aliases_survive_the_trip() -> None:
    memory = torch.arange(24, dtype=torch.float32)
    first, second = memory[2:20:3], memory[3:9]
    there = _travel(TensorPayload({"a": first, "b": second, "n": 7, "none": None}))
    arguments = there.arguments()
    assert arguments["a"].stride() == (3,)
    assert torch.equal(arguments["a"], first)
    assert (arguments["n"], arguments["none"]) == (7, None)
    arguments["b"][2] = -1.0  # element 5 of the memory, which is element 1 of the other view
    assert arguments["a"][1] == -1.0


def test_a_write_beside_a_tensor_comes_back() -> None:
    memory = torch.zeros(8)
    parcel = TensorPayload({"a": memory[2:4]})
    there = _travel(parcel)
    torch.as_strided(there.arguments()["a"], (8,), (1,), 0).fill_(5.0)
    parcel.take_back([storage.numpy().tobytes() for storage in there.storages])
    assert memory.tolist() == [5.0] * 8


def test_an_empty_tensor_travels() -> None:
    assert _travel(TensorPayload({"a": torch.empty(0, 3)})).arguments()["a"].shape == (0, 3)


def test_too_much_memory_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verispec.engines.process.subprocess_ops.LARGEST", 16)
    with pytest.raises(UnsupportedCall, match="too much for a child process"):
        TensorPayload({"a": torch.zeros(5)})


def test_an_op_returns_its_value() -> None:
    child = Child("reference", "cpu", {})
    op = child.op("acceptance_length_to_rates")
    assert not isinstance(op, Unsupported)
    assert op(length=2.5, n=3) == [1.0, 0.5, 0.0]
    with pytest.raises(ValueError, match=r"."):
        child.op("resolve_synthetic_acceptance_rates")(3)  # type: ignore[operator]
    child.close()
