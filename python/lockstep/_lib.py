"""The shared library: its functions by ctypes, and a session as an object.

ctypes releases the interpreter's lock in every call. No call here lasts longer than a fraction of a
second: ``ls_session_wait`` returns now and then, so that signals are seen and events are heard.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import math
import os
import signal
import sys
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from . import _where, errors

DIMS_MAX = 8
WAITS, EVENT = 1, 2
GIVEN_UP = 6  # LS_CAUSE_GIVEN_UP of lockstep/base.h
INTERRUPTED = ("generate", "logprobs", "score", "evaluate")  # orders that Ctrl-C ends


class Error(ctypes.Structure):
    """``struct ls_error`` of lockstep/base.h."""

    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 1024),
                ("key", ctypes.c_char * 64), ("reason", ctypes.c_int), ("unfiled", ctypes.c_int),
                ("file", ctypes.c_int), ("file_bytes", ctypes.c_int), ("line", ctypes.c_int64),
                ("number", ctypes.c_int), ("cause", ctypes.c_int), ("host", ctypes.c_char * 64)]

    def raised(self, status: int) -> errors.LockstepError:
        """The exception that a call with this status raises."""
        file = ctypes.create_string_buffer(1024)
        line = library().ls_error_place(ctypes.byref(self), file, len(file))
        text, key, name = (part.decode("utf-8", "replace")
                           for part in (self.text, self.key, file.value))
        return errors.from_status(status, text, key or None, name or None, line or None)


class Array(ctypes.Structure):
    """``struct ls_array`` of lockstep/session.h."""

    values: Any  # whose memory it shows
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("dims", ctypes.c_int),
        ("shape", ctypes.c_int64 * DIMS_MAX),
        ("data", ctypes.c_void_p),
    ]


class Report(ctypes.Structure):
    """``struct ls_session_report`` of lockstep/session.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("step", "samples", "tokens", "sequences")),
        *((name, ctypes.c_double) for name in (
            "loss", "grad_norm", "loss_scale", "lr", "step_s", "tokens_per_s", "peak_share",
            "weight")),
        ("counted", ctypes.c_int64), ("skipped", ctypes.c_bool), ("ended", ctypes.c_bool),
        ("hash", ctypes.c_char * 33)]


def _launched() -> bool:
    # As ls_mpi_launched judges, which is not loaded yet.
    def above(name: str, least: int) -> bool:
        value = os.environ.get(name, "")
        return value.isdigit() and int(value) > least

    return (above("OMPI_COMM_WORLD_SIZE", 0) or above("PMI_SIZE", 0) or "PMIX_RANK" in os.environ or
            "PMI_RANK" in os.environ or
            ("SLURM_PROCID" in os.environ and above("SLURM_STEP_NUM_TASKS", 1)))


def _load() -> ctypes.CDLL:
    # Threads of OpenMP that spin keep ranks that share a machine from each other.
    if _launched():
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    path = _where.library()
    try:
        # MPI's own plug-ins look for its symbols among those of the process.
        return ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL if _launched() else ctypes.DEFAULT_MODE)
    except OSError as error:
        raise ImportError(f"the library {path} cannot be loaded: {error}. Install the package, run "
                          "make, or set LOCKSTEP_LIBRARY") from error


Heard = Callable[[Report], None]
_library: Optional[ctypes.CDLL] = None
_library_lock = threading.Lock()


def library() -> ctypes.CDLL:
    """The library, loaded when it is first asked for."""
    global _library
    if _library is not None:  # a fork may have the lock that another thread had
        return _library
    with _library_lock:
        if _library is None:
            lib = _load()
            pointer, error = ctypes.c_void_p, ctypes.POINTER(Error)
            text, number = ctypes.c_char_p, ctypes.c_int
            arrays = ctypes.POINTER(Array)
            prototypes: Dict[str, Tuple[Any, List[Any]]] = {
                "ls_session_new": (number, [ctypes.POINTER(pointer), error]),
                "ls_session_free": (None, [pointer]),
                "ls_session_ask": (number, [pointer, text, text, arrays, number, error]),
                "ls_session_wait": (number, [pointer, ctypes.c_double, ctypes.POINTER(text), error]),
                "ls_session_stop": (None, [pointer]),
                "ls_session_interrupt": (None, [pointer]),
                "ls_session_answer": (text, [pointer]),
                "ls_session_report": (ctypes.c_bool, [pointer, ctypes.POINTER(Report)]),
                "ls_session_array": (ctypes.c_bool, [pointer, text, arrays]),
                "ls_session_unview": (None, [pointer, text]),
                "ls_session_leave": (None, []),
                "ls_session_part": (ctypes.c_bool, [text, ctypes.c_bool]),
                "ls_error_place": (ctypes.c_int64, [error, text, ctypes.c_size_t]),
                "ls_version": (text, []),
            }
            for name, (result, arguments) in prototypes.items():
                function = getattr(lib, name)
                function.restype, function.argtypes = result, arguments
            _library = lib
        return _library


def numpy() -> Any:
    """numpy, which arrays need and the rest does not."""
    try:
        import numpy as np
    except ImportError as error:
        raise ImportError("arrays need numpy: pip install numpy") from error
    return np


NUMPY_TYPES = {"f4": "float32", "f2": "float16", "f8": "float64", "bf16": "uint16", "i1": "int8",
               "i4": "int32", "i8": "int64", "u1": "uint8", "u2": "uint16", "u8": "uint64"}
ITEM_BYTES = {"f4": 4, "f2": 2, "f8": 8, "bf16": 2, "i1": 1, "i4": 4, "i8": 8, "u1": 1, "u2": 2,
              "u8": 8}


def array_of(name: str, values: Any, dtype: str) -> Array:
    """What stands in a numpy array, dense and of that type, for one call."""
    out = Array(name.encode(), dtype.encode(), values.ndim)
    for i, size in enumerate(values.shape):
        out.shape[i] = size
    out.data = values.ctypes.data
    out.values = values  # stays as long as this does
    return out


@contextlib.contextmanager
def uninterrupted(first: Callable[[], None] = lambda: None) -> Iterator[List[int]]:
    """For orders that belong together: Ctrl-C calls `first`, and is raised behind the last one;
    twice, at once. Gives the list of signals that were heard."""
    before: Any = signal.getsignal(signal.SIGINT)
    heard: List[int] = []
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield heard
        return

    def hear(number: int, frame: Any) -> None:
        heard.append(number)
        if len(heard) > 1:
            before(number, frame)
        first()

    hears = True
    try:
        signal.signal(signal.SIGINT, hear)
    except ValueError:  # a subinterpreter's main thread gets no signals
        hears = False
    try:
        yield heard
    finally:
        if hears:
            signal.signal(signal.SIGINT, before)
        if len(heard) == 1:
            before(heard[0], None)


class _Dropped(weakref.ref):  # type: ignore[type-arg]
    """Frees a session that nobody holds any more. It is what ls_session_free is called with: in a
    ``__del__``, which has lines of Python, Ctrl-C would be printed and lost."""

    __slots__ = ("_as_parameter_",)
    _as_parameter_: Any


class Unviewed(weakref.ref):  # type: ignore[type-arg]
    """A view of that tensor, which :attr:`Session.unviewed` gets once nobody holds it any more."""

    __slots__ = ("name",)
    name: str


_living: Set[_Dropped] = set()
_lent_for_ever: List[Any] = []  # arrays that a rank which did not return may still read


class Session:
    """A session of lockstep/session.h: one order after the other, in the caller's thread.

    on_event is called with each event as a dict, between two waits. Ctrl-C makes a step the last
    one, ends what :data:`INTERRUPTED` names at the next token or batch, waits for the order, and is
    raised again then; twice, at once. An answer is of the order that the same thread asked: while it
    is read no other thread's order is taken.
    """

    def __init__(self) -> None:
        self._handle = ctypes.c_void_p()
        error = Error()
        self._pid = os.getpid()
        status = library().ls_session_new(ctypes.byref(self._handle), ctypes.byref(error))
        if status:
            raise error.raised(status)
        self._dropped = _Dropped(self, library().ls_session_free)
        self._dropped._as_parameter_ = self._handle
        _living.difference_update([one for one in list(_living) if one() is None])
        _living.add(self._dropped)
        self.on_event: Optional[Callable[[Dict[str, Any]], None]] = None
        self.views: Set[Unviewed] = set()
        self.unviewed: List[Any] = []  # of these
        self._under_way: Dict[object, None] = {}  # the first one's order is carried out
        self.shared = False  # other processes have ranks of it, and ask the same
        self._lent: List[Array] = []  # to orders that are not known to be over
        self._unheard: Optional[Heard] = None  # of the last order

    def free(self) -> None:
        """Ends the ranks without saving, as dropping it does. No order follows."""
        handle = self._handle
        self.abandon()
        library().ls_session_free(handle)

    def abandon(self) -> None:
        """Leaves ranks as they are, because other processes do not end with them."""
        self._handle = self._dropped._as_parameter_ = ctypes.c_void_p()

    def stop(self) -> None:
        """The step under way is the last one. From any thread."""
        library().ls_session_stop(self._handle)

    def _hear(self, event: bytes) -> None:
        if self.on_event is not None:
            self.on_event(json.loads(event))

    def _carry_out(self, verb: str, order: Sequence[Any],
                   heard: Optional[Heard] = None) -> Dict[str, Any]:
        """Hands an order over, waits until it is over, and returns its answer. heard: as of
        :meth:`ask`."""
        lib, error, event = library(), Error(), ctypes.c_char_p()
        asked, refused, turn = False, True, WAITS
        interrupt: Optional[BaseException] = None
        cause: Optional[BaseException] = None
        answer: Dict[str, Any] = {}
        while turn in (WAITS, EVENT):
            try:
                if not asked:
                    asked = True  # Ctrl-C within the call leaves an order under way
                    turn = lib.ls_session_ask(self._handle, *order, ctypes.byref(error)) or WAITS
                    self._unheard = heard if turn == WAITS else self._unheard
                while turn in (WAITS, EVENT):  # all of the loop is within "try"
                    refused = False
                    turn = lib.ls_session_wait(self._handle, 0.1, ctypes.byref(event),
                                               ctypes.byref(error))
                    if turn == EVENT:
                        self._hear(event.value or b"{}")
            except BaseException as raised:  # a signal's, or a callback's: the order goes on
                # a step that is under way counts; of the others nothing is given back
                if not isinstance(raised, Exception) or verb in INTERRUPTED:
                    (lib.ls_session_stop if verb == "step" else lib.ls_session_interrupt)(
                        self._handle)
                if isinstance(raised, KeyboardInterrupt):
                    if isinstance(interrupt, KeyboardInterrupt):
                        raise  # asked twice
                    interrupt, cause = raised, interrupt  # before a callback's, which waits
                interrupt = interrupt or raised
        failure: Optional[errors.LockstepError] = None
        if turn:
            failure = error.raised(turn)
            if error.cause == GIVEN_UP:
                _lent_for_ever.append(self._lent)
            if refused:
                self._lent = self._lent[:len(self._lent) - order[-1]]
        elif heard is None:
            answer = json.loads(lib.ls_session_answer(self._handle).decode())
        else:
            self.settle()
        if not refused:
            self._lent = []  # this order is over, and so are those before it
        try:
            if interrupt is not None:
                raise interrupt from failure or cause
            if isinstance(failure, errors.Stopped) and verb in INTERRUPTED:
                raise KeyboardInterrupt(str(failure)) from None  # another process's
            if failure is not None:
                raise failure
            return answer
        finally:
            interrupt = cause = failure = None  # they hold this frame, and all that its callers hold

    def settle(self) -> None:
        """Hears the report of the last order, if nobody has: Ctrl-C may have left it. Another thread may
        do so meanwhile, and ask the next one."""
        heard = self._unheard
        if heard is None:
            return
        report = Report()
        if library().ls_session_report(self._handle, ctypes.byref(report)):
            heard(report)
            if self._unheard is heard:
                self._unheard = None

    def ask(self, verb: str, options: Optional[Dict[str, Any]] = None,
            arrays: Optional[List[Array]] = None, wanted: Sequence[str] = (), *, copied: bool = True,
            heard: Optional[Heard] = None, begun: Callable[[], None] = lambda: None) -> Dict[str, Any]:
        """Does the order; returns its answer, and among it the arrays wanted: copies, or what
        :meth:`raw` gives. Ctrl-C between any two lines leaves the session to the next order. heard:
        called with the report of an order that was done, in place of an answer, also if an interrupt
        is raised behind it. begun: called first, if no other order is under way."""
        mine = object()
        try:
            self._under_way[mine] = None
            if list(self._under_way)[0] is not mine and self._pid == os.getpid():
                raise errors.ArgumentError(
                    f"{verb}: another order is under way, in another thread, or one that on_event hears "
                    "of: a session does one thing at a time")
            if verb == "close":
                self._finish()
            begun()
            answer = self._ask(verb, options, arrays, heard)
            for name in wanted:
                answer[name] = self.array(name) if copied else self.raw(name)
            return answer
        finally:
            self._under_way.pop(mine, None)

    def _finish(self) -> None:
        """Waits for an order that Ctrl-C left under way. Another one leaves it so."""
        event, error, turn = ctypes.c_char_p(), Error(), WAITS
        while turn in (WAITS, EVENT) and self._pid == os.getpid():
            turn = library().ls_session_wait(self._handle, 0.1, ctypes.byref(event), ctypes.byref(error))
            if turn == EVENT:
                self._hear(event.value or b"{}")

    @contextlib.contextmanager
    def refusing(self, verb: str) -> Iterator[None]:
        """For checks before an order that other processes ask too: what fails here fails there."""
        try:
            yield
        except Exception as error:
            if self.shared:
                text = str(error).encode("ascii", "backslashreplace").decode().replace("\0", "\\0")
                self._ask(verb, {"refused": text or type(error).__name__}, None, None)
            raise

    def _ask(self, verb: str, options: Optional[Dict[str, Any]],
             arrays: Optional[List[Array]],
             heard: Optional[Heard]) -> Dict[str, Any]:
        lib = library()
        self.settle()
        while self.unviewed:
            view = self.unviewed.pop()
            self.views.discard(view)
            lib.ls_session_unview(self._handle, view.name.encode())
        given = arrays or []
        block = (Array * len(given))(*given) if given else None
        text = b""
        if options:
            with self.refusing(verb):
                text = json_text(verb, options)
        self._lent = self._lent + given  # Ctrl-C twice may leave an order before this one under way
        return self._carry_out(verb, (verb.encode(), text, block, len(given)), heard)

    def raw(self, name: str) -> Optional[Array]:
        """An array of the last answer: memory of the session, until the next order."""
        out = Array()
        found = library().ls_session_array(self._handle, name.encode(), ctypes.byref(out))
        return out if found else None

    def array(self, name: str) -> Any:
        """The same, copied to a numpy array (bf16 as uint16)."""
        np, raw = numpy(), self.raw(name)
        if raw is None:
            raise KeyError(name)
        dtype = (raw.dtype or b"").decode()
        shape = tuple(raw.shape[: raw.dims])
        out = np.empty(shape, dtype=NUMPY_TYPES[dtype])
        if out.nbytes:
            ctypes.memmove(out.ctypes.data, raw.data, out.nbytes)
        return out


def json_text(verb: str, options: Dict[str, Any]) -> bytes:
    """An order's options. What JSON has no way to say is an error that names it."""
    try:
        text = _encoder.encode(options)
    except TypeError as error:
        raise errors.ArgumentError(f"{verb}: {error}") from None
    except ValueError as error:
        try:
            odd = _odd(options)
        except RecursionError:  # it holds itself
            odd = ""
        raise errors.ArgumentError(f"{verb}: {odd or error}") from None
    if "\\u0000" in text or "\\ud" in text:
        odd = _odd(options)
        if odd:
            raise errors.ArgumentError(f"{verb}: {odd}")
    return text.encode()


def _odd(value: Any, name: str = "") -> str:
    """The first NaN, infinity, NUL or half of a character, and where it stands; "" without one."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{name}: {value}: expected a finite number"
    if isinstance(value, str) and "\0" in value:
        return f"{name}: {value[:64]!r}: expected a text without NUL bytes"
    if isinstance(value, str) and any("\ud800" <= one <= "\udfff" for one in value):
        return f"{name}: {value[:64]!r}: expected a text of whole characters, as UTF-8 has them"
    inner: List[Tuple[str, Any]] = []
    if isinstance(value, dict):
        inner = [(f"{name}.{key}" if name else str(key), one) for key, one in value.items()]
    elif isinstance(value, (list, tuple)):
        inner = [(f"{name}[{i}]", one) for i, one in enumerate(value)]
    return next((odd for odd in (_odd(one, where) for where, one in inner) if odd), "")


def _plain(value: Any) -> Any:
    """What JSON lacks: paths, and numpy's numbers."""
    if hasattr(value, "tolist"):
        try:
            return value.tolist()
        except RuntimeError as error:  # torch's, of a tensor that is not dense
            raise TypeError(f"got a {type(value).__name__} that has no list of numbers: expected a "
                            "dense one") from error
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{str(value)[:64]} is of type {type(value).__name__}: expected a text, a number, "
                    "a list or a dict")


_encoder = json.JSONEncoder(default=_plain, allow_nan=False)
_failure = ""  # what ends this process
opened: Set[Any] = set()  # runs and models that have ranks: weak references


def part(why: str, whole: bool) -> bool:
    """ls_session_part: whether all processes were ended by an error, and close together."""
    return _library is None or bool(_library.ls_session_part(why.encode("utf-8", "replace"), whole))


def _on_failure(kind: Any, value: Any, trace: Any, _before: Any = sys.excepthook) -> None:
    global _failure
    _failure = f"{kind.__name__}: {value}"
    for one in list(_living):
        one._as_parameter_ = None  # ranks may be stuck
    _before(kind, value, trace)


def _leave() -> None:
    # After an uncaught error other processes may be stuck: they are told, and the launcher ends them.
    if _failure:
        sys.stderr.flush()
        part(_failure, False)
    elif _library is not None and (
            not opened or part("its program ended, and did not close its run", True)):
        _library.ls_session_leave()


if _launched():
    sys.excepthook = _on_failure
    atexit.register(_leave)
