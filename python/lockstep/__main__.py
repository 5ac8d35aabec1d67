"""`lockstep ...` and `python -m lockstep ...`: the program of this installation."""

import os
import sys

from lockstep import _where


def main() -> None:
    """Becomes the program: its process, its standard streams, its exit code."""
    try:
        program = str(_where.program())
        os.execv(program, ["lockstep", *sys.argv[1:]])
    except (ImportError, OSError) as error:
        sys.exit(f"lockstep: the program cannot be started: {error}")


if __name__ == "__main__":
    main()
