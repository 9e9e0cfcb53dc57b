#!/bin/bash
# Start, and leave running: cases on the CPU under many seeds, and cases of the Triton kernels beside.
#
#     bash tools/gpu/seeds.sh BUNDLE statistical|others FIRST-LAST PROCESSES SECONDS [GPU CASES...]
#
# Each argument of cases is a pattern of --only; GPU n takes every n-th. All is written to verispec-seeds below TMPDIR:
# seeds.log ends with the counts; gpu-N.jsonl are results files. The work is done on a copy of the checkout, which may
# change.
set -euo pipefail
: "${5:?usage: bash tools/gpu/seeds.sh BUNDLE statistical|others FIRST-LAST PROCESSES SECONDS [GPU CASES...]}"
bundle=$(realpath "$1") which=$2 seeds=$3 processes=$4 seconds=$5
shift 5
folder=${TMPDIR:-/tmp}/verispec-seeds
mkdir -p "$folder"
cp -r "$(dirname "$0")/../.." "$folder/checkout"
cd "$folder/checkout"
bin=$(bash tools/gpu/environment.sh "$bundle")
export OMP_NUM_THREADS=1
setsid nohup "$bin/python" tools/false_alarms.py "--$which" --seeds "$seeds" -n "$processes" --seconds "$seconds" \
    > "$folder/seeds.log" 2>&1 &
echo $! > "$folder/pid"
gpus=$(nvidia-smi -L | wc -l)
for ((gpu = 0; gpu < gpus && gpu < $#; gpu++)); do
    only=()
    for ((n = gpu + 1; n <= $#; n += gpus)); do only+=(--only "${!n}"); done
    CUDA_VISIBLE_DEVICES=$gpu setsid nohup "$bin/verispec" run --engine reference:triton --device cuda --timeout 300 \
        "${only[@]}" --min-judged 0 --out "$folder/gpu-$gpu.jsonl" > "$folder/gpu-$gpu.log" 2>&1 &
done
