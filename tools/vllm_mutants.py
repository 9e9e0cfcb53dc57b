"""Make faults in the C++ of a vLLM tree by machine, and test each with the cases that reach it.

    python tools/vllm_mutants.py vllm==0.32.0 build/vllm-mutants --sample 80 --seed 20261401 -n 2

``verispec mutants`` measures the suites on the kernels that they grew up with; this measures them on another engine's.
A copy of the tree gets all faults behind switches, and the engine ``vllm-cpu@FOLDER`` compiles and runs it. Cases that
the tree fails without a fault decide nothing, and an op that fails most of its cases is left out. FOLDER keeps the
copy, the reach of the cases and all results: a second call goes on where the first one ended. Prints the number of
mutants per fate, and those that no case caught.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verispec.engines.adapters.vllm.source import compile as compilation
from verispec.mutants import activation, layers, measured, operators_cpp, schemata
from verispec.mutants.campaign import LIMIT
from verispec.mutants.cpp_sites import Site
from verispec.mutants.model import Mutant, MutantResult, Verdict
from verispec.reference import contracts
from verispec.run.plan import SEED, suites_folder
from verispec.static.sources import open_tree

FOLDER = "VERISPEC_VLLM_MUTANTS"
"""Environment variable that tells the pytest process where the instrumented tree is."""
KEPT = ("vllm/", "csrc/cpu/", "setup.py")
"""Beginnings of the paths that the engine needs of a tree."""
FUNCTION = re.compile(r"^void (\w+?)(_kernel)?_impl\(", re.MULTILINE)
NAMES = {"expand": "expand_batch_to_tokens"}
"""Ops whose function has another name."""
SECONDS = 60.0
"""Processor seconds of a case without a fault: writes out of bounds may never end, as vLLM 0.32.0's with strides."""
HEAVY = "not rows_past_2_to_the_31 and not elements_past_2_to_the_31"
"""Choice of cases: without those that reserve more memory than a process may."""
REACH = "reach.jsonl"
"""File of the cases without a fault: their outcomes, their times and their reach."""
ROUNDS = 10
"""Builds at most; each leaves out the faults that did not compile in the one before."""
LAYOUT = re.compile(r"// A tensor read as if it were dense.*?(?=}  // namespace)", re.DOTALL)
"""Helpers of faults on the reference's own tensors, which other sources do not have."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the layer of C++ kernels be the instrumented tree's; this module is then a plugin of the testing process."""
    folder = Path(os.environ[FOLDER])
    layers.LAYERS["cpp"] = replace(layers.LAYERS["cpp"], engine=f"vllm-cpu@{folder}")
    activation.make = lambda *_: TreeActivation(folder)  # type: ignore[assignment]


class TreeActivation(activation.CppActivation):
    """Switches of the library that the engine compiled."""

    def __init__(self, folder: Path) -> None:
        built = json.loads((folder / "mutants.json").read_text())
        super().__init__(Path(built["library"]), built["count"])

    def prepare(self) -> None:
        """Load nothing: the engine loads the library, when it starts."""

    def cover(self) -> None:
        """Start to record which switches are reached."""
        self._switches = schemata.Switchboard(self._extension, self._count)
        super().cover()

    def activate(self, mutant: Mutant) -> None:
        """Select the mutant's switch and trigger."""
        self._switches = schemata.Switchboard(self._extension, self._count)
        super().activate(mutant)


def copy(source: str, folder: Path) -> None:
    """Write the files of a tree that the engine needs into `folder`."""
    for file in open_tree(source).files():
        if file.path.startswith(KEPT):
            path = folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.read())


def op_of(site: Site, functions: list[tuple[int, str]]) -> str:
    """Return the op in whose function a site is; empty for functions without a contract."""
    name = next((name for start, name in reversed(functions) if start <= site.start), "")
    name = NAMES.get(name, name)
    return name if name in contracts.names() else ""


def instrument(folder: Path) -> None:
    """Put all faults of the tree's C++ file behind switches, compile it, and list the faults in mutants.json."""
    path = folder / compilation.SOURCE
    source = path.read_bytes()
    functions = [(found.start(), found[1]) for found in FUNCTION.finditer(source.decode())]
    sites = [site for site in operators_cpp.sites(source) if op_of(site, functions)]
    count = schemata.number_alternatives({path.name: sites})
    prelude = LAYOUT.sub("", schemata.PRELUDE.replace("MUTANT_COUNT", str(count)))
    sources = {p.relative_to(folder).as_posix(): p.read_text() for p in path.parent.iterdir() if p.is_file()}
    dropped: set[int] = set()
    for _ in range(ROUNDS):
        text = prelude + schemata.rewrite(source, sites, dropped)[0]
        library, command = compilation.prepare({**sources, compilation.SOURCE: text}, f"vllm-cpu@{folder}")
        command += ["-fmax-errors=0", "-o", library.name]
        done = subprocess.run(command, cwd=library.parent, capture_output=True, text=True, check=False)
        if not done.returncode:
            break
        places = [(n, re.findall(r"verispec_mutants::on\((\d+),", line)) for n, line in enumerate(text.splitlines(), 1)]
        lines = {n: [int(switch) for switch in switches] for n, switches in places if switches}
        wrong = schemata.blamed(done.stderr, {path.name: lines}) - dropped
        if not wrong:
            raise SystemExit(f"{path} does not compile with its faults:\n{done.stderr[:3000]}")
        dropped |= wrong
    else:
        raise SystemExit(f"{path} still has faults that do not compile after {ROUNDS} builds")
    listed = [
        replace(mutant, trigger=trigger).to_json()
        for site in sites
        for mutant in schemata.mutants_of(path, [site], (op_of(site, functions),), dropped)
        for trigger in schemata.triggers_of(mutant)
    ]
    path.write_text(text)
    (folder / "mutants.json").write_text(json.dumps({"library": str(library), "count": count, "mutants": listed}))


def run(folder: Path, mutants: list[Mutant], out: Path, processes: int) -> None:
    """Test `mutants` in one pytest process, or measure the cases without any if there are none."""
    built = json.loads((folder / "mutants.json").read_text())
    ops = sorted({op for mutant in built["mutants"] for op in mutant["ops"]})
    job = folder / "job.json"
    data: dict[str, Any] = {"layer": "cpp", "out": str(out), "processes": processes, "baseline": str(folder / REACH)}
    data |= {"mutants": [m.to_json() for m in mutants], "measuring": not mutants, "per_clause": 0, "slowest": SECONDS}
    data |= {"extension": built["library"], "count": built["count"], "limit": LIMIT, "device": "", "kills_alone": False}
    job.write_text(json.dumps(data))
    root = suites_folder()
    command = [sys.executable, "-P", "-m", "pytest", "-p", Path(__file__).stem, "-p", "verispec.mutants.plugin"]
    command += [f"--mutation-job={job}", "-c", str(root / "pytest.ini"), f"--rootdir={root}", "--assert=plain", "-q"]
    command += ["-p", "no:faulthandler", "-p", "no:cacheprovider", "--capture=no", "-k", HEAVY]
    command += [f"--engine=vllm-cpu@{folder}", f"--seed={SEED}", *(f"--only=sampler/{op}:*" for op in ops)]
    command += [str(root / "sampler" / f"test_{op}.py") for op in ops]
    command += map(str, (root / "sampler").glob("test_every_op*.py"))
    around = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "OMP_"))}
    around |= {FOLDER: str(folder), "PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    around |= {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive", "OMP_DYNAMIC": "false"}
    subprocess.run(command, env=around, check=True)


def main() -> None:
    """Parse the command line, test the sample and print the fates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="folder, archive, or vllm==VERSION")
    parser.add_argument("folder", type=Path, help="where the copy and the results are kept")
    parser.add_argument("--sample", type=int, default=80, help="mutants to draw")
    parser.add_argument("--seed", default="1", help="seed of the sample")
    parser.add_argument("-n", type=int, default=2, help="processes")
    given = parser.parse_args()
    folder = given.folder.resolve()
    if not (folder / "mutants.json").exists():
        copy(given.source, folder)
        instrument(folder)
    run(folder, [], folder / REACH, given.n)
    cases = measured.read(folder / REACH).items()
    outcomes = {
        op: Counter(r["outcome"] for case, r in cases if measured.subject(case) == op) for op in contracts.names()
    }
    decided = {op for op, found in outcomes.items() if found["pass"] > found["fail"]}
    listed = [Mutant.from_json(m) for m in json.loads((folder / "mutants.json").read_text())["mutants"]]
    drawn = random.Random(given.seed).sample([m for m in listed if decided.issuperset(m.ops)], given.sample)
    out = folder / f"results-{given.seed}.jsonl"
    known = {result.mutant.id for result in results_of(out)}
    if left := [mutant for mutant in drawn if mutant.id not in known]:
        run(folder, left, out, given.n)
    ended = results_of(out)
    print(json.dumps(Counter(result.verdict for result in ended)))
    for result in ended:
        if result.verdict in (Verdict.SURVIVED, Verdict.CRASHED, Verdict.NOT_REACHED):
            print(f"{result.verdict}: {result.mutant.id}")


def results_of(path: Path) -> list[MutantResult]:
    """Return the results that a file holds."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [MutantResult.from_json(json.loads(line)) for line in lines]


if __name__ == "__main__":
    main()
