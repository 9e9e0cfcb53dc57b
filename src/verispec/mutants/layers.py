"""The layers of the reference engine that are mutated, and the tests of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Final

from verispec.errors import VerispecError
from verispec.mutants import operators_python
from verispec.mutants.model import ALWAYS, Mutant


@dataclass(frozen=True, slots=True)
class Layer:
    """Files of the reference engine that are mutated alike.

    Attributes:
        name: name of the layer, for ``--of``.
        engine: name of the engine that runs the files.
        package: dotted name of their package.
        suites: folders of suites, or files in them, that test the layer.
        files: patterns of the file names.
        left_out: names of files that a case cannot run with a mutant.
        op_files: True if a file implements the op that is its stem.
        environment: variables of the testing process.
        tests: folders and files of self-tests, instead of suites, for files that no engine runs.
        devices: values of ``--device`` that the layer can run with, the default first; "" is the CPU.
        is_cpp: True for C++ sources in ``csrc/``, whose faults are switches of one extension. `files` are names, and
            empty takes all that kernels of ops use.
    """

    name: str
    engine: str
    package: str
    suites: tuple[str, ...]
    files: tuple[str, ...] = ("*.py",)
    left_out: tuple[str, ...] = ("__init__.py",)
    op_files: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    tests: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("",)
    is_cpp: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the package's sources."""
        return Path(str(import_module(self.package).__path__[-1])).resolve()

    @property
    def root(self) -> Path:
        """The project's folder, which holds the self-tests."""
        return next((p for p in self.folder.parents if (p / "pyproject.toml").is_file()), self.folder)

    def paths(self) -> list[Path]:
        """Return the Python files that are mutated."""
        if self.is_cpp:
            return []
        found = {path for pattern in self.files for path in self.folder.glob(pattern)}
        return sorted(path for path in found if path.name not in self.left_out)

    def module(self, path: Path) -> str:
        """Return the dotted name of a file's module."""
        return ".".join([self.package, *path.relative_to(self.folder).with_suffix("").parts])


ONE_THREAD: Final = {"OMP_NUM_THREADS": "1"}
TWO_THREADS: Final = {"OMP_NUM_THREADS": "2"}
REFERENCE = "verispec.reference"
SAMPLING = (
    *(f"sampler/test_whole_sampler{part}.py" for part in ("", "_parameters", "_limits", "_chains", "_seeds")),
    "sampler/test_every_sampler.py",
    "synthetic",
    "e2e",
)
OPTIONS = ("tests/engines/test_option_bounds.py", "tests/engines/test_protocol.py", "tests/docs/test_refused_values.py")
"""Self-tests that give options and requests bad values, which hardly any case of a suite does."""

VALIDATION = ("generation.py", "draft_tree.py", "speculation.py", "values.py")
CPU_MODELS = tuple(
    f"{stem}.py"
    for stem in (
        "attention",
        "auxiliary",
        "eagle3",
        "fused",
        "fused_cpu",
        "kv_cache",
        "lora",
        "mtp",
        "recurrent",
        "target",
    )
)
"""Files of models that a runner on the CPU calls; checkpoints have self-tests, and graphs need a GPU."""
MODEL_CPP = ("decoder_layer.cpp", "layers.h", "paged_attention.cpp", "rms_norm.cpp")
"""C++ kernels of models, which no op runs.

Not ``linear.cpp``, which compiles for half an hour with a switch for each fault: each number of rows has a body."""
GPU_RUNNERS = ("gpu.py", "step_graphs.py", "step_shapes.py")
UNREACHED_RUNNERS = ("__init__.py", *GPU_RUNNERS, "rank.py")
"""Files of runners that need a GPU, and the one that the processes of ranks import anew, without a mutant."""
MODEL_KERNELS = ("_attention.py", "_decoder_layer.py", "_linear.py", "_overlap.py")
"""Triton kernels of models, which no op runs and no interpreter: generation on a GPU does."""
ON_GPU = (
    *(f"triton/{name}" for name in MODEL_KERNELS),
    *(f"models/{name}" for name in ("fused_gpu.py", "decode_graphs.py")),
    *(f"runners/{name}" for name in GPU_RUNNERS),
)

LAYERS: Final = {
    layer.name: layer
    for layer in (
        Layer("cpp", "reference", REFERENCE, ("sampler",), files=(), is_cpp=True, op_files=True,
              environment=TWO_THREADS),
        Layer("cpp_models", "reference", REFERENCE, ("e2e",), files=MODEL_CPP, is_cpp=True, environment=TWO_THREADS),
        Layer("triton", "reference:triton", f"{REFERENCE}.triton", ("sampler",),
              left_out=("__init__.py", *MODEL_KERNELS), op_files=True,
              environment={"TRITON_INTERPRET": "1", **ONE_THREAD}, devices=("", "cuda")),
        Layer("gpu", "reference:triton", REFERENCE, ("e2e",), files=ON_GPU, devices=("cuda",),
              environment=ONE_THREAD),
        Layer("oracle", "reference", f"{REFERENCE}.oracle", ("sampler", "synthetic"), op_files=True,
              environment=ONE_THREAD),
        Layer("samplers", "reference", f"{REFERENCE}.sampler", SAMPLING, environment=ONE_THREAD),
        Layer("runners", "reference", f"{REFERENCE}.runners", ("e2e",), left_out=UNREACHED_RUNNERS,
              environment=ONE_THREAD),
        Layer("proposers", "reference", f"{REFERENCE}.proposers", ("e2e",), environment=ONE_THREAD),
        Layer("models", "reference", f"{REFERENCE}.models", ("e2e",), files=CPU_MODELS, environment=ONE_THREAD),
        Layer("config", "", "verispec.engines.protocol", (), files=VALIDATION, tests=OPTIONS,
              environment=ONE_THREAD),
        Layer("static", "", "verispec.static", (), files=("rules/*.py", "linking/*.py", "readers/*.py"),
              tests=("tests/static",), environment=ONE_THREAD),
    )
}  # fmt: skip


def chosen(name: str, device: str = "") -> list[Layer]:
    """Return the layers that ``--of`` names; for ``all`` those that run on the device.

    Raises:
        VerispecError: V-MUT-LAYER, there is no such layer; V-MUT-DEVICE, it does not run on this device.
    """
    if name == "all":
        return [layer for layer in LAYERS.values() if device in layer.devices]
    if name not in LAYERS:
        hint = f"layers are {', '.join(LAYERS)}, all"
        raise VerispecError("V-MUT-LAYER", f"there is no layer {name!r}", where="--of", hint=hint)
    layer = LAYERS[name]
    if device and device not in layer.devices:
        able = ", ".join(other.name for other in LAYERS.values() if device in other.devices)
        hint = f"layers that run on it are {able}" if able else "devices are cuda, and the CPU if none is given"
        raise VerispecError("V-MUT-DEVICE", f"the layer {name} does not run on {device!r}", where="--device", hint=hint)
    return [layer]


def measured_together(layer: Layer) -> list[Layer]:
    """Return the layers whose cases are measured at once: those that one engine's generation and samplers run."""
    if not _generates(layer):
        return [layer]
    return [
        other
        for other in LAYERS.values()
        if _generates(other) and (other.devices, other.is_cpp) == (layer.devices, layer.is_cpp)
    ]


def _generates(layer: Layer) -> bool:
    return LAYERS.get(layer.name) is layer and "e2e" in layer.suites


def python_mutants(layer: Layer) -> list[Mutant]:
    """Return every mutant of a layer of Python files, with each trigger that its site can have."""
    users = _users(layer) if layer.op_files else {}
    found: list[Mutant] = []
    for path in layer.paths():
        source = path.read_text(encoding="utf-8")
        lines = source.splitlines()
        name = path.relative_to(layer.folder).as_posix()
        for number, fault in enumerate(operators_python.faults(source)):
            text = lines[fault.line - 1].strip()
            found += [
                Mutant(layer.name, name, fault.line, fault.column, fault.operator, fault.before, fault.after, text,
                       number, users.get(path.stem, ()), trigger, function=fault.function)
                for trigger in _triggers(layer, fault)
            ]  # fmt: skip
    return found


def _triggers(layer: Layer, fault: operators_python.PythonFault) -> tuple[str, ...]:
    if not fault.is_expression:
        return (ALWAYS,)
    if layer.name == "triton":
        return operators_python.TRIGGERS if fault.in_kernel else (ALWAYS, operators_python.ON_REPETITION)
    return (ALWAYS,) if _generates(layer) and fault.once else (ALWAYS, operators_python.ON_REPETITION)


def _users(layer: Layer) -> dict[str, tuple[str, ...]]:
    """Return the ops that each file implements: its own, and for a shared file the ops of all files that import it."""
    stems = {path.stem: path.read_text(encoding="utf-8") for path in layer.paths()}
    imports = {
        stem: {other for other in stems if f"from .{other} import" in text or f".{other} import" in text}
        for stem, text in stems.items()
    }
    users: dict[str, set[str]] = {stem: set() for stem in stems}

    def use(stem: str, op: str) -> None:
        if op not in users[stem]:
            users[stem].add(op)
            for other in imports[stem]:
                use(other, op)

    for stem in stems:
        if not stem.startswith("_"):
            use(stem, stem)
    return {stem: tuple(sorted(ops)) for stem, ops in users.items()}
