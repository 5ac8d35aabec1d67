#!/bin/bash
# Builds the wheel, twice if the tree is committed, and uses it in an environment that has nothing
# else: the program, the package without numpy, the tests of the package, and ranks of MPI.
#
#   tools/check-wheel.sh [--quick]     --quick: without the second build
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

wheel=$(make -s wheel | tail -n 1)
echo "$(basename "$wheel"): $(stat -c %s "$wheel") bytes"

# The same bytes from another folder.
if [ "${1:-}" != --quick ] && git diff --quiet HEAD; then
    git clone -q . "$folder/clone"
    make -s -C "$folder/clone" wheel >"$folder/log" 2>&1 || { tail -n 40 "$folder/log"; exit 1; }
    cmp "$wheel" "$folder/clone/$wheel"
    echo "built again in another folder: the same bytes"
    rm -rf "$folder/clone"
fi

python3 -m venv --without-pip "$folder/env"
site=$(echo "$folder"/env/lib/python3*/site-packages)
tools/python_wheel.py unpack "$wheel" "$site"

# What its files need is inside, or on every machine. A wheel that lacks one is found.
tools/python_wheel.py closed "$site"
mv "$site/lockstep/_native/libfyaml.so.0" "$folder/"
if tools/python_wheel.py closed "$site" 2>/dev/null; then
    echo "libfyaml.so.0 was taken out, and nobody missed it" >&2
    exit 1
fi
mv "$folder/libfyaml.so.0" "$site/lockstep/_native/"

alone() { (cd "$folder" && env -i HOME="$folder" LANG=C.UTF-8 "$folder/env/bin/python" "$@"); }
alone -m lockstep --version
# So is the library that it loads by itself.
alone -c 'import os, lockstep.__main__ as main; os.environ["LD_DEBUG"] = "files"; main.main()' doctor \
    >"$folder/doctor" 2>&1
grep -q "_native/.*libdnnl.so" "$folder/doctor" || { echo "doctor did not load the oneDNN of the wheel" >&2; exit 1; }
alone - <<'END'
import sys
import lockstep as ls
open("text.txt", "w").write("one and one are two. " * 200)
ls.data.prepare("text.txt", "text", validation=0)
recipe = {"model": {"arch": "gpt2", "layers": 2, "channels": 32, "heads": 4, "context": 32},
          "data": {"train": "text_train", "sequence": 16}, "batch": {"global": 4},
          "numerics": {"arithmetic": "fma"}}
assert ls.verify(recipe, layouts=2, ranks=2, steps=2)
assert ls.layout(recipe, {"parallel.dp": 2}).ranks == 2
assert "numpy" not in sys.modules
print("without numpy: ok")
END
test/python/run_pytest.py --package "$site"

# Under a launcher the library with MPI is loaded, otherwise never. Each process has a file: lines
# that two of them print through mpirun may be cut into each other.
shown='import lockstep, os, sys; lockstep.__version__
maps = open("/proc/self/maps").read()
print([l.split()[-1].split("/_native/")[1] for l in maps.splitlines() if "liblockstep" in l][0],
      "libmpi" in maps, file=open(sys.argv[1] + os.environ.get("OMPI_COMM_WORLD_RANK", ""), "w"))'
loads() {
    [ "$(cat "$folder/$1")" = "$2" ] || { echo "loaded: $(cat "$folder/$1"): expected $2" >&2; exit 1; }
}
alone -c "$shown" "$folder/alone"
loads alone "liblockstep.so.0 False"
if command -v mpirun >/dev/null && [ -d "$site/lockstep/_native/mpi" ]; then
    env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 \
        "$folder/env/bin/python" -c "$shown" "$folder/rank"
    loads rank0 "mpi/liblockstep.so.0 True"
    loads rank1 "mpi/liblockstep.so.0 True"
    echo "under mpirun: the machine's MPI"
fi
if python3 -m pip --version >/dev/null 2>&1; then
    python3 -m pip install -q --no-index --disable-pip-version-check --target "$folder/target" "$wheel"
    PYTHONPATH=$folder/target "$folder/target/bin/lockstep" --version
fi
