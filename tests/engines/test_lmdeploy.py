"""Engine ``lmdeploy@SOURCE`` over a tree made here: the policies that its sampler gets, and the right cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from judging import command

from verispec.engines.registry import resolve
from verispec.errors import VerispecError

FILES = {
    "backends/default/rejection_sampling.py": """
class DefaultRejectionSamplingImpl:
    def verify(self, argmax, drafts):
        rows = []
        for best, proposed in zip(argmax.tolist(), drafts.tolist()):
            count = next((n for n, (a, b) in enumerate(zip(best, proposed)) if a != b), len(proposed))
            rows.append(best[: count + 1] + [-1] * (len(proposed) - count))
        return rows
""",
    "backends/default/multinomial_sampling.py": "class DefaultMultinomialSamplingImpl: pass\n",
    "engine/logits_process.py": """
from dataclasses import dataclass
from lmdeploy.messages import LogitsProcessor
from lmdeploy.pytorch import envs
from .guided_process import GuidedDecodingManager

@dataclass
class SamplingInputs:
    top_k: object = None
    top_p: object = None
    min_p: object = None
    max_top_k: int = 1
    has_greedy: bool = False
    batch_size: int = 0

class FusedLogitsProcessor:
    def __init__(self, inputs):
        assert inputs.max_top_k == 1

    def sampling(self, logits):
        return logits.argmax(-1)
""",
    "spec_decode/reject_sampler.py": """
import torch
from lmdeploy.pytorch.backends import get_backend
from lmdeploy.pytorch.engine.logits_process import SamplingInputs

class RejectionSamplingBuildSpec: pass

class RejectionSampler:
    def __init__(self):
        self.impl = get_backend().build_op(RejectionSamplingBuildSpec())

    def __call__(self, logits, drafts, inputs):
        assert inputs.max_top_k == 1 and inputs.batch_size == logits.shape[0] * logits.shape[1]
        return torch.tensor(self.impl.verify(logits.argmax(-1) - WRONG, drafts)), None, None
""",
}


def tree(folder: Path, wrong: int) -> Path:
    """Write a tree with the modules of LMDeploy that the engine imports; its argmax is off by `wrong`."""
    for name, text in FILES.items():
        path = folder / "lmdeploy/pytorch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("WRONG", str(wrong)))
    return folder


@pytest.mark.parametrize(("wrong", "outcome"), [(0, "pass"), (1, "fail")])
def test_greedy_steps_are_judged(tmp_path: Path, wrong: int, outcome: str, capfd: pytest.CaptureFixture[str]) -> None:
    source, run = tree(tmp_path / "tree", wrong), tmp_path / "run.jsonl"
    case = "--only=sampler/whole_sampler:WS-1:batch=all greedy;draft=absent"
    done = command(capfd, "run", f"--engine=lmdeploy@{source}", case, f"--out={run}")
    assert done.returncode in (0, 1), done.stdout + done.stderr
    records = [json.loads(line) for line in run.read_text().splitlines()]
    assert [record["outcome"] for record in records if record["type"] == "case"] == [outcome]


def test_a_tree_without_the_sampler_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VerispecError, match="V-ENG-LMDEPLOY"):
        resolve(f"lmdeploy@{tmp_path}")
