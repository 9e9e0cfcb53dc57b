"""Add FlashInfer's sampling to a bundle of `make_offline_bundle.py`, as a wheel of about a tenth of the released one.

    python tools/gpu/bring_flashinfer.py build/gpu [flashinfer-python==0.7.4]

Run it where pip reaches an index, with torch. The wheel has the released files that sampling imports or compiles, byte
for byte; other kernels and CUTLASS are left out, and of the requirements all that sampling does not import.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from wheels import download, reduce

RELEASE = "flashinfer-python==0.7.4"
IMPORTED = ("apache-tvm-ffi", "click", "einops", "ninja", "nvidia-ml-py", "requests", "tabulate", "tqdm")
COMPILED = re.compile(
    r"flashinfer/data/(cccl/(?!python)|include/flashinfer/[^/]+$)"
    r"|flashinfer/data/csrc/((flashinfer_)?(sampling|renorm)\w*\.|tvm_ffi_utils\.h)"
    r"|flashinfer_python-[^/]+\.dist-info/(?!RECORD)"
)
PROBE = """
import sys
sys.path[:0] = sys.argv[1:]
import flashinfer.sampling
modules = (module for name, module in sys.modules.items() if name.startswith("flashinfer."))
print(*(module.__file__ for module in modules if getattr(module, "__file__", None)), flashinfer.__file__, sep="\\n")
"""


def main(folder: Path, release: str = RELEASE) -> None:
    """Write the wheels below `folder`."""
    wheels = folder / "wheels"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
    download(wheels, "--no-deps", *IMPORTED)
    with tempfile.TemporaryDirectory() as temporary:
        whole, needs, tree = (Path(temporary).resolve() / name for name in ("wheel", "needs", "tree"))
        download(whole, "--no-deps", release)
        subprocess.run([*pip, "--target", str(needs), *IMPORTED], check=True)
        [wheel] = whole.iterdir()
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tree)
        probe = [sys.executable, "-c", PROBE, str(tree), str(needs)]
        loaded = subprocess.run(probe, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
        files = {str(Path(path).relative_to(tree)) for path in loaded}
        reduce(wheel, wheels / wheel.name, lambda name: name in files or COMPILED.match(name) is not None)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
