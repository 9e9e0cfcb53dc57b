#!/bin/bash
# Two ranks on two GPUs: the runner's own tests by NCCL, the cases of GEN-40, and the time per token beside one rank.
#
#     bash tools/gpu/ranks.sh BUNDLE OUT
set -uo pipefail
: "${2:?usage: bash tools/gpu/ranks.sh BUNDLE OUT}"
bin=$(bash "$(dirname "$0")/environment.sh" "$1")
out=$(realpath "$2")
cd "$(dirname "$0")/../.."
"$bin/python" -m pytest -q -m gpu tests/runners/test_ranks.py 2>&1 | tee "$out/tests.log"
"$bin/verispec" run --engine reference:triton --device cuda --timeout 300 --only "e2e/ranks:*" --min-judged 0 \
    --out "$out/ranks.jsonl" 2>&1 | tee "$out/ranks.log"
"$bin/python" benchmarks/ranks.py --device cuda 2>&1 | tee "$out/times.log"
