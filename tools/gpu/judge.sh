#!/bin/bash
# Judge the reference's Triton kernels and those of vLLM releases on this machine's GPU, downloading nothing.
#
#     bash tools/gpu/judge.sh FOLDER OUT [LIMIT]
#
# FOLDER is what tools/gpu/collect.py gathered; a run file, its text and its Markdown for each engine go to OUT.
# A run file NAME.jsonl in FOLDER, from a call that ended early, is gone on with.
# LIMIT is the seconds that all runs together may take, 480 when left out: a run file is whole up to where it ends.
set -euo pipefail
bring=$(realpath "$1")
out=$(realpath "$2")
limit=${3:-480}
project=$(cd "$(dirname "$0")/../.." && pwd)

site=$(mktemp -d)
export PYTHONPATH=$site PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
python3 -m pip install -q --no-index --no-deps --no-compile --target "$site" "$bring"/wheels/*.whl
python3 -m pip install -q --no-index --no-deps --no-compile --no-build-isolation --target "$site" "$project"

cd "$out"  # no source folder of the project is on the path
judge() {
    local name=$1 engine=$2
    shift 2
    local resume=()
    [ -f "$bring/$name.jsonl" ] && resume=(--resume "$bring/$name.jsonl")
    timeout --signal=INT "$limit" python3 -m verispec run --engine "$engine" --device cuda -n 3 "$@" \
        "${resume[@]}" --out "$name.jsonl" >"$name.txt" 2>&1 || true
    if [ -s "$name.jsonl" ]; then
        python3 -m verispec report "$name.jsonl" --format markdown >"$name.md" || true
    fi
}

python3 -m verispec engines reference:triton --device cuda
judge reference-triton reference:triton --suite sampler &
judge reference-triton-e2e reference:triton --suite e2e &
for archive in "$bring"/vllm-*.tar.gz; do
    name=$(basename "$archive" .tar.gz)
    judge "$name" "vllm@$archive" --suite sampler &
done
wait
for text in *.txt; do
    echo "== ${text%.txt}"
    tail -n 40 "$text"
done
# One archive: the runs travel together.
tar czf runs.tar.gz ./*.jsonl ./*.txt ./*.md
rm -f ./*.jsonl
