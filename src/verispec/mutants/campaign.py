"""A campaign: sample mutants of a layer, test them in a pytest process, write JSON lines that can be resumed."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from verispec import exits
from verispec.cache_folder import cache_dir
from verispec.errors import VerispecError
from verispec.mutants import measured, progress, schemata
from verispec.mutants.layers import Layer, measured_together, python_mutants
from verispec.mutants.model import ALWAYS, Mutant
from verispec.reference import contracts
from verispec.run.plan import SEED, suites_folder
from verispec.run.process_tree import die_with_parent

LIMIT = 90.0
"""Processor seconds of cases that one mutant may cost before it counts as a survivor."""
SLOWEST = 30.0
"""Processor seconds of a case without a mutant, past which it is omitted.

Cases that killed 230 mutants took up to 15, and one of 600 would hold up a measurement for ten minutes.
"""
QUICK_CASES, QUICK = 4, 3.0
"""Cases of each clause, and processor seconds of each of them, for all rounds but the last.

They kill nine mutants of ten. The last round measures the other cases, for the ops of those that are left alone.
"""
MOST_FAILING = 0.02
"""Share of the cases that may fail without a mutant. With more the engine is broken, or lacks what most cases need."""


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """Selection of the mutants to test.

    Attributes:
        layer: layer of the reference engine.
        sample: number of mutants; 0 takes all.
        seed: seed of the sample.
        op: stem of a source file, whose mutants meet the cases of the ops that use it; empty takes all files.
        processes: number of processes; 0 is one per CPU.
        limit: processor seconds of cases per mutant.
        triggers: False drops mutants that act only under a condition.
        device: one of the layer's; "cuda" is a GPU, and empty the CPU, where Triton's kernels run in the interpreter.
        run_seed: seed of the suites.
        chosen: ids of the mutants to test instead of a sample.
    """

    layer: Layer
    sample: int = 0
    seed: int = 1
    op: str = ""
    processes: int = 0
    limit: float = LIMIT
    triggers: bool = True
    device: str = ""
    run_seed: int = SEED
    per_clause: int = 0
    """Cases of each clause that are used at most; 0 uses all."""
    slowest: float = SLOWEST
    """Processor seconds; a case that uses more without a mutant is omitted."""
    chosen: frozenset[str] = frozenset()

    @property
    def jobs(self) -> int:
        """Number of processes."""
        return self.processes or os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Round:
    """A pass through the mutants that no case has failed before.

    Attributes:
        number: number of the round, from 0.
        own_clauses: True leaves out the clauses of every op.
        per_clause: cases of each clause that are used at most; 0 uses all.
        slowest: processor seconds of the slowest case that is used.
        is_last: True if what no case fails is a survivor.
    """

    number: int
    own_clauses: bool
    per_clause: int
    slowest: float
    is_last: bool


@dataclass(slots=True)
class Campaign:
    """The mutants of a plan, and the extension that holds those of C++ kernels."""

    plan: CampaignPlan
    total: int
    """Mutants of the layer, before sampling."""
    mutants: list[Mutant]
    extension: Path | None = None
    count: int = 0


def prepare(plan: CampaignPlan) -> Campaign:
    """List, and for C++ build, the mutants; then draw the sample.

    Raises:
        VerispecError: V-MUT-SOURCE without the kernels' sources, V-MUT-OP for an op without mutants, V-MUT-CHOSEN if no
            chosen one is among the mutants of these sources.
    """
    extension, count = None, 0
    if plan.layer.is_cpp:
        root = _source_root(plan.layer)
        names = plan.layer.files or [path.name for path in (root / "csrc").iterdir()]
        _require_file(plan, sorted({Path(name).stem for name in names if name.endswith((".cpp", ".h"))}))
        built = schemata.build(plan.layer, root / "csrc", root.parent / "CMakeLists.txt", cache_dir() / "mutants")
        extension, count = built.extension, built.count
        mutants = [replace(m, trigger=t) for m in built.mutants for t in schemata.triggers_of(m)]
    else:
        mutants = python_mutants(plan.layer)
    if plan.op:
        stems = sorted({Path(m.file).stem for m in mutants})
        mutants = [m for m in mutants if Path(m.file).stem == plan.op]
        if not mutants:
            raise _no_mutants(plan, stems)
    if not plan.triggers or plan.device:  # a compiled kernel cannot ask the host whether a fault acts
        mutants = [m for m in mutants if m.trigger == ALWAYS]
    drawn = [m for m in mutants if m.id in plan.chosen] if plan.chosen else _sampled(mutants, plan)
    if plan.chosen and not drawn:
        raise VerispecError(
            "V-MUT-CHOSEN", f"none of the {len(plan.chosen)} mutants is one of these sources", where="--survivors",
            cause=f"the first is {min(plan.chosen)}", hint="lines have moved, or the layer is another: draw a sample",
        )  # fmt: skip
    return Campaign(plan, len(mutants), drawn, extension, count)


def _require_file(plan: CampaignPlan, stems: Sequence[str]) -> None:
    """Raise VerispecError V-MUT-OP if no source file is named `plan.op`, before minutes are spent on a build."""
    if plan.op and plan.op not in stems:
        raise _no_mutants(plan, stems)


def _no_mutants(plan: CampaignPlan, stems: Sequence[str]) -> VerispecError:
    near = difflib.get_close_matches(plan.op, stems, n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"source files are {', '.join(sorted(stems))}"
    return VerispecError(
        "V-MUT-OP", f"the layer {plan.layer.name} has no mutants of {plan.op!r}", where="--op", hint=hint
    )


def _sampled(mutants: list[Mutant], plan: CampaignPlan) -> list[Mutant]:
    """Draw the sample, in random order: two thirds from all mutants, one third evenly over all kinds of faults."""
    rng = random.Random(f"{plan.layer.name}/{plan.seed}")
    if not plan.sample or plan.sample >= len(mutants):
        return mutants
    groups: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in mutants:
        groups.setdefault((mutant.file, mutant.operator), []).append(mutant)
    shuffled = [rng.sample(group, len(group)) for group in groups.values()]
    rng.shuffle(shuffled)
    drawn: list[Mutant] = []
    # Two of three from the whole, so that the score is that of a fault drawn at random; the rest over all kinds.
    drawn += rng.sample(mutants, 2 * plan.sample // 3)
    taken = set(drawn)
    while len(drawn) < plan.sample:
        for group in shuffled:
            while group and group[-1] in taken:
                group.pop()
            if group and len(drawn) < plan.sample:
                taken.add(group[-1])
                drawn.append(group.pop())
    return drawn


def _source_root(layer: Layer) -> Path:
    root = layer.folder
    if not (root / "csrc").is_dir() or not (root.parent / "CMakeLists.txt").is_file():
        raise VerispecError(
            "V-MUT-SOURCE", "the sources of the C++ kernels are not installed", where=f"--of {layer.name}",
            cause=f"no csrc/ in {root}", hint="install the project from its checkout: pip install -e .",
        )  # fmt: skip
    return root


def rounds(plan: CampaignPlan) -> tuple[Round, ...]:
    """Return the rounds of a campaign, each of which meets what the rounds before it left.

    The clauses of every op cost most, above all in Triton's interpreter, so that those of the mutated op come first.
    A few quick cases of each clause come before all others. Chosen mutants have met these.
    """
    few = min(plan.per_clause or QUICK_CASES, QUICK_CASES)
    quick = (few, min(plan.slowest, QUICK))
    full = (plan.per_clause, plan.slowest)
    own = [True, False] if plan.layer.op_files else [False]
    passes = [(own_clauses, *(full if plan.chosen else quick)) for own_clauses in own]
    if passes[-1] != (False, *full):
        passes.append((False, *full))
    return tuple(Round(number, *limits, number == len(passes) - 1) for number, limits in enumerate(passes))


def judge(campaign: Campaign, out: Path, round_: Round, done: Collection[str] = ()) -> list[str]:
    """Test the mutants whose ids are not in `done`, and append each result to `out` at once.

    Unless `round_` is the last, the result of a mutant that no case fails is open.

    Returns:
        The cases that were left out, because they fail without a mutant.

    Raises:
        VerispecError: V-MUT-BASELINE, many cases fail without a mutant; V-MUT-RUN, the testing process ended early;
            V-MUT-NO-DEVICE, this machine lacks the device of the plan.
    """
    _require_device(campaign.plan)
    left = [m for m in campaign.mutants if m.id not in done]
    if not left:
        return []
    baseline = _baseline(campaign)
    _pytest(campaign, left, baseline, baseline, round_, measuring=True)
    failing = _few_failing(measured.read(baseline))
    _pytest(campaign, left, out, baseline, round_)
    return failing


def _require_device(plan: CampaignPlan) -> None:
    if not plan.device:
        return
    import torch

    if not torch.cuda.is_available():
        raise VerispecError(
            "V-MUT-NO-DEVICE", f"this machine has no device {plan.device!r} that torch {torch.__version__} can use",
            where=f"--of {plan.layer.name}", hint="run it on a machine with a GPU: docs/how-to/test-on-a-gpu.md",
            exit_code=exits.CANNOT_TELL,
        )  # fmt: skip


def _baseline(campaign: Campaign) -> Path:
    """Return the file for times and reach of cases without a mutant, one for each state of the sources."""
    layer = campaign.plan.layer
    together = measured_together(layer)
    name = together[0].name
    digest = hashlib.sha256(f"{name} {campaign.plan.run_seed} {campaign.plan.op} {campaign.plan.device}".encode())
    roots = [*(part.folder for part in together), _package("mutants")]
    roots += [layer.root / tests for tests in layer.tests] or [suites_folder(), _package("cases"), _package("judge")]
    for root in roots:
        for path in sorted(p for p in (root, *root.rglob("*")) if p.suffix in (".py", ".cpp", ".h")):
            digest.update(path.read_bytes())
    if campaign.extension is not None:
        digest.update(str(campaign.extension).encode())
    path = cache_dir() / "mutants" / f"baseline-{name}-{digest.hexdigest()[:16]}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _few_failing(known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    failing = measured.failing(known)
    if len(failing) > MOST_FAILING * len(known):
        raise VerispecError(
            "V-MUT-BASELINE", f"{len(failing)} of {len(known)} cases fail without a mutant", where=failing[0],
            cause=str(known[failing[0]].get("reason", "")),
            hint=f"fix these cases first: up to {MOST_FAILING:.0%} of the cases are left out",
            exit_code=exits.CANNOT_TELL,
        )  # fmt: skip
    return failing


def _package(name: str) -> Path:
    spec = find_spec(f"verispec.{name}")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _pytest(
    campaign: Campaign,
    mutants: Sequence[Mutant],
    out: Path,
    baseline: Path,
    round_: Round,
    *,
    measuring: bool = False,
) -> None:
    """Run one pytest process that tests `mutants`, or that completes the baseline of the cases that they meet."""
    plan, layer = campaign.plan, campaign.plan.layer
    with tempfile.TemporaryDirectory(prefix="verispec-mutants-") as name:
        job = Path(name) / "job.json"
        data: dict[str, Any] = {
            "layer": layer.name,
            "out": str(out),
            "processes": plan.jobs,
            "mutants": [m.to_json() for m in mutants],
            "baseline": str(baseline),
            "measuring": measuring,
            "round": round_.number,
            "is_last": round_.is_last,
            "per_clause": round_.per_clause,
            "slowest": round_.slowest,
            "extension": str(campaign.extension or ""),
            "count": campaign.count,
            "limit": plan.limit,
            "device": plan.device,
        }
        job.write_text(json.dumps(data))
        log = Path(name) / "log"
        with log.open("wb") as stream:
            command = command_of(plan, job, mutants, own_clauses=round_.own_clauses)
            before = len(progress.records_of(out))
            process = subprocess.Popen(
                command, env=_environment(plan), stdin=subprocess.DEVNULL, stdout=stream,
                stderr=subprocess.STDOUT, cwd=layer.folder if layer.tests else None,
                preexec_fn=die_with_parent,  # noqa: PLW1509 -- this process has one thread
            )  # fmt: skip
            with process:
                try:
                    code = progress.wait(process, out, 0 if measuring else len(mutants), before)
                except BaseException:
                    process.kill()
                    raise
        if code not in (0, 5) or not out.exists():
            raise VerispecError(
                "V-MUT-RUN", "the process that tests mutants ended early", where=f"--of {layer.name}",
                cause=log.read_text(errors="replace")[-2000:],
                hint="results so far are kept; repeat the command to go on", exit_code=exits.CANNOT_TELL,
            )  # fmt: skip


def command_of(plan: CampaignPlan, job: Path, mutants: Sequence[Mutant], *, own_clauses: bool) -> list[str]:
    """Return the command of the testing process. `mutants` of files with ops meet the cases of these ops."""
    layer = plan.layer
    command = [sys.executable, "-P", "-m", "pytest", "-p", "verispec.mutants.plugin", f"--mutation-job={job}"]
    command += ["--assert=plain", "-p", "no:faulthandler", "-p", "no:cacheprovider", "-q"]
    if layer.tests:
        root = layer.root
        return [
            *command,
            "-c",
            str(root / "pyproject.toml"),
            f"--rootdir={root}",
            *(str(root / t) for t in layer.tests),
        ]
    root = suites_folder()
    paths = [root / suite for suite in layer.suites]
    command += ["-c", str(root / "pytest.ini"), f"--rootdir={root}", "--capture=no"]
    if layer.op_files:  # end-to-end samplers and generation test other layers
        users = {op for mutant in mutants for op in mutant.ops}
        ops = [op for op in contracts.names() if op in users] or contracts.names()
        tests = [root / suite / f"test_{op}.py" for suite in layer.suites for op in ops]
        paths = [test for test in tests if test.exists() and test.stem != "test_whole_sampler"]
        command += [f"--only={path.parent.name}/{path.stem.removeprefix('test_')}:*" for path in paths]
        if not own_clauses:
            paths += [test for suite in layer.suites for test in (root / suite).glob("test_every_op*.py")]
    if plan.device:
        command.append(f"--device={plan.device}")
    return [*command, f"--engine={layer.engine}", f"--seed={plan.run_seed}", *map(str, paths)]


def _environment(plan: CampaignPlan) -> dict[str, str]:
    added = {k: v for k, v in plan.layer.environment.items() if not (plan.device and k == "TRITON_INTERPRET")}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "OMP_"))}
    return {
        **kept,
        **added,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "OMP_WAIT_POLICY": "passive",
        "OMP_DYNAMIC": "false",
        "TOKENIZERS_PARALLELISM": "false",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(cache_dir() / "hypothesis"),
    }
