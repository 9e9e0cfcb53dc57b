"""Lend the packages of the ``python3`` on PATH to the environment that runs this script.

    python tools/gpu/link_site_packages.py

A GPU machine holds torch and triton in an environment of its own, often one that no index could bring again.
``system_site_packages`` of a new environment sees only those of the Python below it. This names the folders of
the other one in a ``.pth`` file: they are searched after the new environment's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ASK = """
import json, site, sys, sysconfig
print(json.dumps([sys.version_info[:2], sysconfig.get_path("purelib"), *site.getsitepackages()]))
"""


def lender() -> str:
    """The first ``python3`` on PATH that is not this environment's own."""
    for folder in os.get_exec_path():
        python = Path(folder) / "python3"
        if os.access(python, os.X_OK) and not python.parent.samefile(Path(sys.executable).parent):
            return str(python)
    sys.exit("no python3 on PATH beside this environment's own; put the one that has torch and triton there")


def main() -> None:
    python = lender()
    version, *folders = json.loads(subprocess.run([python, "-c", ASK], check=True, capture_output=True).stdout)
    if tuple(version) != sys.version_info[:2]:
        sys.exit(
            f"{python} is Python {version[0]}.{version[1]} and this environment is {sys.version.split()[0]}: "
            "packages with compiled parts do not fit. Run tox with the Python that has torch and triton"
        )
    pth = Path(sysconfig.get_path("purelib")) / "borrowed.pth"
    pth.write_text("".join(f"{folder}\n" for folder in dict.fromkeys(folders)))
    print(f"{pth}: {', '.join(dict.fromkeys(folders))}")


if __name__ == "__main__":
    main()
