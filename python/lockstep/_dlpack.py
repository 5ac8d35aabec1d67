"""Memory of the library as a DLPack capsule, for torch and others; bf16, which numpy lacks, too."""

from __future__ import annotations

import atexit
import ctypes
import sys
from typing import Any, Dict, Sequence

from .errors import NotSupportedError

_CPU = 1
_CODES = {"f4": (2, 32), "f2": (2, 16), "f8": (2, 64), "bf16": (4, 16), "i4": (0, 32),
          "i8": (0, 64)}


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int),
                ("dtype", _Type), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

_alive: Dict[int, Any] = {}  # what capsules that others took still need


@_Deleter  # type: ignore
def _delete(managed: Any) -> None:
    _alive.pop(ctypes.addressof(managed.contents), None)


_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, _Destructor]
_api.PyCapsule_IsValid.restype = ctypes.c_int
_api.PyCapsule_IsValid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_api.PyInterpreterState_Get.restype = _api.PyInterpreterState_Main.restype = ctypes.c_void_p
# Before Python 3.12 a callback of ctypes runs in the main interpreter, and waits for a lock that the
# subinterpreter it is called from holds.
_deadlocks = (sys.version_info < (3, 12)
              and _api.PyInterpreterState_Get() != _api.PyInterpreterState_Main())


@_Destructor  # type: ignore
def _destroy(capsule: int) -> None:
    # Who took it has renamed it, and deletes it himself.
    if _api.PyCapsule_IsValid(capsule, b"dltensor"):
        _alive.pop(_api.PyCapsule_GetPointer(capsule, b"dltensor"), None)


# Who took a capsule may delete it while the interpreter ends, when these would be gone.
for _kept in (_delete, _destroy):
    _api.Py_IncRef(ctypes.py_object(_kept))


@atexit.register
def _leave() -> None:
    # No Python runs any more when what is alive now is deleted: it stays, and nobody is called.
    for entry in _alive.values():
        entry[0].deleter = _Deleter(0)
        _api.Py_IncRef(ctypes.py_object(entry))


def capsule(pointer: int, dtype: str, shape: Sequence[int], owner: Any) -> Any:
    """A capsule of dense memory that `owner` keeps."""
    if _deadlocks:
        raise NotSupportedError("DLPack in a subinterpreter: expected Python 3.12 or later, or the main "
                                "interpreter; numpy() gives the same memory")
    sizes = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    code, bits = _CODES[dtype]
    managed = _Managed()
    managed.tensor = _Tensor(pointer, _Device(_CPU, 0), len(shape), _Type(code, bits, 1), sizes,
                             None, 0)
    managed.deleter = _delete
    address = ctypes.addressof(managed)
    _alive[address] = (managed, sizes, owner)
    return _api.PyCapsule_New(address, b"dltensor", _destroy)
