"""Lockstep trains large language models: however the work is cut, the answer is the same, bit for
bit.

::

    import lockstep as ls
    run = ls.Run("cfg.yaml", {"train.steps": 100, "parallel.dp": 2})
    for m in run: print(m.step, m.loss)

:class:`Run` trains, :class:`Model` evaluates and writes, :func:`from_pretrained` begins from a
model of another program. Errors are in :mod:`lockstep.errors`. Arrays need numpy; nothing needs
torch.
"""

from .errors import (ArgumentError, BusyError, CheckpointError, ClosedError, CommError, ConfigError,
                     DataError, IOFailure, LayoutError, LockstepError, NoSpaceError,
                     NotSupportedError, NumericError, OutOfMemoryError, Stopped)
from .training import Evaluation, Generated, Model, Run, Step, from_pretrained
from .tensor import Params, Tensor
