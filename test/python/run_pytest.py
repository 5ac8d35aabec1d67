#!/usr/bin/env python3
"""Runs the tests of the Python package: pytest over this folder.

    test/python/run_pytest.py [--package FOLDER] [ARGUMENT OF PYTEST ...]

Without --package the clone's python/ is tested, with the library of $BUILD. FOLDER is where a wheel
was unpacked (tools/check-wheel.sh). Any Python that has pytest and numpy will do: $PYTHON, the one
that runs this, or the system's. Without one nothing is run, and a line says so.
"""

import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FINDS = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('pytest', 'numpy'))))"
BUILD = (ROOT / os.environ.get("BUILD", "build")).resolve()


def python():
    """The first Python that has what the tests need, or None."""
    for name in filter(None, (os.environ.get("PYTHON"), sys.executable, "/usr/bin/python3")):
        try:
            done = subprocess.run([name, "-c", FINDS], capture_output=True, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return name
    return None


def sanitizers(library):
    """The libraries of sanitizers that a library was built with: they have to be loaded first."""
    needed = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=False)
    return re.findall(r"lib[atu]b?san\S* => (\S+)", needed.stdout)


def environment(package):
    """Of the tests: where the package is, and nothing of the user's. Who runs this program knows its
    processes by $LOCKSTEP_TEST: without it they would seem to do nothing (tools/run-tests.py)."""
    variables = {name: value for name, value in os.environ.items()
                 if not name.startswith(("PYTEST", "PYTHON", "LOCKSTEP")) or name == "LOCKSTEP_TEST"}
    variables.update(PYTHONPATH=str(package or ROOT / "python"), PYTHONDONTWRITEBYTECODE="1",
                     PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", OMP_WAIT_POLICY="passive",
                     LOCKSTEP_PEAK_FLOPS="1e12", TESTED_CLONE=str(ROOT))
    if not package:
        library = BUILD / "liblockstep.so.0"
        variables.update(LOCKSTEP_LIBRARY=str(library), LOCKSTEP=str(BUILD / "lockstep"),
                         LD_PRELOAD=" ".join(sanitizers(library)))
        # Python itself leaves memory behind.
        variables["ASAN_OPTIONS"] = "detect_leaks=0:" + variables.get("ASAN_OPTIONS", "")
    return variables


def main():
    words = sys.argv[1:]
    package = pathlib.Path(words[1]).resolve() if words[:1] == ["--package"] else None
    words = words[2:] if package else words
    found = python()
    if not found:
        print("SKIPPED: the Python package: no Python here has pytest and numpy (apt-get install "
              "python3-pytest python3-numpy)")
        return 0
    command = [found, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(HERE), "-c",
               os.devnull, *(words or [str(HERE)])]
    return subprocess.run(command, cwd=HERE, env=environment(package), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
