"""Engine ``sglang@SOURCE`` over a tree made here: what it hands to the kernels, and what it reads from them.

The tree's kernels are plain Python over the same arguments as SGLang's. The real ones have their own tox environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from verispec.reference import contracts

pytest.importorskip("triton")

CHAIN = """
import torch

def chain_speculative_sampling_triton(
    predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token, retrive_next_sibling,
    uniform_samples, uniform_samples_for_final_sampling, target_probs, draft_probs,
    threshold_single, threshold_acc, deterministic, *, block_verification=False,
):
    assert (threshold_single, threshold_acc) == (1.0, 1.0)
    assert bool((retrive_next_sibling == -1).all())
    for b in range(len(candidates)):
        last, accepted = int(retrive_index[b, 0]), 0
        accept_index[b, 0] = last
        for j in range(1, candidates.shape[1]):
            token = int(candidates[b, j])
            p, q = target_probs[b, j - 1, token], draft_probs[b, j - 1, token]
            if q <= 0 or uniform_samples[b, j - 1] * q >= p:
                break
            predicts[last], accepted = token, j
            last = int(retrive_index[b, j])
            accept_index[b, j] = last
        row = target_probs[b, accepted]
        if accepted + 1 < candidates.shape[1]:
            row = (row - draft_probs[b, accepted]).clamp(min=0)
        cdf = row.double().cumsum(0)
        u = float(uniform_samples_for_final_sampling[b]) * float(cdf[-1])
        predicts[last] = min(int((cdf <= u).sum()), len(row) - 1)
        accept_token_num[b] = accepted
"""
GREEDY = """
from sglang.srt.utils import is_cuda
assert not is_cuda()

def verify_tree_greedy_triton(
    predicts, accept_index, accept_token_num, candidates, retrieve_index, retrieve_next_token, retrieve_next_sibling,
    target_predict,
):
    for b in range(len(candidates)):
        at, row, accepted = 0, int(retrieve_index[b, 0]), 0
        accept_index[b, 0] = row
        while accepted + 1 < accept_index.shape[1]:
            predicts[row] = wanted = target_predict.view(-1)[row]
            child = int(retrieve_next_token[b, at])
            while child != -1 and candidates[b, child] != wanted:
                child = int(retrieve_next_sibling[b, child])
            if child == -1:
                break
            at, row, accepted = child, int(retrieve_index[b, child]), accepted + 1
            accept_index[b, accepted] = row
        predicts[row] = target_predict.view(-1)[row]
        accept_token_num[b] = accepted

def sgl_build_tree_kernel_triton(
    parent_list, selected_index, verified_seq_len, tree_mask, positions, retrieve_index, retrieve_next_token,
    retrieve_next_sibling, topk, depth, draft_token_num, tree_mask_mode,
):
    start = 0
    for b, length in enumerate(verified_seq_len.tolist()):
        before = 0 if tree_mask_mode else length
        chosen = selected_index[b].tolist()
        parents = [None] + [chosen.index(parent_list[b, c // topk]) + 1 if c >= topk else 0 for c in chosen]
        for i in range(draft_token_num):
            retrieve_index[b, i] = b * draft_token_num + i
            path = [i]
            while path[-1]:
                path.append(parents[path[-1]])
            positions[b * draft_token_num + i] = length + len(path) - 1
            row = tree_mask[start + before :][:draft_token_num]
            row[:] = False
            row[path] = True
            start += before + draft_token_num
            children = [j for j, parent in enumerate(parents) if parent == i]
            if children:
                retrieve_next_token[b, i] = children[0]
                for j, following in zip(children, children[1:]):
                    retrieve_next_sibling[b, j] = following
"""
RENORM = """
import torch

def _of(probs, kept):
    if not probs.is_cuda:
        raise ValueError("a GPU is needed")
    probs = torch.where(kept, probs, torch.zeros_like(probs))
    return probs / probs.sum(dim=-1, keepdim=True)

def top_k_renorm_probs_triton(probs, top_k):
    order = probs.sort(dim=-1, descending=True).values
    pivot = order.gather(1, (top_k.long() - 1).clamp(0, probs.shape[1] - 1)[:, None])
    return _of(probs, probs >= pivot)

def top_p_renorm_probs_triton(probs, top_p):
    order, ids = probs.sort(dim=-1, descending=True)
    before = order.cumsum(dim=-1) - order
    return _of(probs, torch.zeros_like(probs, dtype=torch.bool).scatter(1, ids, before < top_p[:, None]))
"""
KERNEL = """
class Kernel:
    def __init__(self, run):
        self.run = run

    def __getitem__(self, grid):
        return lambda *arguments: [self.run(pid, *arguments) for pid in range(*grid)]
"""
TABLE = f"""
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
{KERNEL}
@Kernel
def assign_req_to_token_pool(pid, rows, pool, start, end, locs, width, size):
    before = int((end - start)[:pid].sum())
    pool[rows[pid], start[pid] : end[pid]] = locs[before:][: end[pid] - start[pid]].int()
"""
SLOTS = f"""
from sglang.srt.utils import is_cuda
assert not is_cuda()
{KERNEL}
@Kernel
def assign_extend_cache_locs(pid, rows, pool, start, end, out, width, size):
    before = int((end - start)[:pid].sum())
    out[before:][: end[pid] - start[pid]] = pool[rows[pid], start[pid] : end[pid]]

@Kernel
def assign_extend_cache_locs_uniform(pid, rows, pool, start, out, width, count):
    out[pid * count :][:count] = pool[rows[pid], start[pid] :][:count]

@Kernel
def assign_draft_cache_locs_contiguous(pid, rows, pool, start, out, width, topk, columns):
    out[pid * topk * columns :][: topk * columns] = pool[rows[pid], start[pid] :][: topk * columns]
"""


def tree(root: Path) -> Path:
    """Write a tree with the modules of SGLang that the engine imports."""
    ops = root / "sglang/kernels/ops"
    (root / "sglang/srt/mem_cache").mkdir(parents=True)
    (root / "sglang/srt/mem_cache/allocation.py").write_text(TABLE)
    for path, text in (
        ("speculative/reject_sampling.py", CHAIN),
        ("speculative/spec_tree.py", GREEDY),
        ("speculative/cache_locs.py", SLOTS),
        ("sampling/renorm_triton.py", RENORM),
    ):
        (ops / path).parent.mkdir(parents=True, exist_ok=True)
        (ops / path).write_text(text)
    (root / "sglang/__init__.py").write_text("raise ImportError('the real package needs an accelerator')")
    return root


def verdict(source: Path, out: Path, *only: str) -> dict[str, list[str]]:
    """Judge the engine in a process of its own and return its cases by outcome."""
    chosen = [word for pattern in only for word in ("--only", pattern)]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    subprocess.run(
        [sys.executable, "-m", "verispec", "run", "--engine", f"sglang@{source}", *chosen, "--out", str(out)],
        env=environment,
        capture_output=True,
        check=False,
    )
    outcomes: dict[str, list[str]] = {}
    for line in out.read_text().splitlines():
        record = json.loads(line)
        if record["type"] == "case":
            outcomes.setdefault(record["outcome"], []).append(record["id"])
    return outcomes


GREEDY_AND_LIMITS = ("sampler/whole_sampler:WS-1:*", "sampler/whole_sampler:WS-6:*", "sampler/whole_sampler:WS-8:*")


OPS = ("BDT-1", "BDT-3", "BDT-6", "VTG-1", "VTG-6", "VTS-19", "CSM-1")


def test_right_kernels_pass(tmp_path: Path) -> None:
    ops = [f"sampler/{contracts.by_clause(clause).name}:{clause}:*" for clause in OPS]
    outcomes = verdict(tree(tmp_path), tmp_path / "run.jsonl", *GREEDY_AND_LIMITS, *ops)
    assert set(outcomes) == {"pass", "unsupported"}
    for clause in ("WS-1", "WS-6", *OPS):
        assert any(f":{clause}:" in case for case in outcomes["pass"]), clause


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "old", "new", "clause"),
    [
        ("speculative/spec_tree.py", "predicts[row] = wanted =", "wanted =", "WS-1"),
        ("sampling/renorm_triton.py", "before < top_p", "before < 2 * top_p", "WS-6"),
        ("speculative/spec_tree.py", "retrieve_next_sibling[b, child])", "retrieve_next_sibling[b, at])", "VTG-6"),
        ("speculative/spec_tree.py", "children, children[1:]", "children, children[2:]", "BDT-3"),
        ("speculative/reject_sampling.py", "- draft_probs[b, accepted]", "- 0 * draft_probs[b, accepted]", "VTS-19"),
        ("speculative/cache_locs.py", "out[before:]", "out[0:]", "CSM-1"),
        ("speculative/cache_locs.py", "start[pid] :][:count]", "start[pid] + 1 :][:count]", "CSM-1"),
        ("speculative/cache_locs.py", "out[pid * topk * columns :]", "out[pid * topk :]", "CSM-1"),
        ("../../srt/mem_cache/allocation.py", "rows[pid]", "pid", "CSM-1"),
    ],
)
def test_wrong_kernels_fail(tmp_path: Path, module: str, old: str, new: str, clause: str) -> None:
    path = tree(tmp_path) / "sglang/kernels/ops" / module
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    outcomes = verdict(tmp_path, tmp_path / "run.jsonl", f"sampler/{contracts.by_clause(clause).name}:{clause}:*")
    assert any(f":{clause}:" in case for case in outcomes["fail"])


def test_a_tree_without_the_sampler_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    only = ["--only", "sampler/whole_sampler:WS-1:*"]
    command = [sys.executable, "-m", "verispec", "run", "--engine", f"sglang@{tmp_path}", *only]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "V-ENG-SGLANG" in refused.stderr
    assert refused.returncode != 0
