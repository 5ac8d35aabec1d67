"""Errors of the library, with the text that it gives.

Every error is a :class:`LockstepError`. Its text says where it is, what was expected and what to
do. If it is about a key of a configuration, or a line of a file, ``key``, ``file`` and ``line`` say
which.
"""

from __future__ import annotations

from typing import Dict, Optional, Type


class LockstepError(Exception):
    """What all errors of the library are.

    Attributes:
        code: the library's status, such as ``-2``.
        key: the configuration's key that is wrong, such as ``"optim.lr"``, or None.
        file: the file of which a line is wrong, or None.
        line: its line, from 1, or None.
    """

    code = 0

    def __init__(self, text: str, key: Optional[str] = None, file: Optional[str] = None,
                 line: Optional[int] = None) -> None:
        super().__init__(text)
        self.key, self.file, self.line = key, file, line


class ArgumentError(LockstepError, ValueError):
    """An argument is out of its domain: a shape, a type, a name."""


class ConfigError(LockstepError, ValueError):
    """A key of the configuration is wrong."""


class LayoutError(LockstepError, ValueError):
    """The recipe does not admit this layout; the text names the nearest one that works."""


class DataError(LockstepError):
    """A corpus, a token store or a tokenizer is malformed, or does not fit."""


class CheckpointError(LockstepError):
    """A checkpoint is damaged, or belongs to another recipe."""


class IOFailure(LockstepError, OSError):
    """The system refused to read or write."""


class NoSpaceError(IOFailure):
    """The disk is full."""


class OutOfMemoryError(LockstepError, MemoryError):
    """Memory could not be had."""


class CommError(LockstepError):
    """Ranks could not communicate: one is late, or has ended."""


class NumericError(LockstepError, ArithmeticError):
    """A loss or gradient is not finite, or copies of the state differ."""


class Stopped(LockstepError):
    """Stopped on request, or at a limit of time."""


class NotSupportedError(LockstepError, NotImplementedError):
    """This build or machine lacks what was asked for."""


class BusyError(LockstepError):
    """Another process writes there."""


class ClosedError(LockstepError, ValueError):
    """The run was closed."""


_BY_CODE: Dict[int, Type[LockstepError]] = {
    -1: ArgumentError,
    -2: ConfigError,
    -3: LayoutError,
    -4: DataError,
    -5: CheckpointError,
    -6: IOFailure,
    -7: NoSpaceError,
    -8: OutOfMemoryError,
    -9: CommError,
    -10: NumericError,
    -11: Stopped,
    -12: NotSupportedError,
    -13: BusyError,
}
for _code, _class in _BY_CODE.items():
    _class.code = _code


def from_status(code: int, text: str, key: Optional[str] = None, file: Optional[str] = None,
                line: Optional[int] = None) -> LockstepError:
    """The exception of a status of the library."""
    return _BY_CODE.get(code, LockstepError)(text, key, file, line)
