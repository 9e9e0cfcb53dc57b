"""Small git repositories, made by tests and for tests: no configuration of the person who runs them is read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class ToyRepository:
    """A repository at `folder`; every commit is made at a fixed time that moves by one minute."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.minutes = 0
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")
        self.git("config", "commit.gpgsign", "false")

    def git(self, *arguments: str, data: bytes | None = None) -> str:
        moment = f"{1_700_000_000 + 60 * self.minutes} +0000"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
        for who in ("AUTHOR", "COMMITTER"):
            environment |= {f"GIT_{who}_NAME": "Ada", f"GIT_{who}_EMAIL": "ada@example.org", f"GIT_{who}_DATE": moment}
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, env=environment, input=data, capture_output=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.decode()}")
        return done.stdout.decode().strip()

    def commit(self, files: Mapping[str, str | bytes | None], subject: str = "change") -> str:
        """Write `files` (None removes one) and commit everything; returns the commit's full name."""
        self.minutes += 1
        for name, content in files.items():
            path = self.folder / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def merge(self, branch: str, subject: str = "merge") -> str:
        self.minutes += 1
        self.git("merge", "-q", "--no-ff", "-m", subject, branch)
        return self.git("rev-parse", "HEAD")

    def graph(self, parents: Sequence[Sequence[int]], files: Sequence[Mapping[str, str]] = ()) -> list[str]:
        """Import one commit for every entry of `parents` (indexes of earlier ones) at once; returns their full names.

        `files` are what each commit changes; a commit without an entry changes nothing.
        """
        stream: list[str] = []
        for number, origins in enumerate(parents):
            subject = f"commit {number}"
            when = 1_700_000_000 + 60 * number
            stream += [f"commit refs/heads/graph{number}", f"mark :{number + 1}"]
            stream += [f"committer Ada <ada@example.org> {when} +0000", f"data {len(subject)}", subject]
            stream += [f"{'merge' if place else 'from'} :{origin + 1}" for place, origin in enumerate(origins)]
            for path, content in files[number].items() if number < len(files) else ():
                stream += [f"M 100644 inline {path}", f"data {len(content.encode())}", content]
            stream.append("")
        self.git("fast-import", "--quiet", "--export-marks=.git/marks", data="\n".join(stream).encode())
        marks = dict(line.split() for line in (self.folder / ".git" / "marks").read_text().splitlines())
        return [marks[f":{number + 1}"] for number in range(len(parents))]
