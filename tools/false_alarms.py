"""Run cases of a correct engine under many seeds, in forked processes that collected once, and print each alarm.

    python tools/false_alarms.py --seeds 0-199 --only "sampler/*:ANY-*" -n 16

`--statistical` chooses the cases of ``verispec certify``; everything else is as in a run. A seed's cases run in one
process; seeds are handed out among `-n` processes. Prints one JSON object per alarm, then the number of cases and
alarms. Ends with 1 after an alarm.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from verispec import pytest_plugin
from verispec.cli.certify import statistical_cases
from verispec.run.plan import suites_folder

GOOD = ("pass", "unsupported", "inconclusive")


class ManySeeds:
    """The pytest side: every item once per seed, instead of pytest's own loop."""

    def __init__(self, seeds: Sequence[int], processes: int, seconds: float) -> None:
        self._seeds, self._processes = seeds, processes
        self._until = time.monotonic() + seconds
        self.counts: Counter[str] = Counter()
        # Neither a CUDA context nor a child's pipe survives a fork: each process starts an engine of its own.
        self._start_engine = pytest_plugin._start_engine
        pytest_plugin._start_engine = lambda config: None

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Fork the processes and gather their results."""
        if not session.items:
            raise pytest.UsageError("no case matches --only")
        pipes = []
        for first in range(self._processes):
            reading, writing = os.pipe()
            if os.fork() == 0:
                os.close(reading)
                code = 1
                try:
                    self._run(session, self._seeds[first :: self._processes], writing)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            os.close(writing)
            pipes.append(reading)
        for reading in pipes:
            with os.fdopen(reading, encoding="utf-8") as lines:
                for line in lines:
                    self.counts += Counter(json.loads(line))
        for _ in pipes:
            if os.wait()[1]:
                self.counts["lost processes"] += 1
        return True

    def _run(self, session: pytest.Session, seeds: Sequence[int], pipe: int) -> None:
        config = session.config
        self._start_engine(config)
        config.pluginmanager.unregister(name="terminalreporter")
        for seed in seeds:
            config.option.seed = seed
            found: Counter[str] = Counter()
            for item, following in zip(session.items, [*session.items[1:], None], strict=True):
                if time.monotonic() > self._until:
                    break
                config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                record = item.stash[pytest_plugin.RECORD]
                found["cases"] += 1
                found[str(record["outcome"])] += 1
                if record["outcome"] not in GOOD:
                    print(json.dumps({"seed": seed, **record}, default=str)[:3000], flush=True)
                    found["alarms"] += 1
            found["seeds"] = int(found["cases"] == len(session.items))
            os.write(pipe, json.dumps(found).encode() + b"\n")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="reference")
    parser.add_argument("--device", default="", help="cpu or cuda; the engine's own choice if omitted")
    parser.add_argument("--suite", default="sampler", help="folder of suites, or a file in it")
    parser.add_argument("--only", action="append", default=[], help="case id, prefix or pattern")
    parser.add_argument("--statistical", action="store_true", help="cases of verispec certify, of all suites")
    parser.add_argument("--seeds", default="0-199", help="FIRST-LAST")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no case after this time")
    parser.add_argument("-n", type=int, default=1, help="processes")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    plugin = ManySeeds(range(int(first), int(last or first) + 1), given.n, given.seconds)
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
    only = [*given.only, *statistical_cases(given.engine) * given.statistical]
    suite = root if given.statistical else root / Path(given.suite)
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
