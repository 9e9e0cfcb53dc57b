"""A long git history of releases: one commit each, with unrelated commits, branches, merges and renames in between."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from verispec.static.sources import open_tree


@dataclass
class _Stream:
    """A ``git fast-import`` stream. `marks` names sent contents, `head` is the latest commit."""

    pipe: subprocess.Popen[bytes]
    blobs: dict[bytes, int] = field(default_factory=dict)
    mark: int = 0
    number: int = 0

    def send(self, text: str | bytes) -> None:
        assert self.pipe.stdin is not None
        self.pipe.stdin.write(text.encode() if isinstance(text, str) else text)

    def blob(self, content: bytes) -> int:
        if content not in self.blobs:
            self.mark += 1
            self.blobs[content] = self.mark
            self.send(f"blob\nmark :{self.mark}\ndata {len(content)}\n")
            self.send(content + b"\n")
        return self.blobs[content]

    def commit(self, subject: str, changes: Sequence[str], parents: Sequence[int]) -> int:
        """Send a commit and return its mark; `changes` are lines of the stream."""
        self.mark += 1
        self.number += 1
        when = 1_700_000_000 + 600 * self.number
        lines = ["commit refs/heads/main", f"mark :{self.mark}", f"committer Ada <ada@example.org> {when} +0000"]
        lines += [f"data {len(subject.encode())}", subject]
        lines += [f"{'merge' if place else 'from'} :{parent}" for place, parent in enumerate(parents)]
        self.send("\n".join([*lines, *changes, "", ""]))
        return self.mark


def build(folder: Path, releases: Sequence[str], commits: int, seed: int = 7) -> dict[str, str]:
    """Create a repository of `commits` commits at `folder` and return the full hash of each release's commit.

    Unrelated commits append a comment to up to five files. Every fiftieth starts a branch of five commits that is
    merged back, and every hundredth renames a test.
    """
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    command = ["git", "-C", str(folder), "fast-import", "--quiet", "--export-marks=.git/marks", "--force"]
    chance = random.Random(seed)
    between = (commits - len(releases)) // max(1, len(releases) - 1)
    found: dict[str, int] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE) as pipe:
        stream = _Stream(pipe)
        tip: list[int] = []
        for position, release in enumerate(releases):
            files = {file.path: file.read() for file in open_tree(release).files()}
            changes = ["deleteall", *(f"M 100644 :{stream.blob(data)} {path}" for path, data in files.items())]
            tip = [found.setdefault(release, stream.commit(release, changes, tip))]
            last = position == len(releases) - 1
            for number in range(commits - stream.number if last else between):
                if number % 50 == 40:
                    side = tip[0]
                    for _ in range(5):
                        side = stream.commit("work on a branch", _edits(stream, files, chance), [side])
                    tip = [stream.commit("merge a branch", _edits(stream, files, chance), [tip[0], side])]
                elif number % 100 == 60:
                    tip = [stream.commit("move a test", _move(files, chance), tip)]
                elif not 40 < number % 50 < 46:  # as many commits as the branch has
                    tip = [stream.commit("unrelated work", _edits(stream, files, chance), tip)]
        assert pipe.stdin is not None
        pipe.stdin.close()
    if pipe.returncode:
        raise RuntimeError("git fast-import failed")
    names = dict(line.split() for line in (folder / ".git" / "marks").read_text().splitlines())
    return {release: names[f":{mark}"] for release, mark in found.items()}


def _edits(stream: _Stream, files: dict[str, bytes], chance: random.Random) -> list[str]:
    changes = []
    for path in chance.sample([path for path in files if path.endswith(".py")], chance.randint(1, 5)):
        files[path] += b"# %d\n" % chance.randrange(10**9)
        changes.append(f"M 100644 :{stream.blob(files[path])} {path}")
    return changes


def _move(files: dict[str, bytes], chance: random.Random) -> list[str]:
    old = chance.choice([path for path in files if path.startswith("tests/") and path.endswith(".py")])
    new = old.removesuffix(".py") + "_moved.py"
    files[new] = files.pop(old)
    return [f"R {old} {new}"]
