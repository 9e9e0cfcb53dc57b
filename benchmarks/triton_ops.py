"""Check the reference's Triton kernels on a CUDA device, and time them beside vLLM's own.

    python benchmarks/triton_ops.py --check --time --vllm PATH --out FOLDER

`--check` runs every op over the cases of ``tests/triton/op_cases.py`` and larger ones against the oracle:
production vocabularies, bfloat16, strides, rows past 2^31 elements. Every case runs again after two calls of the same
layout, and out of a captured CUDA graph. Any wait for the device is an error. `--time` replays captured graphs of each
op and of the same work done by the kernels of a vLLM source tree. Exit code 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "triton"))

import torch
import triton
from _op_checks import captured, check
from _peers import Peers
from op_cases import Size, make, ops, variants

from verispec.reference.contracts import Tensor, load
from verispec.reference.triton import op

CALLS = 20
REPLAYS = 15


def microseconds(function: Callable[[], Any]) -> float:
    """Median over replays of the time of one call."""
    replay = captured(function, CALLS)
    times = []
    for _ in range(REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / CALLS)
    return statistics.median(times[3:])


def verification_inputs(requests: int, drafts: int, vocabulary: int, dtype: Any, with_draft: bool, scale: float) -> Any:
    """Return a batch on the device whose drafts are drawn from a draft distribution near the target's."""
    generator = torch.Generator("cuda").manual_seed(1)
    rows = requests * (drafts + 1)
    target = torch.randn(rows, vocabulary, device="cuda", generator=generator) * 3
    near = target.view(requests, drafts + 1, vocabulary)[:, :drafts]
    draft = (near + torch.randn(near.shape, device="cuda", generator=generator) * 0.5).contiguous()
    tokens = torch.empty(requests, drafts, dtype=torch.int64, device="cuda")
    for step in range(drafts):
        noise = torch.empty_like(draft[:, step]).exponential_(generator=generator).log()
        tokens[:, step] = (draft[:, step] - noise).argmax(-1)
    sampled = torch.zeros(requests, drafts + 1, dtype=torch.int32, device="cuda")
    sampled[:, 1:] = tokens
    states = torch.arange(requests, dtype=torch.int32, device="cuda")
    return {
        "target_logits": target.to(dtype),
        "draft_logits": draft.to(dtype) if with_draft else None,
        "draft_sampled": sampled.view(-1),
        "cu_num_logits": torch.arange(0, rows + 1, drafts + 1, dtype=torch.int32, device="cuda"),
        "pos": torch.arange(rows, device="cuda") + 1000,
        "idx_mapping": states,
        "expanded_idx_mapping": states.repeat_interleave(drafts + 1),
        "expanded_local_pos": torch.arange(drafts + 1, dtype=torch.int32, device="cuda").repeat(requests),
        "temperature": torch.full((requests,), scale, device="cuda"),
        "seed": torch.arange(requests, device="cuda") + 7,
        "steps": drafts,
    }


def request_state_rows(peers: Peers, shapes: list[tuple[int, int, int, Any]]) -> Iterator[dict[str, Any]]:
    for requests, drafts, vocabulary, dtype in shapes:
        for kind in ("greedy", "one-hot", "draft", "block"):
            inputs = verification_inputs(
                requests, drafts, vocabulary, dtype, kind in {"draft", "block"}, 0.0 if kind == "greedy" else 1.0
            )
            shape = f"{requests}x{drafts}x{vocabulary} {str(dtype).removeprefix('torch.')} {kind}"
            peer = peers.verification(inputs, kind == "block")
            accepted = torch.zeros(requests, dtype=torch.int32, device="cuda")
            outputs = {
                "sampled": torch.zeros(requests, drafts + 1, dtype=torch.int64, device="cuda"),
                "num_accepted": accepted,
                "target_logsumexp": torch.zeros(requests, device="cuda"),
                "draft_logsumexp": torch.zeros(requests, device="cuda"),
            }
            ratio = torch.zeros(requests, device="cuda") if kind == "block" else None
            given = {name: value for name, value in inputs.items() if name != "steps"}
            verify = "block_verification" if kind == "block" else "probabilistic_rejection"
            more = {"log_prefix_ratio": ratio} if kind == "block" else {}
            yield _row(verify, shape, lambda: op(verify)(**outputs, **more, **given), peer.verify)  # noqa: B023
            start = accepted.clone()
            counts = torch.zeros_like(accepted)
            drawn = {n: v for n, v in given.items() if n not in {"expanded_idx_mapping", "expanded_local_pos"}}
            resample = op("residual_resample")

            def ours() -> None:
                counts.copy_(start)  # noqa: B023 -- as vLLM's side must, so that both pay for it
                resample(num_sampled=counts, log_prefix_ratio=ratio, **outputs, **drawn)  # noqa: B023

            yield _row("residual_resample", shape, ours, lambda: peer.resample(start))  # noqa: B023
            if kind == "greedy":  # vLLM gathers no draft logits: only here is the work the same
                yield _row("gather_draft_logits_and_target_argmax", shape, _gather(inputs), peer.stats)


def _gather(inputs: dict[str, Any]) -> Callable[[], Any]:
    target, draft = inputs["target_logits"], inputs["draft_logits"]
    rows, blocks = target.shape[0], triton.cdiv(target.shape[1], 8192)
    names = ("target_logits", "draft_logits", "expanded_idx_mapping", "expanded_local_pos", "temperature")
    arguments = {
        "local_max": torch.empty(rows, blocks, device="cuda"),
        "local_argmax": torch.empty(rows, blocks, dtype=torch.int64, device="cuda"),
        "gathered_draft_logits": None if draft is None else torch.empty_like(target),
        **{name: inputs[name] for name in names},
        "BLOCK_SIZE": 8192,
    }
    return lambda: op("gather_draft_logits_and_target_argmax")(**arguments)


def shared_rows(peers: Peers) -> Iterator[dict[str, Any]]:
    for rows in (1, 32, 256):
        logits = torch.randn(rows, 128256, device="cuda") * 3
        states = torch.arange(rows, dtype=torch.int32, device="cuda")
        arguments = {
            "sampled": torch.empty(rows, dtype=torch.int64, device="cuda"),
            "logits": logits,
            "expanded_idx_mapping": states,
            "temperature": torch.ones(rows, device="cuda"),
            "seed": states.long(),
            "pos": states.long(),
            "apply_temperature": True,
            "is_drafting": False,
        }
        yield _row(
            "gumbel_sample",
            f"{rows}x128256",
            lambda: op("gumbel_sample")(**arguments),  # noqa: B023
            peers.gumbel_sample(arguments),
        )
    for rows in (4, 32, 256):
        for spread in (1.0, 6.0):
            logits = torch.randn(rows, 128256, device="cuda") * spread
            k = torch.full((rows,), 50, dtype=torch.int32, device="cuda")
            p = torch.full((rows,), 0.9, device="cuda")
            for kind, ks, ps in (("k", k, None), ("p", None, p), ("both", k, p)):
                ours, theirs = logits.clone(), logits.clone()
                mask = peers.apply_top_k_top_p(theirs, ks, ps)
                yield _row(
                    "apply_top_k_top_p",
                    f"{rows}x128256 sd {spread:g} {kind}",
                    # In place the second call would find a masked row: each call gets the row back first.
                    lambda: (ours.copy_(logits), op("apply_top_k_top_p")(output=ours, logits=ours, k=ks, p=ps)),  # noqa: B023
                    lambda: (theirs.copy_(logits), mask()),  # noqa: B023
                )


FUSED = {"greedy": "verify_greedy", "one-hot": "verify_one_hot", "draft": "verify_draft_logits"}
COLD_BYTES = 256 << 20
"""Inputs rotate until they are several times the L2 cache."""


def fused_rows(peers: Peers, shapes: list[tuple[int, int, int, Any]]) -> Iterator[dict[str, Any]]:
    """From raw logits to tokens, all launches: our one kernel beside vLLM's four."""
    for requests, drafts, vocabulary, dtype in shapes:
        for kind in (*FUSED, "draft, normaliser", "one-hot, top-k", "one-hot, top-p", "one-hot, both"):
            first = kind.partition(",")[0]
            size = requests * (2 * drafts + 1 if first == "draft" else drafts + 1) * vocabulary * dtype.itemsize
            # One request stays in the cache, as the language-model head leaves it.
            sets = 1 if requests == 1 else max(1, COLD_BYTES // size)
            temperature = 0.0 if first == "greedy" else 1.0
            inputs = [
                verification_inputs(requests, drafts, vocabulary, dtype, first == "draft", temperature)
                for _ in range(sets)
            ]
            ours = [fused_call(FUSED[first], given, kind) for given in inputs]
            theirs = [peers.verification(given).step for given in inputs] if kind in FUSED else []
            shape = f"{requests}x{drafts}x{vocabulary} {str(dtype).removeprefix('torch.')} {kind}"
            row = _row(FUSED[first], shape, rotated(ours), rotated(theirs), calls=sets)
            rows = requests * (drafts + 1) + (requests * drafts if kind == "draft" else 0)
            row["bytes"] = rows * vocabulary * dtype.itemsize
            row["host"] = host_microseconds(ours[0])
            yield row
            del inputs, ours, theirs


def fused_call(name: str, given: dict[str, Any], kind: str) -> Callable[[], Any]:
    requests, columns = given["idx_mapping"].shape[0], given["steps"] + 1
    names = {p.name for p in load(name).params}
    arguments = {n: v for n, v in given.items() if n in names}
    counts = ("num_sampled", "num_rejected", "next_token", "next_row")
    arguments |= {n: torch.zeros(requests, dtype=torch.int32, device="cuda") for n in counts}
    arguments["sampled"] = torch.zeros(requests, columns, dtype=torch.int64, device="cuda")
    if kind.endswith("normaliser"):
        arguments["draft_normaliser"] = torch.logsumexp(given["draft_logits"].float(), -1)
    if kind.endswith(("top-k", "both")):
        arguments["top_k"] = torch.full((requests,), 50, dtype=torch.int32, device="cuda")
    if kind.endswith(("top-p", "both")):
        arguments["top_p"] = torch.full((requests,), 0.9, device="cuda")
    return lambda: op(name)(**arguments)


def rotated(functions: list[Callable[[], Any]]) -> Callable[[], Any]:
    def call() -> None:
        for function in functions:
            function()

    if not functions:
        raise_missing = "vLLM has this in other kernels"

        def call() -> None:
            raise LookupError(raise_missing)

    return call


def host_microseconds(function: Callable[[], Any], calls: int = 300) -> float:
    """Return the host's time of a call outside a graph; the device runs later."""
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - began) * 1e6 / calls)
        torch.cuda.synchronize()
    return round(min(times), 1)


def flat_rows(peers: Peers) -> Iterator[dict[str, Any]]:
    for name in ops():
        contract = load(name)
        if not any(s.engine == "vllm" and not s.until for s in contract.symbols):
            continue
        for requests in (8, 256):
            vocabulary = 32000 if requests == 256 else 128256
            if not any("V" in map(str, t.shape) for t in contract.tensors):
                vocabulary = 128256
            case = make(name, variants(name)[0], Size(vocabulary, requests=requests))
            arguments = {n: torch.from_numpy(v).cuda() if hasattr(v, "dtype") else v for n, v in case.arguments.items()}
            if name == "expand_batch_to_tokens":
                arguments["MAX_NUM_TOKENS"] = 128  # what vLLM's caller passes
            for t in contract.tensors:
                if isinstance(t, Tensor) and t.production and arguments[t.name] is not None:
                    arguments[t.name] = arguments[t.name].to(getattr(torch, t.production))
            yield _row(
                name,
                f"{requests} requests, V {vocabulary}",
                lambda: op(name)(**arguments),  # noqa: B023
                # At most three drafts per request, and 300 target tokens with the bonus and the masks.
                peers.flat(name, arguments, {"max_spec_len": 3, "longest": 310}),
            )


def _row(name: str, shape: str, ours: Callable[[], Any], theirs: Callable[[], Any], calls: int = 1) -> dict[str, Any]:
    """Time both sides; a function may make several `calls`."""
    row: dict[str, Any] = {"op": name, "shape": shape}
    for side, function in (("ours", ours), ("vllm", theirs)):
        try:
            row[side] = round(microseconds(function) / calls, 2)
        except Exception as error:
            row[side] = None
            row.setdefault("problem", f"{side}: {type(error).__name__}: {str(error)[:300]}")
            torch.cuda.synchronize()
    print(
        "{op:40} {shape:44} ours {ours} us, vllm {vllm} us {problem}".format(
            problem=row.get("problem", ""), **{n: row[n] for n in ("op", "shape", "ours", "vllm")}
        ),
        flush=True,
    )
    return row


def markdown(report: dict[str, Any]) -> str:
    lines = ["# Triton kernels of the reference", "", *(f"- {k}: {v}" for k, v in report["machine"].items()), ""]
    if "checks" in report:
        failed = [c for c in report["checks"] if c["problem"]]
        lines += [f"{len(report['checks'])} checks against the oracle, {len(failed)} failed.", ""]
        lines += [f"- {c['op']} {c['case']} {c['mode']}" for c in failed]
    if "times" in report:
        lines += [
            "Microseconds a call, median of replayed CUDA graphs; inputs stay where the call before left them.",
            "",
            "| op | shape | reference | vLLM | vLLM / reference |",
            "| --- | --- | ---: | ---: | ---: |",
        ]
        for t in report["times"]:
            ratio = f"{t['vllm'] / t['ours']:.2f}" if t["ours"] and t["vllm"] else "-"
            lines.append(f"| {t['op']} | {t['shape']} | {t['ours'] or '-'} | {t['vllm'] or '-'} | {ratio} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--vllm", help="a vLLM source tree whose kernels are timed beside ours")
    parser.add_argument("--only", default="", help="check only ops whose name contains one of these, split by commas")
    families = "fused,shared,request-state,flat"
    parser.add_argument("--families", default=families, help="time only these; --only chooses what is checked")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    machine = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": sys.version.split()[0],
    }
    report: dict[str, Any] = {"machine": machine}
    options.out.mkdir(parents=True, exist_ok=True)

    def write() -> None:
        (options.out / "triton_ops.json").write_text(json.dumps(report, indent=1))
        (options.out / "triton_ops.md").write_text(markdown(report))

    if options.check:
        began = time.monotonic()
        report["checks"] = check(options.only)
        failed = sum(bool(c["problem"]) for c in report["checks"])
        print(f"{len(report['checks'])} checks, {failed} failed, {time.monotonic() - began:.0f} s", flush=True)
        write()
    if options.time:
        peers = Peers(options.vllm)
        machine["vllm"] = Path(peers.version).name  # the folder's name alone: its path is private
        fused = [
            (1, 3, 128256, torch.float32),
            (8, 3, 128256, torch.float32),
            (64, 3, 128256, torch.float32),
            (256, 3, 128256, torch.float32),
            (64, 3, 128256, torch.bfloat16),
            (256, 7, 151936, torch.bfloat16),
        ]
        shapes = [
            (1, 3, 128256, torch.float32),
            (64, 3, 128256, torch.float32),
            (256, 3, 128256, torch.float32),
            (64, 3, 128256, torch.bfloat16),
            (8, 7, 151936, torch.bfloat16),
        ]
        report["times"] = []
        for family, rows in (
            ("fused", fused_rows(peers, fused)),
            ("shared", shared_rows(peers)),
            ("request-state", request_state_rows(peers, shapes)),
            ("flat", flat_rows(peers)),
        ):
            if family not in options.families.split(","):
                continue
            for row in rows:
                report["times"].append(row)
                write()
    return 1 if any(c["problem"] for c in report.get("checks", ())) else 0


if __name__ == "__main__":
    raise SystemExit(main())
