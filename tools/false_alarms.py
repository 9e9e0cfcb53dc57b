"""Run cases of a correct engine under many seeds, in forked processes that collected once, and print each alarm.

    python tools/false_alarms.py --seeds 0-199 --only "sampler/*:ANY-*" -n 16

`--statistical` chooses the cases of ``verispec certify``, `--others` all but these; everything else is as in a run. The
`-n` processes take one case after the other, seed by seed: few seeds are incomplete when the time is over. A case that
draws nothing from its seed runs under the first one alone, since only the contents of unwritten memory would differ.
Prints one JSON object per alarm, then the number of cases, alarms and whole seeds. Ends with 1 after an alarm.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from verispec import pytest_plugin
from verispec.cases import selects
from verispec.cli.certify import statistical_cases
from verispec.run.items import CASE
from verispec.run.plan import suites_folder

GOOD = ("pass", "unsupported", "inconclusive")


class ManySeeds:
    """The pytest side: every item once per seed, instead of pytest's own loop."""

    def __init__(self, seeds: Sequence[int], processes: int, seconds: float, without: Sequence[str]) -> None:
        self._seeds, self._processes, self._without = seeds, processes, without
        self._until = time.monotonic() + seconds
        self._taken = multiprocessing.get_context("fork").Value("q", 0)
        self.counts: Counter[str] = Counter()
        self._runs: list[tuple[int, pytest.Item]] = []
        # Neither a CUDA context nor a child's pipe survives a fork: each process starts an engine of its own.
        self._start_engine = pytest_plugin._start_engine
        pytest_plugin._start_engine = lambda config: None

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Fork the processes and gather their results."""
        session.items[:] = [
            item for item in session.items if not any(selects(each, str(item.stash[CASE])) for each in self._without)
        ]
        if not session.items:
            raise pytest.UsageError("no case matches --only")
        self._runs = _runs_of(self._seeds, session.items)
        reading, writing = os.pipe()
        for _ in range(self._processes):
            if os.fork() == 0:
                os.close(reading)
                code = 1
                try:
                    self._run(session, writing)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
        os.close(writing)
        cases: Counter[int] = Counter()
        with os.fdopen(reading, encoding="utf-8") as lines:
            for line in lines:
                seed, outcome = json.loads(line)
                cases[seed] += 1
                self.counts += Counter({"cases": 1, outcome: 1, "alarms": int(outcome not in GOOD)})
        self.counts["seeds"] = sum(cases[seed] == count for seed, count in Counter(s for s, _ in self._runs).items())
        for _ in range(self._processes):
            if os.wait()[1]:
                self.counts["lost processes"] += 1
        return True

    def _run(self, session: pytest.Session, pipe: int) -> None:
        config = session.config
        self._start_engine(config)
        config.pluginmanager.unregister(name="terminalreporter")
        following = self._take()
        while following and time.monotonic() < self._until:
            (seed, item), following = following, self._take()
            config.option.seed = seed
            # pytest keeps what the next item shares with this one; an item that follows itself must begin anew.
            after = following[1] if following and following[1] is not item else None
            config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            record = item.stash[pytest_plugin.RECORD]
            if record["outcome"] not in GOOD:
                print(json.dumps({"seed": seed, **record}, default=str)[:3000], flush=True)
            # Shorter than PIPE_BUF: lines of several processes do not mix.
            os.write(pipe, json.dumps([seed, str(record["outcome"])]).encode() + b"\n")

    def _take(self) -> tuple[int, pytest.Item] | None:
        with self._taken.get_lock():
            number = self._taken.value
            self._taken.value += 1
        return self._runs[number] if number < len(self._runs) else None


def _runs_of(seeds: Sequence[int], items: Sequence[pytest.Item]) -> list[tuple[int, pytest.Item]]:
    seeded = [item for item in items if "seed" in getattr(item, "fixturenames", ())]
    return [(seeds[0], item) for item in items] + [(seed, item) for seed in seeds[1:] for item in seeded]


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="reference")
    parser.add_argument("--device", default="", help="cpu or cuda; the engine's own choice if omitted")
    parser.add_argument("--suite", default="sampler", help="folder of suites, or a file in it")
    parser.add_argument("--only", action="append", default=[], help="case id, prefix or pattern")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--statistical", action="store_true", help="cases of verispec certify, of all suites")
    which.add_argument("--others", action="store_true", help="all other cases, of all suites")
    parser.add_argument("--seeds", default="0-199", help="FIRST-LAST")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no case after this time")
    parser.add_argument("-n", type=int, default=1, help="processes")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    statistical = statistical_cases(given.engine)
    seeds = range(int(first), int(last or first) + 1)
    plugin = ManySeeds(seeds, given.n, given.seconds, without=statistical * given.others)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    root = suites_folder()
    options = [
        "-c",
        str(root / "pytest.ini"),
        f"--rootdir={root}",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:warnings",
        "--capture=no",
    ]
    only = [*given.only, *statistical * given.statistical]
    suite = root if given.statistical or given.others else root / Path(given.suite)
    options += [
        f"--engine={given.engine}",
        *[f"--device={given.device}"] * bool(given.device),
        *(f"--only={pattern}" for pattern in only),
    ]
    code = pytest.main([*options, str(suite)], plugins=[plugin])
    print(json.dumps(dict(plugin.counts)))
    sys.exit(1 if plugin.counts["alarms"] or plugin.counts["lost processes"] or code else 0)


if __name__ == "__main__":
    main()
