#!/bin/bash
# Judge FlashInfer's sampling on this machine's GPU, downloading nothing; nvcc and ninja are needed.
#
#     bash tools/gpu/flashinfer.sh FOLDER OUT [SECONDS]
#
# FOLDER is what tools/gpu/make_offline_bundle.py and then tools/gpu/bring_flashinfer.py gathered. OUT gets proof.txt,
# flashinfer.jsonl and flashinfer.txt. The run stops after SECONDS (440), installing included; `verispec run --resume`
# completes it.
set -euo pipefail
bring=$(realpath "${1:?usage: bash tools/gpu/flashinfer.sh FOLDER OUT [SECONDS]}")
out=$(realpath "${2:?usage: bash tools/gpu/flashinfer.sh FOLDER OUT [SECONDS]}")
limit=${3:-440}
project=$(cd "$(dirname "$0")/../.." && pwd)
packages=${TMPDIR:-/tmp}/verispec-flashinfer
python3 -m pip install -q --no-index --no-deps --find-links "$bring/wheels" --target "$packages" \
    flashinfer-python apache-tvm-ffi nvidia-ml-py tabulate
PYTHONPATH=$packages python3 -c "import flashinfer.sampling; flashinfer.sampling.get_sampling_module()" &
bin=$(bash "$project/tools/gpu/environment.sh" "$bring")
echo "installed after $SECONDS s"
wait $!
echo "built after $SECONDS s"
export PYTHONPATH=$packages OMP_NUM_THREADS=1
cd "$out"  # no source folder of the project is on the path
"$bin/python" "$project/docs/verdicts/proofs/flashinfer_0_7_2.py" 2>&1 | tee proof.txt
"$bin/verispec" run --engine flashinfer --only "sampler/apply_top_k_top_p*" --only "sampler/whole_sampler*" --timeout 300 \
    -n "$(nproc --all)" --max-time $((limit - SECONDS)) --out flashinfer.jsonl >flashinfer.txt 2>&1 || true
tail -n 100 flashinfer.txt
echo "ended after $SECONDS s"
