"""Costs of the static checker: one tree cold and warm, its memory, and a bisection over a long history.

    python benchmarks/signatures.py --markdown benchmarks/signatures.md

Trees are named as for ``verispec signatures``; releases come from the package index once and then from the cache.
Every measurement is a process of its own, so that it pays for its start. Times are the best of `--repeat`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from _history import build

from verispec.cache_folder import cache_dir
from verispec.static.sources import open_tree

TARGETS = {"cold": 4.0, "warm": 0.5, "memory": 500.0, "bisection": 15.0}
"""Seconds, and MB for the memory."""

BUSY = (
    "Other work shared the cores meanwhile, so the clock includes that work too. The time of the processors is the "
    "sum over both cores: the files of a cold tree are read by one process a core, everything else by one alone."
)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    words.add_argument("--tree", default="vllm==0.33.0", help="the tree to judge")
    words.add_argument("--folders", nargs="+", default=["vllm", "csrc"], help="the parts of it that are judged")
    words.add_argument(
        "--releases", nargs="+", default=[f"vllm=={v}" for v in ("0.19.1", "0.20.0", "0.20.1", "0.20.2")]
    )
    words.add_argument("--culprit", default="vllm==0.20.0", help="the release of the history that brought the fault")
    words.add_argument("--rule", default="SIG101")
    words.add_argument("--commits", type=int, default=1000)
    words.add_argument("--repeat", type=int, default=3)
    words.add_argument("--cores", type=int, default=2, help="how many processors may be used")
    words.add_argument("--markdown", type=Path, help="write the table to this file too")
    words.add_argument("--json", type=Path, help="write the numbers to this file too")
    chosen = words.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: chosen.cores])
    result = measure(chosen)
    table = render(result)
    print(table)
    print(json.dumps(result))
    if chosen.markdown:
        chosen.markdown.write_text(table + "\n")
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=2) + "\n")


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="verispec-") as place:
        folder = Path(place) / "tree"
        python_files, lines = unpack(chosen.tree, chosen.folders, folder)
        result: dict[str, Any] = {
            "tree": chosen.tree,
            "python_files": python_files,
            "lines": lines,
            "cores": len(os.sched_getaffinity(0)),
            "load": round(os.getloadavg()[0], 1),
            "python": platform.python_version(),
        }
        cold, warm, changed = [], [], []
        for number in range(chosen.repeat):
            cache = Path(place) / f"cache{number}"
            cold.append(seconds(cache, "signatures", str(folder)))
            # A file that changed a moment ago is read again for a while, and is known from then on.
            seconds(cache, "signatures", str(folder))
            warm.append(seconds(cache, "signatures", str(folder)))
            with max(folder.rglob("*.py"), key=lambda path: path.stat().st_size).open("a") as largest:
                largest.write(f"# changed {number}\n")
            changed.append(seconds(cache, "signatures", str(folder)))
        result |= {"cold": min(cold), "warm": min(warm), "changed": min(changed)}
        result["memory"] = peak(Path(place) / "memory", "signatures", str(folder))
        history = Path(place) / "history"
        names = build(history, chosen.releases, chosen.commits)
        command = ["bisect", "--repo", str(history), "--good", names[chosen.releases[0]], "--bad", "main"]
        command += ["--rule", chosen.rule, "--json"]
        started, used = time.perf_counter(), processor_time()
        found = json.loads(call(Path(place) / "bisection", *command))
        result["bisection"] = [round(time.perf_counter() - started, 2), round(processor_time() - used, 2)]
        result |= {"commits": found["total"] + 1, "judged": found["judged"]}
        result["right"] = found["first_bad"] is not None and found["first_bad"]["name"] == names[chosen.culprit]
        return result


def unpack(tree: str, folders: list[str], folder: Path) -> tuple[int, int]:
    """Write the source files of `tree` in `folders` below `folder`; returns how many are Python, and their lines."""
    files = lines = 0
    for file in open_tree(tree).files():
        if file.path.partition("/")[0] not in folders:
            continue
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        data = file.read()
        path.write_bytes(data)
        if path.suffix == ".py":
            files += 1
            lines += data.count(b"\n")
    return files, lines


def call(cache: Path, *words: str) -> str:
    """Run verispec with a cache of its own; returns what it prints."""
    environment = {**os.environ, "VERISPEC_CACHE_DIR": str(cache)}
    releases = cache / "releases"
    if not releases.exists():  # the caller's cache fetches releases once
        cache.mkdir(parents=True, exist_ok=True)
        releases.symlink_to(cache_dir() / "releases")
    done = subprocess.run(
        [sys.executable, "-m", "verispec", *words], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in {0, 1}:
        raise RuntimeError(done.stderr)
    return done.stdout


def seconds(cache: Path, *words: str) -> tuple[float, float]:
    """Time on the clock, and of all processors together, which other work on the machine lengthens less."""
    started, used = time.perf_counter(), processor_time()
    call(cache, *words)
    return round(time.perf_counter() - started, 2), round(processor_time() - used, 2)


def processor_time() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def peak(cache: Path, *words: str) -> float:
    """Return the peak memory of the process and its children in MB: shared pages are counted once."""
    highest = 0.0
    done = threading.Event()
    thread = threading.Thread(target=lambda: (call(cache, *words), done.set()))
    thread.start()
    while not done.wait(0.05):
        highest = max(highest, sum(map(proportional, children(os.getpid()))))
    thread.join()
    return round(highest)


def children(process: int) -> list[int]:
    """All descendants of `process`."""
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            for child in map(int, task.read_text().split()):
                found += [child, *children(child)]
        except OSError:  # it has ended meanwhile
            continue
    return found


def proportional(process: int) -> float:
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1000
    except (OSError, StopIteration):
        return 0.0


def render(result: dict[str, Any]) -> str:
    tree = f"{result['tree']}: {result['python_files']:,} Python files, {result['lines']:,} lines, and its C++ and CUDA"
    judged = f"{result['commits']:,} commits, {result['judged']} judged"
    right = "the right commit" if result["right"] else "THE WRONG COMMIT"
    rows = [
        ("cold: nothing cached", *result["cold"], TARGETS["cold"]),
        ("warm: nothing changed", *result["warm"], TARGETS["warm"]),
        ("warm: the largest file changed", *result["changed"], TARGETS["cold"]),
        (f"bisection, cold: {judged}, {right}", *result["bisection"], TARGETS["bisection"]),
    ]
    lines = [f"| {what} | {wall:.2f} s | {used:.2f} s | {wanted} s |" for what, wall, used, wanted in rows]
    lines.append(f"| memory, cold, all processes | {result['memory']:.0f} MB | | {TARGETS['memory']:.0f} MB |")
    head = [
        "# What the static gate costs",
        "",
        f"{tree}. {result['cores']} cores, Python {result['python']}, load average {result['load']} at the start.",
        "",
        *([BUSY, ""] if result["load"] > 1 else []),
        "| | on the clock | of the processors | wanted on the clock |",
        "| --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *lines])


if __name__ == "__main__":
    main()
