#!/bin/bash
# Score the suites with faults in the code that needs this machine's GPU, downloading nothing.
#
#     bash tools/gpu/mutants.sh FOLDER OUT SEED [SECONDS [SAMPLE [PROCESSES [LAYER]]]]
#
# FOLDER is what tools/gpu/make_offline_bundle.py gathered. LAYER is triton, the kernels of ops, or gpu: kernels and
# graphs of models. OUT gets LAYER.jsonl, LAYER.txt and LAYER.md. SEED draws SAMPLE (300) mutants, in random order; 6
# cases of each clause are used. After SECONDS (440), installing included, the rest is left: `verispec mutants` with
# the same --out and --seed goes on there.
set -euo pipefail
bring=$(realpath "${1:?usage: bash tools/gpu/mutants.sh FOLDER OUT SEED [SECONDS [SAMPLE [PROCESSES [LAYER]]]]}")
out=$(realpath "${2:?usage: bash tools/gpu/mutants.sh FOLDER OUT SEED [SECONDS [SAMPLE [PROCESSES [LAYER]]]]}")
seed=${3:?usage: bash tools/gpu/mutants.sh FOLDER OUT SEED [SECONDS [SAMPLE [PROCESSES [LAYER]]]]}
limit=${4:-440} sample=${5:-300} processes=${6:-$(nproc)} layer=${7:-triton}
project=$(cd "$(dirname "$0")/../.." && pwd)
bin=$(bash "$project/tools/gpu/environment.sh" "$bring")
echo "installed after $SECONDS s"
cd "$out"  # no source folder of the project is on the path
timeout --signal=INT $((limit - SECONDS)) "$bin/verispec" mutants --of "$layer" --device cuda \
    --sample "$sample" --seed "$seed" --limit 12 --per-clause 6 --slowest 20 -n "$processes" \
    --out "$out/$layer.jsonl" >"$out/$layer.txt" 2>&1 || true
tail -n 3 "$out/$layer.txt"
"$bin/verispec" mutants --render "$out/$layer.jsonl" --markdown >"$out/$layer.md" || true
echo "$(wc -l <"$out/$layer.jsonl") lines after $SECONDS s"
