#!/bin/sh
# Runs a program of tools/ that needs Python packages, such as interop.py: by $PYTHON, or by an
# environment of its own outside of the tree, which is made with pip where it is not there yet.
#
#   tools/interop.sh PROGRAM [argument]...
set -eu
# Of TRL interop_trl.py uses private parts, which change between versions.
packages="torch transformers tokenizers tiktoken trl==1.16.* peft bitsandbytes safetensors numpy gguf pyarrow torchft xxhash moto[server] boto3"
if [ -z "${PYTHON:-}" ]; then
    place=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/interop
    PYTHON=$place/bin/python
    if [ "$(cat "$place/packages" 2>/dev/null)" != "$packages" ]; then
        python3 -m venv "$place"
        set -f # 1.16.* is no pattern of files
        # shellcheck disable=SC2086 # each is a word
        "$PYTHON" -m pip install --quiet --extra-index-url https://download.pytorch.org/whl/cpu $packages
        echo "$packages" > "$place/packages"
    fi
fi
program=$1
shift
exec "$PYTHON" "$(dirname "$0")/$program" "$@"
