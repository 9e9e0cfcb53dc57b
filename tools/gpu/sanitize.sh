#!/bin/bash
# Run the reference's Triton kernels under compute-sanitizer: out-of-bounds accesses, races, uninitialised reads.
#
#     bash tools/gpu/sanitize.sh [TOOL...]
#
# TOOL is memcheck, racecheck, initcheck or synccheck; memcheck and racecheck if omitted. Needs an installed verispec and
# the CUDA toolkit. The cases are small: each boundary of each op's oracle, once per poison pattern.
set -euo pipefail
suites=$(python3 -c "from importlib import resources; print(resources.files('verispec.suites'))")
for tool in "${@:-memcheck racecheck}"; do
    for kind in $tool; do
        echo "compute-sanitizer --tool $kind"
        compute-sanitizer --tool "$kind" --error-exitcode 9 python3 -m pytest -c "$suites/pytest.ini" \
            --rootdir="$suites" "$suites/sampler/test_every_op.py" -q --engine reference:triton --device cuda \
            --only 'sampler/*:ANY-5*'
    done
done
