#!/bin/bash
# Run all suites of the Triton reference on this machine's GPU, downloading nothing.
#
#     bash tools/gpu/suites.sh FOLDER OUT [SECONDS]
#
# FOLDER is what tools/gpu/make_offline_bundle.py gathered. OUT gets reference-triton.jsonl, and its text. The run stops
# after SECONDS (500), installing included; the same command with the same OUT completes it.
set -euo pipefail
bring=$(realpath "${1:?usage: bash tools/gpu/suites.sh FOLDER OUT [SECONDS]}")
out=$(realpath "${2:?usage: bash tools/gpu/suites.sh FOLDER OUT [SECONDS]}")
limit=${3:-500}
project=$(cd "$(dirname "$0")/../.." && pwd)
bin=$(bash "$project/tools/gpu/environment.sh" "$bring")
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
cd "$out"  # no source folder of the project is on the path
run=reference-triton.jsonl
how=(--engine reference:triton --device cuda)
if [ -e "$run" ]; then how=(--resume "$run"); fi
"$bin/verispec" run "${how[@]}" -n "$(nproc --all)" --max-time $((limit - SECONDS)) --out "$run" \
    >>reference-triton.txt 2>&1 || true
tail -n 40 reference-triton.txt
