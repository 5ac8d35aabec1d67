"""Where the library and the program of this installation lie.

A wheel has them in lockstep/_native: once without MPI and, if it was built where MPI is, once more
in _native/mpi, which needs the machine's own MPI. A clone has them in its build folder.
"""

import ctypes
import os
import pathlib

LIBRARY = "liblockstep.so.0"
PROGRAM = "lockstep"
# What launchers of MPI set begins so; the library itself judges (ls_mpi_launched).
LAUNCHERS = ("OMPI_", "PMI", "SLURM_")

_package = pathlib.Path(__file__).resolve().parent
_native = _package / "_native"
_clone = _package.parents[1]


def library() -> pathlib.Path:
    """The shared library to load, a path: $LOCKSTEP_LIBRARY if it is set; with MPI only if a
    launcher (mpirun, srun) started this process."""
    if os.environ.get("LOCKSTEP_LIBRARY"):
        return pathlib.Path(os.environ["LOCKSTEP_LIBRARY"])
    alone = _native / LIBRARY
    with_mpi = _native / "mpi" / LIBRARY
    if with_mpi.exists() and any(name.startswith(LAUNCHERS) for name in os.environ):
        launched = ctypes.CDLL(str(alone)).ls_mpi_launched
        launched.restype = ctypes.c_bool
        if launched():
            return with_mpi
    return _there(alone, _clone / "build" / LIBRARY)


def program() -> pathlib.Path:
    """The program `lockstep`, a path: with MPI if this machine has it."""
    with_mpi = _native / "mpi" / PROGRAM
    if with_mpi.exists() and _loads(with_mpi.with_name(LIBRARY)):
        return with_mpi
    return _there(_native / PROGRAM, _clone / "build" / PROGRAM)


def _loads(path: pathlib.Path) -> bool:
    try:
        ctypes.CDLL(str(path))
    except OSError:
        return False
    return True


def _there(*paths: pathlib.Path) -> pathlib.Path:
    for path in paths:
        if path.exists():
            return path
    looked = " and ".join(map(str, paths))
    raise ImportError(f"lockstep: {paths[0].name} is not there (looked for {looked}): run make in the "
                      "clone, or pip install it")
