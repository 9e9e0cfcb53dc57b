"""Files of cases: what they hold, bad ones, and what is left when the disk is full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from verispec.errors import VerispecError
from verispec.judge import OpCall
from verispec.saved_calls import file, record_folder
from verispec.saved_calls.file import SavedCase, arguments_of

CASE = "sampler/expand_batch_to_tokens:EXP-2:dtype=float32;cu=int32"


def saved() -> SavedCase:
    values = {
        "input_ptr": torch.tensor([[1.5, float("nan")]]).T,
        "cu_num_tokens_ptr": np.array([2, 4]),
        "replace_from": float("-inf"),
        "replace_to": np.int64(1),
        "MAX_NUM_TOKENS": None,
    }
    call = OpCall(values, {"input_ptr": "float32"}, {"input_ptr": "gapped"}, {"output_ptr": [np.int64(4)]})
    return SavedCase(CASE, 7, "vllm", failure={"kind": "value"}, **arguments_of(call, "expand_batch_to_tokens"))


def test_a_file_gives_back_what_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "case.safetensors"
    file.write(path, saved())
    found = file.read(path)
    np.testing.assert_array_equal(found.tensors["input_ptr"], np.array([[1.5], [np.nan]], dtype=np.float32))
    assert found.tensors["cu_num_tokens_ptr"].dtype == np.int64
    assert found.scalars == {"replace_from": float("-inf"), "replace_to": 1, "MAX_NUM_TOKENS": None}
    assert (found.case, found.seed, found.engine, found.op) == (CASE, 7, "vllm", "expand_batch_to_tokens")
    assert (found.dtypes, found.layouts) == ({"input_ptr": "float32"}, {"input_ptr": "gapped"})
    assert found.call.shapes == {"output_ptr": [4]}


def test_bad_files_are_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "case.safetensors"
    for content, said in ((None, "cannot be read"), (b"notes", "cannot be read"), (b"", "cannot be read")):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(VerispecError, match=said):
            file.read(path)
    save_file({"weights": np.zeros(3)}, path)
    with pytest.raises(VerispecError, match="not a file of a case"):
        file.read(path)
    whole = file.content(saved())
    path.write_bytes(whole[:-3])
    with pytest.raises(VerispecError, match="cannot be read"):
        file.read(path)
    path.write_bytes(whole.replace(b'\\"scalars\\"', b'\\"scalarz\\"'))
    with pytest.raises(VerispecError, match="damaged"):
        file.read(path)


def test_each_case_has_a_name_of_its_own(tmp_path: Path) -> None:
    names = {record_folder.kept(tmp_path, f"{CASE};n={n}" + "x" * 200).name for n in range(20)}
    assert len(names) == 20
    assert all(len(name) < 140 and "/" not in name and ":" not in name for name in names)


def test_launches_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    mine, theirs = record_folder.launch(tmp_path, os.getpid()), record_folder.launch(tmp_path, gone.pid)
    beside = tmp_path / f".{theirs.name}.k3j2"
    for path in (mine, theirs, beside, tmp_path / "EXP-1.safetensors"):
        path.touch()
    record_folder.sweep(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([mine.name, "EXP-1.safetensors"])
