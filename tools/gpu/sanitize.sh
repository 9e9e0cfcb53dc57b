#!/bin/bash
# Run the reference's Triton kernels under compute-sanitizer: out-of-bounds accesses, races, uninitialised reads.
#
#     bash tools/gpu/sanitize.sh OUT [TOOL...]
#
# TOOL is memcheck, racecheck, initcheck or synccheck; memcheck and racecheck if omitted. Needs the CUDA toolkit, and as
# PYTHON a python with verispec, python3 if unset. The cases are the boundaries of the op's oracle, edges of its blocks
# (ANY-1) and sizes around its tiles (ANY-5); OPS chooses ops, such as "verify_*". Each case runs in a process of its own,
# as many at a time as there are cores, for at most LIMIT seconds (300). OUT gets a log per tool and case. Prints one line
# for each: clean, findings, failed, or out of time and whether there was a finding until then.
set -euo pipefail
out=$(realpath "${1:?usage: bash tools/gpu/sanitize.sh OUT [TOOL...]}")
shift
export out PYTHON=${PYTHON:-python3} LIMIT=${LIMIT:-300}
# With torch's cache an access past the end of a tensor lands in other memory of the cache, which is no error.
export PYTORCH_NO_CUDA_MEMORY_CACHING=1
suites=$("$PYTHON" -c "from importlib import resources; print(resources.files('verispec.suites'))")
export suites
cases=$("$PYTHON" -m verispec run --collect --engine reference:triton --only "sampler/${OPS:-*}:ANY-[15]:*" |
    grep '^sampler/' | grep -v whole_sampler)

one() {
    local code=0 log
    log=$out/$1-$(tr -c 'A-Za-z0-9\n' - <<<"$2").log
    timeout "$LIMIT" compute-sanitizer --tool "$1" --error-exitcode 9 "$PYTHON" -m pytest -c "$suites/pytest.ini" \
        --rootdir="$suites" "$suites/sampler" -p no:cacheprovider --engine reference:triton --device cuda \
        --only "$2" --exact >"$log" 2>&1 || code=$?
    case $code in
        0) echo "$1 $2: clean" ;;
        9) echo "$1 $2: findings" && grep -m 4 '=========' "$log" || true ;;
        124) echo "$1 $2: out of time, $(grep -cE '========= .*(Error|hazard|Invalid)' "$log" || true) findings" ;;
        *) echo "$1 $2: failed with $code" && tail -n 3 "$log" ;;
    esac
}
export -f one
for tool in "${@:-memcheck racecheck}"; do
    for kind in $tool; do
        while read -r case; do printf '%s\0%s\0' "$kind" "$case"; done <<<"$cases"
    done
done | xargs -0 -P "$(nproc --all)" -n 2 bash -c 'one "$@"' one
