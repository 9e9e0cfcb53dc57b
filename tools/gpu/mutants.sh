#!/bin/bash
# Score the suites with faults in the Triton kernels on this machine's GPU, downloading nothing.
#
#     bash tools/gpu/mutants.sh FOLDER OUT SEED [SECONDS [SAMPLE [PROCESSES]]]
#
# FOLDER is what tools/gpu/make_offline_bundle.py gathered. OUT gets triton.jsonl, triton.txt and triton.md. SEED draws
# SAMPLE (300) mutants, in random order; 6 cases of each clause are used. After SECONDS (440), installing included, the
# rest is left: `verispec mutants` with the same --out and --seed goes on there.
set -euo pipefail
bring=$(realpath "${1:?usage: bash tools/gpu/mutants.sh FOLDER OUT SEED [SECONDS [SAMPLE [PROCESSES]]]}")
out=$(realpath "${2:?usage: bash tools/gpu/mutants.sh FOLDER OUT SEED [SECONDS [SAMPLE [PROCESSES]]]}")
seed=${3:?usage: bash tools/gpu/mutants.sh FOLDER OUT SEED [SECONDS [SAMPLE [PROCESSES]]]}
limit=${4:-440} sample=${5:-300} processes=${6:-$(nproc)}
project=$(cd "$(dirname "$0")/../.." && pwd)
bin=$(bash "$project/tools/gpu/environment.sh" "$bring")
echo "installed after $SECONDS s"
cd "$out"  # no source folder of the project is on the path
timeout --signal=INT $((limit - SECONDS)) "$bin/verispec" mutants --of triton --device cuda \
    --sample "$sample" --seed "$seed" --limit 12 --per-clause 6 --slowest 20 -n "$processes" \
    --out "$out/triton.jsonl" >"$out/triton.txt" 2>&1 || true
tail -n 3 "$out/triton.txt"
"$bin/verispec" mutants --render "$out/triton.jsonl" --markdown >"$out/triton.md" || true
echo "$(wc -l <"$out/triton.jsonl") lines after $SECONDS s"
