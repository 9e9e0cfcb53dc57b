"""Checkpoints as models of ONNX Runtime GenAI, in float32, converted by its own model builder."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from verispec.engines import UnsupportedCall
from verispec.engines.adapters.checkpoints import content_key, tokenizer_of
from verispec.engines.checkout import filled_folder
from verispec.reference.models import load_target

MODEL = "genai_config.json"


def converted(folder: Path) -> Path:
    """Return a folder with the ONNX model of a checkpoint, made by the engine's builder and cached by its content."""
    if (folder / MODEL).is_file():
        return folder

    def fill(to: Path) -> None:
        size = load_target(folder).config.vocab_size  # Refuses a folder that is no checkpoint.
        with tempfile.TemporaryDirectory() as made:
            source = Path(made) / "checkpoint"
            shutil.copytree(folder, source)
            tokenizer_of(folder, size).save_pretrained(source)  # The builder wants one.
            options = ["-i", str(source), "-o", str(to), "-c", made, "-p", "fp32", "-e", "cpu"]
            command = [sys.executable, "-m", "onnxruntime_genai.models.builder", *options]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            raise UnsupportedCall(f"the model builder of ONNX Runtime GenAI does not convert {folder.name}: {last}")
        _add_end(to, size)

    source_text = Path(__file__).read_text(encoding="utf-8")
    return filled_folder("onnxruntime-genai", content_key((folder,), version("onnxruntime-genai"), source_text), fill)


def _add_end(folder: Path, vocab_size: int) -> None:
    """Add a token of the logit -inf, and make it the end of sequence: the engine has at least one such token."""
    onnx: Any = importlib.import_module("onnx")
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    graph, helper, types = model.graph, onnx.helper, onnx.TensorProto
    for node in graph.node:
        node.output[:] = ["logits_of_model" if name == "logits" else name for name in node.output]
    graph.initializer.append(helper.make_tensor("one_token", types.INT64, [6], [0, 0, 0, 0, 0, 1]))
    graph.initializer.append(helper.make_tensor("never", types.FLOAT, [], [-np.inf]))
    graph.node.append(helper.make_node("Pad", ["logits_of_model", "one_token", "never"], ["logits"]))
    for output in graph.output:
        if output.name == "logits":
            output.type.tensor_type.shape.dim[2].dim_value = vocab_size + 1
    onnx.save(model, folder / "model.onnx")
    config = json.loads((folder / MODEL).read_text(encoding="utf-8"))
    config["model"] |= {"vocab_size": vocab_size + 1, "eos_token_id": [vocab_size], "pad_token_id": vocab_size}
    (folder / MODEL).write_text(json.dumps(config), encoding="utf-8")


def joined(target: Path, draft: Path) -> Path:
    """Return a folder whose configuration names a target and its draft model."""
    models = {"decoder": converted(target), "draft": converted(draft)}

    def fill(to: Path) -> None:
        configs = {part: json.loads((folder / MODEL).read_text(encoding="utf-8")) for part, folder in models.items()}
        config = configs["decoder"]
        for part, folder in models.items():
            (to / part).mkdir()
            for path in folder.glob("model.onnx*"):
                os.link(path, to / part / path.name)
            config["model"][part] = configs[part]["model"]["decoder"] | {"filename": f"{part}/model.onnx"}
        (to / MODEL).write_text(json.dumps(config), encoding="utf-8")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(models["decoder"] / name, to / name)

    return filled_folder("onnxruntime-genai", content_key(tuple(models.values()), "joined"), fill)
