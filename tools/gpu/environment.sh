#!/bin/bash
# Install the checkout, editable, into an environment of its own from a bundle; print the folder of its commands.
#
#     bin=$(bash tools/gpu/environment.sh FOLDER)
set -euo pipefail
bring=$(realpath "${1:?usage: bash tools/gpu/environment.sh FOLDER}")
project=$(cd "$(dirname "$0")/../.." && pwd)
folder=${TMPDIR:-/tmp}/verispec-gpu
if [ ! -x "$folder/bin/verispec" ]; then
    python3 -m pip install -q --no-index --find-links "$bring/wheels" virtualenv >&2
    python3 -m virtualenv -q "$folder" >&2
    VERISPEC_BUNDLE=$bring/wheels "$folder/bin/python" "$project/tools/gpu/install.py" --editable >&2
fi
echo "$folder/bin"
