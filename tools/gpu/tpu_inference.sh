#!/bin/bash
# Judge tpu-inference's sampler on this machine's GPU by JAX, downloading nothing.
#
#     bash tools/gpu/tpu_inference.sh FOLDER OUT [SECONDS]
#
# FOLDER is what tools/gpu/make_offline_bundle.py and then tools/gpu/bring_tpu_inference.py gathered. OUT gets
# tpu-inference.jsonl and tpu-inference.txt. The run stops after SECONDS (440), installing included; `verispec run
# --resume` completes it.
set -euo pipefail
bring=$(realpath "${1:?usage: bash tools/gpu/tpu_inference.sh FOLDER OUT [SECONDS]}")
out=$(realpath "${2:?usage: bash tools/gpu/tpu_inference.sh FOLDER OUT [SECONDS]}")
limit=${3:-440}
project=$(cd "$(dirname "$0")/../.." && pwd)
packages=${TMPDIR:-/tmp}/verispec-tpu-inference
python3 -m pip install -q --no-index --no-deps --find-links "$bring/wheels" --target "$packages" \
    -r "$bring/tpu-inference.txt"
bin=$(bash "$project/tools/gpu/environment.sh" "$bring")
echo "installed after $SECONDS s"
export PYTHONPATH=$packages OMP_NUM_THREADS=1
cd "$out"  # no source folder of the project is on the path
"$bin/verispec" run --engine tpu-inference --device cuda --only "sampler/whole_sampler:*" --timeout 300 \
    --expect "$project/docs/verdicts/tpu-inference-0.32.0.toml" -n 4 --max-time $((limit - SECONDS)) \
    --out tpu-inference.jsonl >tpu-inference.txt 2>&1 || true
tail -n 100 tpu-inference.txt
echo "ended after $SECONDS s"
