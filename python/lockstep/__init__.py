"""Lockstep trains large language models across many ranks: however the work is cut, the same bits.

    import lockstep as ls

    run = ls.Run("cfg.yaml", {"train.steps": 100, "parallel.dp": 2})
    for m in run:
        print(m.step, m.loss)

Everything here is loaded when it is first used: importing the package loads no library and no
numpy. doc/python.md has the whole.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, List

# Public name -> the module that has it; "" for a module itself.
_NAMES = {
    "Run": "training", "Model": "training", "from_pretrained": "training", "Step": "training",
    "Evaluation": "training", "Generated": "training", "Score": "training", "Params": "tensor", "Tensor": "tensor",
    "plan": "_plan", "Plan": "_plan", "Candidate": "_plan", "layout": "_plan", "Layout": "_plan",
    "verify": "_compare", "Verification": "_compare", "Verified": "_compare", "diff": "_compare",
    "Difference": "_compare", "audit": "_compare", "Audit": "_compare", "report": "_compare",
    "Table": "_pictures", "Picture": "_pictures",
    "convert": "", "data": "", "errors": "", "preference": "", "rl": "",
    "LockstepError": "errors", "ArgumentError": "errors", "ConfigError": "errors",
    "LayoutError": "errors", "DataError": "errors", "CheckpointError": "errors",
    "IOFailure": "errors", "NoSpaceError": "errors", "OutOfMemoryError": "errors",
    "CommError": "errors", "NumericError": "errors", "Stopped": "errors",
    "NotSupportedError": "errors", "BusyError": "errors", "ClosedError": "errors",
}
__all__ = [*sorted(_NAMES), "__version__"]

if TYPE_CHECKING:  # what type checkers and editors read
    from . import convert as convert, data as data, errors as errors
    from . import preference as preference, rl as rl
    from ._compare import (Audit as Audit, Difference as Difference, Verification as Verification,
                           Verified as Verified, audit as audit, diff as diff, report as report,
                           verify as verify)
    from ._plan import (Candidate as Candidate, Layout as Layout, Plan as Plan, layout as layout,
                        plan as plan)
    from ._pictures import Picture as Picture, Table as Table
    from .errors import (ArgumentError as ArgumentError, BusyError as BusyError,
                         CheckpointError as CheckpointError, ClosedError as ClosedError,
                         CommError as CommError, ConfigError as ConfigError,
                         DataError as DataError, IOFailure as IOFailure,
                         LayoutError as LayoutError, LockstepError as LockstepError,
                         NoSpaceError as NoSpaceError, NotSupportedError as NotSupportedError,
                         NumericError as NumericError, OutOfMemoryError as OutOfMemoryError,
                         Stopped as Stopped)
    from .tensor import Params as Params, Tensor as Tensor
    from .training import (Evaluation as Evaluation, Generated as Generated, Model as Model,
                           Run as Run, Score as Score, Step as Step, from_pretrained as from_pretrained)

    __version__: str


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from . import _lib
        value: Any = _lib.library().ls_version().decode()
    elif name in _NAMES:
        module = importlib.import_module(f"{__name__}.{_NAMES[name] or name}")
        value = getattr(module, name) if _NAMES[name] else module
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return __all__
