"""Install verispec, and its missing requirements, into the tox environment that runs this script.

    python tools/gpu/install.py [--editable]

torch and triton are taken from the ``python3`` on PATH when they work on this GPU there, and from the package
index otherwise. Everything else comes from the index. ``VERISPEC_BUNDLE=FOLDER`` names the wheels that
`make_offline_bundle.py` gathered; then nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

PROJECT = Path(__file__).parents[2]
BUILD = ("scikit-build-core>=0.11", "nanobind>=2.7")
PROBE = """
import json, site, sys, sysconfig, torch, triton
assert torch.cuda.is_available(), "its torch cannot use the GPU"
torch.zeros(1, device="cuda")
print(json.dumps([sys.version_info[:2], torch.__version__, triton.__version__,
                  sysconfig.get_path("purelib"), *site.getsitepackages()]))
"""


def main() -> None:
    """Link or install torch and triton, then install the project with its extras."""
    found = lender()
    if found:
        link(found)
    else:
        pip("torch", "triton")
    pip(*BUILD)
    pip("--no-build-isolation", *["--editable"] * ("--editable" in sys.argv), f"{PROJECT}[judge,generate,triton]")


def lender() -> tuple[str, list[str]] | None:
    """Return the first other ``python3`` on PATH whose torch and triton work on this GPU, with its folders."""
    for folder in os.get_exec_path():
        python = Path(folder) / "python3"
        if not os.access(python, os.X_OK) or python.parent.samefile(Path(sys.executable).parent):
            continue
        probe = subprocess.run([python, "-c", PROBE], check=False, capture_output=True, text=True)
        if probe.returncode:
            continue
        version, torch, triton, *folders = json.loads(probe.stdout)
        if tuple(version) == sys.version_info[:2]:
            print(f"using torch {torch} and triton {triton} of {python}")
            return str(python), list(dict.fromkeys(folders))
        print(f"{python} is Python {version[0]}.{version[1]}, this environment {sys.version.split()[0]}: not used")
    return None


def link(found: tuple[str, list[str]]) -> None:
    """Search the lender's folders after this environment's own, by a ``.pth`` file."""
    _, folders = found
    path = Path(sysconfig.get_path("purelib")) / "linked_site_packages.pth"
    path.write_text("".join(f"{folder}\n" for folder in folders))


def pip(*words: str) -> None:
    """Run ``pip install``, without an index when a bundle is named; end with pip's exit code when it fails."""
    bundle = os.environ.get("VERISPEC_BUNDLE")
    offline = ["--no-index", "--find-links", bundle] if bundle else []
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *offline, *words], check=False)
    if done.returncode:
        hint = f"the bundle {bundle} lacks it" if bundle else "without an index, name a bundle: VERISPEC_BUNDLE=FOLDER"
        sys.exit(f"tools/gpu/install.py: pip could not install {' '.join(words)}; {hint}")


if __name__ == "__main__":
    main()
