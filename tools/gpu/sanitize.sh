#!/bin/bash
# Run the reference's Triton kernels under compute-sanitizer: out-of-bounds accesses, races, uninitialised reads.
#
#     bash tools/gpu/sanitize.sh OUT [TOOL...]
#
# TOOL is memcheck, racecheck, initcheck or synccheck; memcheck and racecheck if omitted. Needs the CUDA toolkit, and as
# PYTHON a python with verispec, python3 if unset. Each clause of an op runs in a process of its own, as many at a time as
# there are cores, for at most LIMIT seconds (300). The cases are the boundaries of the op's oracle, edges of its blocks
# (ANY-1) and sizes around its tiles (ANY-5). OUT gets a log per tool, op and clause. Prints one line for each: clean,
# findings, failed, or out of time.
set -euo pipefail
out=$(realpath "${1:?usage: bash tools/gpu/sanitize.sh OUT [TOOL...]}")
shift
export out PYTHON=${PYTHON:-python3} LIMIT=${LIMIT:-300}
# With torch's cache an access past the end of a tensor lands in other memory of the cache, which is no error.
export PYTORCH_NO_CUDA_MEMORY_CACHING=1
suites=$("$PYTHON" -c "from importlib import resources; print(resources.files('verispec.suites'))")
export suites
clauses=$("$PYTHON" -m verispec run --collect --engine reference:triton --only "sampler/*:ANY-1:*" \
    --only "sampler/*:ANY-5:*" | sed -nE 's#^sampler/([^:]+):(ANY-[15]):.*#\1 \2#p' | grep -v whole_sampler | sort -u)

one() {
    local code=0
    timeout "$LIMIT" compute-sanitizer --tool "$1" --error-exitcode 9 "$PYTHON" -m pytest -c "$suites/pytest.ini" \
        --rootdir="$suites" "$suites/sampler" -v -p no:cacheprovider --engine reference:triton --device cuda \
        --only "sampler/$2:$3:*" >"$out/$1-$2-$3.log" 2>&1 || code=$?
    case $code in
        0) echo "$1 $2 $3: clean" ;;
        9) echo "$1 $2 $3: findings" && grep -m 4 '=========' "$out/$1-$2-$3.log" || true ;;
        124) echo "$1 $2 $3: out of time" ;;
        *) echo "$1 $2 $3: failed with $code" && tail -n 3 "$out/$1-$2-$3.log" ;;
    esac
}
export -f one
for tool in "${@:-memcheck racecheck}"; do
    for kind in $tool; do
        sed "s/^/$kind /" <<<"$clauses"
    done
done | xargs -P "$(nproc --all)" -L 1 bash -c 'one "$@"' one
