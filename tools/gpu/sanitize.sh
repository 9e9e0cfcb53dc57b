#!/bin/bash
# Run the reference's Triton kernels under compute-sanitizer: out-of-bounds accesses, races, uninitialised reads.
#
#     bash tools/gpu/sanitize.sh OUT [TOOL...]
#
# TOOL is memcheck, racecheck, initcheck or synccheck; memcheck and racecheck if omitted. Needs the CUDA toolkit, and as
# PYTHON a python with verispec, python3 if unset. Each op runs in a process of its own, as many at a time as there are
# cores, for at most LIMIT seconds (300). The cases are the boundaries of the op's oracle and sizes around its tiles.
# OUT gets a log per tool and op. Prints one line for each: clean, findings, failed, or out of time.
set -euo pipefail
out=$(realpath "${1:?usage: bash tools/gpu/sanitize.sh OUT [TOOL...]}")
shift
export out PYTHON=${PYTHON:-python3} LIMIT=${LIMIT:-300}
# With torch's cache an access past the end of a tensor lands in other memory of the cache, which is no error.
export PYTORCH_NO_CUDA_MEMORY_CACHING=1
suites=$("$PYTHON" -c "from importlib import resources; print(resources.files('verispec.suites'))")
export suites
ops=$("$PYTHON" -c "from verispec.suites.sampler._calls import MAKERS; print(*MAKERS)")

one() {
    local code=0
    timeout "$LIMIT" compute-sanitizer --tool "$1" --error-exitcode 9 "$PYTHON" -m pytest -c "$suites/pytest.ini" \
        --rootdir="$suites" "$suites/sampler/test_every_op.py" -v -p no:cacheprovider --engine reference:triton \
        --device cuda --only "sampler/$2:ANY-5*" --only "sampler/$2:ANY-1:*" >"$out/$1-$2.log" 2>&1 || code=$?
    case $code in
        0) echo "$1 $2: clean" ;;
        9) echo "$1 $2: findings" && grep -m 4 '=========' "$out/$1-$2.log" || true ;;
        124) echo "$1 $2: out of time" ;;
        *) echo "$1 $2: failed with $code" && tail -n 3 "$out/$1-$2.log" ;;
    esac
}
export -f one
for tool in "${@:-memcheck racecheck}"; do
    for kind in $tool; do
        for op in $ops; do
            echo "$kind $op"
        done
    done
done | xargs -P "$(nproc --all)" -L 1 bash -c 'one "$@"' one
