"""Tensors of a run or a model: parameters, gradients, what the optimizer keeps."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

from . import _dlpack
from ._arrays import floats, host
from ._lib import ITEM_BYTES, Array, Session, Unviewed, array_of, numpy
from .errors import ArgumentError

_NAMES = {"f4": "float32", "f2": "float16", "bf16": "bfloat16"}


class _View:
    """Memory of the library, which stays as long as this does."""

    def __init__(self, session: Session, name: str, raw: Array, trains: bool) -> None:
        self.session, self.trains = session, trains
        gone = Unviewed(self, session.unviewed.append)
        gone.name = name
        session.views.add(gone)
        self.dtype = (raw.dtype or b"").decode()
        self.shape = tuple(int(n) for n in raw.shape[: raw.dims])
        self.pointer = int(raw.data or 0)

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        letter = "u" if self.dtype == "bf16" else self.dtype[0]
        return {"version": 3, "shape": self.shape, "data": (self.pointer, not self.trains),
                "typestr": f"<{letter}{ITEM_BYTES[self.dtype]}", "strides": None}


def _carried_out(values: Any, name: str, *arguments: Any, **more: Any) -> Any:
    """The method or operator of a numpy array, which would leave torch's tensors to torch, and that
    does not know ours: they are arrays here."""
    plain = [host("the operand", one) if hasattr(one, "detach") else one for one in arguments]
    return getattr(values, name)(*plain, **more)


def _of_values(name: str) -> Callable[..., Any]:
    """The method or operator of that name that numpy's arrays have, of a tensor's values."""
    def method(self: Tensor, *arguments: Any, **more: Any) -> Any:
        return _carried_out(self._values(), name, *arguments, **more)
    method.__name__, method.__doc__ = name, f"``{name}`` of numpy's arrays, of its values."
    return method


def _in_place(name: str) -> Callable[..., Any]:
    """The operator of that name, such as ``+=``: the parameter changes, on all ranks."""
    def method(self: Tensor, other: Any) -> Tensor:
        self.set(_carried_out(self.full(), name, other))
        return self
    method.__name__ = name
    return method


class Tensor:
    """A tensor of a run: where it lies, and its values.

    It is read like a numpy array: indices, iteration, operators, comparisons element by element, and
    the methods below give numpy's arrays. ``tensor[at] = values``, ``tensor *= 0.5`` and
    :meth:`set` write. Of the rest of numpy, ``np.cumsum(tensor)`` or ``tensor.numpy().cumsum()``.

    Attributes:
        name: such as ``"h.0.attn.q.weight"``.
        shape: of the whole tensor, whatever ranks have of it.
        dtype: ``"float32"`` of a run's parameters; of a model, and of states, also ``"bfloat16"``, ``"float16"``.
        placement: how ranks share it, such as ``"Shard(0) on tp"``, or ``"Replicate"``.
        trained: whether the optimizer changes it.
        kind: ``"parameter"``, ``"gradient"`` or ``"state"``.
    """

    def __init__(self, owner: Any, entry: Dict[str, Any], kind: str = "parameter",
                 state: int = 0) -> None:
        self._owner, self._entry = owner, entry
        self.kind, self._state = kind, state
        self._view: Optional[_View] = None
        self.name: str = entry["name"]
        self.shape: Tuple[int, ...] = tuple(entry["shape"])
        self.dtype: str = _NAMES[entry["state_dtype" if kind == "state" else "dtype"]]
        self.placement: str = entry["placement"]
        self.trained: bool = entry["trained"]

    def __repr__(self) -> str:
        what = "" if self.kind == "parameter" else f", {self.kind}"
        return f"Tensor({self.name!r}, {list(self.shape)}, {self.dtype}, {self.placement}{what})"

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        count = 1
        for n in self.shape:
            count *= n
        return count

    @property
    def grad(self) -> "Tensor":
        """The gradient of the last step, before clipping: of a run's trained parameter."""
        return Tensor(self._owner, self._entry, "gradient")

    @grad.setter
    def grad(self, values: Any) -> None:
        mine = isinstance(values, Tensor) and values._owner is self._owner and (
            (values.kind, values.name) == ("gradient", self.name))
        if not mine:  # tensor.grad *= 0.5 has written
            self.grad.set(values)

    def state(self, i: int) -> "Tensor":
        """State i of the optimizer: 0 and 1 are AdamW's moments."""
        count = self._entry["states"]
        if i not in range(count):
            raise ArgumentError(f"state {i!r} of {self.name}: " + (
                f"expected a number from 0 to {count - 1}" if count else "the optimizer keeps none"))
        return Tensor(self._owner, self._entry, "state", i)

    # -- reading --

    def _options(self, **more: Any) -> Dict[str, Any]:
        return {"name": self.name, "kind": self.kind, "state": self._state, **more}

    def _view_get(self) -> _View:
        if self._view is None:
            session: Session = self._owner._session_open()
            raw = session.ask("tensor", self._options(how="view"), None, ["value"],
                              copied=False)["value"]
            if raw is None:
                raise ArgumentError(f"{self.name}: no view shows it")
            self._view = _View(session, self.name, raw, self._owner._what == "run")
        self._owner._session_open()
        return self._view

    def numpy(self) -> Any:
        """Its values as a numpy array, float32 (bf16 as uint16, its bits; ``np.asarray(tensor)`` has
        its values).

        Where one rank has all of it the array is the library's memory: no copy. Of a run, writing to
        it between two steps changes the parameter, on all ranks from the next call on; of a model
        it is read-only. Where ranks share it, and of a gradient in fp16, it is a copy, read-only;
        :meth:`set` writes. Over MPI that is collective.
        """
        np = numpy()
        try:
            return np.asarray(self._view_get())
        except ArgumentError:
            self._owner._session_open()
            out = self.full()
            out.flags.writeable = False
            return out

    def full(self) -> Any:
        """A copy of the whole tensor. Over MPI collective."""
        return self._copy("full")

    def local(self) -> Any:
        """A copy of what this process's first rank has of it."""
        return self._copy("local")

    def _copy(self, how: str) -> Any:
        session: Session = self._owner._session_open()
        return session.ask("tensor", self._options(how=how), None, ["value"])["value"]

    def _values(self) -> Any:
        """The same, but bf16 as read-only float32."""
        if self.dtype != "bfloat16":
            return self.numpy()
        values = (self.numpy().astype("u4") << 16).view("f4")
        values.flags.writeable = False
        return values

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        if self.dtype == "bfloat16":
            raise AttributeError("numpy has no bf16")
        try:
            return self._view_get().__array_interface__
        except ArgumentError as error:  # numpy takes __array__ then
            raise AttributeError(str(error)) from None

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        out = self._values()
        return out.astype(out.dtype if dtype is None else dtype, copy=bool(copy))

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: Any = None) -> Any:
        if stream is not None:
            raise ArgumentError("stream: expected None: memory of the host has none")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise ArgumentError(f"{self.name} is memory of the host: copy it to a device there")
        try:
            view = self._view_get()
        except ArgumentError as error:
            self._owner._session_open()
            raise ArgumentError(f"{error}: expected one that lies on one rank as it is; full() is a copy "
                                "of this one") from None
        if copy is False and not view.trains:
            raise ArgumentError(f"{self.name}: a model's tensors are only read: DLPack has a copy; numpy() "
                                "is the same memory, read-only")
        if copy or not view.trains:  # who takes a capsule may write to its memory
            values = self.numpy().copy()
            return _dlpack.capsule(values.ctypes.data, view.dtype, view.shape, values)
        return _dlpack.capsule(view.pointer, view.dtype, view.shape, view)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (1, 0)

    @classmethod
    def __torch_function__(cls, function: Callable[..., Any], _types: Any, arguments: Any = (),
                           more: Optional[Dict[str, Any]] = None) -> Any:
        """A function of torch, such as ``torch.add(theirs, tensor)``, for which a tensor is one of
        torch's: the memory of the library, or a copy where ranks share it. What the function wrote
        into a copy is written as by :meth:`set`."""
        lent: Dict[int, Tuple[Tensor, Any, Any, bytes]] = {}

        def theirs(value: Any) -> Any:
            if isinstance(value, Tensor):
                if id(value) not in lent:
                    lent[id(value)] = (value, *value._lent())
                return lent[id(value)][1]
            return type(value)(map(theirs, value)) if type(value) in (list, tuple) else value

        out = function(*theirs(arguments), **{name: theirs(one) for name, one in (more or {}).items()})
        for tensor, _, copy, before in lent.values():
            if copy is not None and copy.tobytes() != before:
                tensor.set(copy)
        return out

    def _lent(self) -> Tuple[Any, Any, bytes]:
        """Itself as a tensor of torch, which is loaded: of the library's memory; or of a copy, an array
        that is given too, with its bytes."""
        torch = sys.modules["torch"]
        if self._owner._what == "run":  # a model's is only read
            with contextlib.suppress(ArgumentError):
                return torch.from_dlpack(self), None, b""
        copy = self.full()
        bits = copy.view("i2") if self.dtype == "bfloat16" else copy
        lent = torch.from_numpy(bits)
        return lent if bits is copy else lent.view(torch.bfloat16), copy, copy.tobytes()

    __getitem__, __iter__, __contains__, __bool__ = map(_of_values, (
        "__getitem__", "__iter__", "__contains__", "__bool__"))
    mean, sum, std, min, max, reshape, astype, copy, item, tolist = map(_of_values, (
        "mean", "sum", "std", "min", "max", "reshape", "astype", "copy", "item", "tolist"))

    @property
    def T(self) -> Any:
        """Its values, transposed."""
        return self._values().T

    if not TYPE_CHECKING:  # mypy knows what there is
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"a Tensor has no {name}: tensor.numpy() is an array of numpy")

    # -- operators --

    __hash__ = None  # type: ignore[assignment]  # == is element by element
    __eq__, __ne__, __lt__, __le__, __gt__, __ge__ = map(_of_values, (
        "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"))
    __neg__, __pos__, __abs__ = map(_of_values, ("__neg__", "__pos__", "__abs__"))
    __add__, __sub__, __mul__, __truediv__, __pow__, __matmul__ = map(_of_values, (
        "__add__", "__sub__", "__mul__", "__truediv__", "__pow__", "__matmul__"))
    __radd__, __rsub__, __rmul__, __rtruediv__, __rpow__, __rmatmul__ = map(_of_values, (
        "__radd__", "__rsub__", "__rmul__", "__rtruediv__", "__rpow__", "__rmatmul__"))
    __floordiv__, __mod__ = map(_of_values, ("__floordiv__", "__mod__"))
    __iadd__, __isub__, __imul__, __itruediv__, __ifloordiv__, __imod__, __ipow__ = map(_in_place, (
        "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__"))
    __imatmul__ = _in_place("__matmul__")  # numpy before 1.25 has no __imatmul__

    # -- writing --

    def set(self, values: Any) -> None:
        """Other values, of the same shape, on all ranks. Over MPI collective: rank 0's count."""
        session: Session = self._owner._session_open()
        with session.refusing("tensor_set"):
            if self.dtype != "float32":
                raise ArgumentError(f"{self.name} is {self.dtype}: only float32 tensors of a run are "
                                    "written")
            array = host("values", values)
            if tuple(array.shape) != self.shape:
                raise ArgumentError(f"values have shape {tuple(array.shape)}: expected {self.shape}")
            dense = floats("values", array, self.shape)
        session.ask("tensor_set", self._options(), [array_of("value", dense, "f4")])

    def __setitem__(self, at: Any, values: Any) -> None:
        whole = self.full()
        with self._owner._session_open().refusing("tensor_set"):
            whole[at] = host("values", values)
        self.set(whole)


class Params(Mapping[str, Tensor]):
    """The parameters of a run or a model, by name; ``params[name] = values`` is :meth:`Tensor.set`."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._entries: Optional[Dict[str, Dict[str, Any]]] = None

    def _all(self) -> Dict[str, Dict[str, Any]]:
        if self._entries is None:
            answer = self._owner._session_open().ask("parameters")
            self._entries = {entry["name"]: entry for entry in answer["parameters"]}
        return self._entries

    def __getitem__(self, name: str) -> Tensor:
        entries = self._all()
        if name not in entries:
            import difflib

            near = difflib.get_close_matches(str(name), entries, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise KeyError(f"{name}: the model has no such parameter{hint}")
        return Tensor(self._owner, entries[name])

    def __setitem__(self, name: str, values: Any) -> None:
        self[name].set(values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"{len(self)} parameters: {', '.join(list(self)[:4])}, ..."


