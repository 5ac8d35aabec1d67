#!/bin/sh
# Runs tools/interop.py: by $PYTHON, or by an environment of its own outside of the tree, which is made
# once, with pip.
set -eu
if [ -z "${PYTHON:-}" ]; then
    place=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/interop
    PYTHON=$place/bin/python
    if ! [ -e "$place/ready" ]; then
        python3 -m venv "$place"
        "$PYTHON" -m pip install --quiet --extra-index-url https://download.pytorch.org/whl/cpu \
            torch transformers tokenizers safetensors numpy gguf
        touch "$place/ready"
    fi
fi
exec "$PYTHON" "$(dirname "$0")/interop.py" "$@"
