#!/bin/bash
# Judge the reference's Triton kernels and those of vLLM releases on this machine's GPU, downloading nothing.
#
#     bash tools/gpu/run_offline.sh FOLDER OUT [LIMIT]
#
# FOLDER is what tools/gpu/make_offline_bundle.py gathered. OUT gets runs.tar.gz: a run file, its text and its Markdown for each
# engine. LIMIT is the seconds that the reference may take, and then the releases side by side, 900 when left out: a run
# file is whole up to where it ends.
set -euo pipefail
bring=$(realpath "${1:?usage: bash tools/gpu/run_offline.sh FOLDER OUT [LIMIT]}")
out=$(realpath "${2:?usage: bash tools/gpu/run_offline.sh FOLDER OUT [LIMIT]}")
limit=${3:-900}
project=$(cd "$(dirname "$0")/../.." && pwd)
runs=$(mktemp -d)
pack() {
    cd "$runs"
    tar czf "$out/runs.tar.gz" ./*.txt $(ls ./*.jsonl ./*.md 2>/dev/null)
}
trap pack EXIT

python3 -m pip install -q --no-index --find-links "$bring/wheels" tox
export VERISPEC_BUNDLE=$bring/wheels VERISPEC_OUT=$runs VERISPEC_PROCESSES=8
(cd "$project" && timeout "$limit" python3 -m tox -e gpu) 2>&1 | tee "$runs/reference-triton.txt" || true

cp -r "$bring/cache" "$runs/cache"
export VERISPEC_CACHE_DIR=$runs/cache
cd "$runs"  # no source folder of the project is on the path
verispec=$project/.tox/gpu/bin/verispec
for archive in cache/releases/*/*/*.tar.gz; do
    name=$(basename "$archive" .tar.gz)
    timeout --signal=INT "$limit" "$verispec" run --engine "vllm@${name/-/==}" --device cuda --suite sampler -n 3 \
        --out "$name.jsonl" >"$name.txt" 2>&1 || true &
done
wait
for run in *.jsonl; do
    "$verispec" report "$run" --format markdown >"${run%.jsonl}.md" || true
done
for text in vllm-*.txt; do
    echo "== ${text%.txt}"
    tail -n 40 "$text"
done
