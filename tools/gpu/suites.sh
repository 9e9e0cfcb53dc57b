#!/bin/bash
# Test the Triton reference on all GPUs of this machine at once, downloading nothing.
#
#     bash tools/gpu/suites.sh FOLDER OUT [SECONDS]
#
# FOLDER is what tools/gpu/make_offline_bundle.py gathered. OUT gets one results file and one log per group of cases.
# Groups go to the GPUs in turn. Each group stops after SECONDS (420); `verispec run --resume` completes it.
set -euo pipefail
bring=$(realpath "${1:?usage: bash tools/gpu/suites.sh FOLDER OUT [SECONDS]}")
out=$(realpath "${2:?usage: bash tools/gpu/suites.sh FOLDER OUT [SECONDS]}")
limit=${3:-420}
project=$(cd "$(dirname "$0")/../.." && pwd)
bin=$(bash "$project/tools/gpu/environment.sh" "$bring")
gpus=$(nvidia-smi --list-gpus | wc -l)
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
cd "$out"  # no source folder of the project is on the path

groups=(
    "fused --only sampler/verify_*"
    "generation --suite e2e"
    "whole --only sampler/whole_sampler* --only synthetic/*"
    "ops --only sampler/apply* --only sampler/b* --only sampler/c* --only sampler/e* --only sampler/f* --only sampler/g* --only sampler/p* --only sampler/r* --only sampler/s*"
)
for i in "${!groups[@]}"; do
    read -r -a words <<<"${groups[i]}"
    CUDA_VISIBLE_DEVICES=$((i % gpus)) "$bin/verispec" run --engine reference:triton --device cuda \
        -n $(($(nproc --all) / ${#groups[@]})) --max-time "$limit" --out "${words[0]}.jsonl" "${words[@]:1}" \
        >"${words[0]}.txt" 2>&1 || true &
done
wait
for group in "${groups[@]}"; do
    tail -n 25 "${group%% *}.txt"
done
