"""Small git repositories, made by tests and for tests: no configuration of the person who runs them is read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
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
