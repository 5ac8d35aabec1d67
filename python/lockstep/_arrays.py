"""Arrays of the caller's, checked: numpy's, torch's, lists."""

from __future__ import annotations

import math
import numbers as kinds
import operator
from typing import AbstractSet as Set, Any, List, Mapping, Optional, Sequence, Tuple

from ._lib import numpy
from .errors import ArgumentError


def whole(name: str, value: Any, least: int, most: int) -> None:
    """Refuses what is no whole number in that range."""
    if isinstance(value, bool) or not isinstance(value, kinds.Integral) or not (
            least <= int(value) <= most):
        raise ArgumentError(f"{name} is {value!r}: expected a whole number from {least} to {most}")


def is_real(value: Any) -> bool:
    """Whether it is a finite number."""
    return (isinstance(value, kinds.Real) and not isinstance(value, bool)
            and math.isfinite(value))


def positive(name: str, value: Any, or_zero: bool = False) -> None:
    """Refuses what is no finite number above 0."""
    if not is_real(value) or value < 0 or (value == 0 and not or_zero):
        raise ArgumentError(f"{name} is {value!r}: expected a number "
                            f"{'from' if or_zero else 'above'} 0")


def down_and_up(name: str, value: Any) -> Tuple[float, float]:
    """A pair of numbers from 0, or one for both."""
    pair = value if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or not all(is_real(one) and one >= 0 for one in pair):
        raise ArgumentError(f"{name} is {value}: expected a number from 0, or two, down and up")
    return pair[0], pair[1]


def is_array(value: Any) -> bool:
    """Whether it is an array of some package; a nested tensor of torch, which fails to say its shape,
    is one too."""
    try:
        return hasattr(value, "shape")
    except RuntimeError:
        return True


def listed(name: str, values: Any, of: str) -> List[Any]:
    """A list of what was given one by one; a text or a mapping is none."""
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__"):
        raise ArgumentError(f"{name}: got {type(values).__name__}: expected a list of {of}")
    try:
        return list(values)
    except (TypeError, RuntimeError) as error:  # torch's, of a nested tensor, or of one number
        raise ArgumentError(f"{name}: {_reason(error)}: expected a list of {of}") from error


def _reason(error: BaseException) -> str:
    """The first sentence of what another package says: no advice that is meant for its users."""
    return str(error).split(". ")[0].rstrip(".")


def texts(name: str, values: Any) -> List[str]:
    """One text, or a list of them."""
    out = [values] if isinstance(values, str) else listed(name, values, "texts")
    for i, one in enumerate(out):
        if not isinstance(one, str):
            raise ArgumentError(f"{name}[{i}] is {one!r}: expected a text")
    return out


def plain_ids(name: str, values: Any) -> List[int]:
    """A list of token ids, which are Python's numbers."""
    out = []
    for i, one in enumerate(listed(name, values, "token ids")):
        try:
            out.append(operator.index(one))
        except TypeError:
            raise ArgumentError(f"{name}[{i}] is {one!r}: expected a token id") from None
    return out


def prompts_read(prompts: Any) -> Tuple[List[Any], List[Any]]:
    """The prompts as given, and what the texts of each begin with."""
    items = listed("prompts", prompts, 'texts, lists of token ids, or dicts with "prompt"')
    if not items:
        raise ArgumentError("prompts: expected a list, of at least one text")
    starts = [item.get("prompt") if isinstance(item, Mapping) else item for item in items]
    for i, start in enumerate(starts):
        if not (isinstance(start, (str, list, tuple)) or is_array(start)):
            raise ArgumentError(f"prompts[{i}] is {items[i]!r}: expected a text, a list of token ids, "
                                'or a dict whose "prompt" is one')
        if isinstance(start, (list, tuple)) and any(isinstance(one, Mapping) for one in start):
            raise ArgumentError(f"prompts[{i}] is a conversation: expected the ids of the text that its "
                                "template makes: lockstep.data.ChatTemplate")
    return items, starts


def numbers(name: str, given: Any, count: int) -> Any:
    """float64 [count] of what a function of that name gave: one finite number a text."""
    np, expected = numpy(), f"expected a list of {count} finite numbers, one a text"
    try:
        if isinstance(given, (str, bytes, Mapping, Set)):
            raise TypeError(f"got {type(given).__name__}")
        # a tensor of torch that wants a gradient is taken without it
        values = np.array([float(x) for x in getattr(given, "detach", lambda: given)()])
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # the last one of torch
        raise ArgumentError(f"{name} gave {str(given)[:64]}: {expected}: {error}") from error
    if len(values) != count or not np.isfinite(values).all():
        raise ArgumentError(f"{name} gave {values.tolist()[:8]}, {len(values)} in all: {expected}")
    if abs(values).max() > np.finfo(np.float32).max:  # their squares would not be finite
        raise ArgumentError(f"{name} gave {values[abs(values).argmax()]}: expected numbers up to 3.4e38, "
                            "as float32 has them")
    return values


def host(name: str, values: Any) -> Any:
    """A numpy array of what was given, without a copy where that can be."""
    np = numpy()
    if type(values).__module__.split(".")[0] == "torch":
        if values.device.type != "cpu":
            raise ArgumentError(
                f"{name} is on {values.device}: expected memory of the host: {name}.cpu()"
            )
        if getattr(values, "is_nested", False):
            raise ArgumentError(f"{name} is a nested tensor: expected a dense one, such as "
                                f"torch.nested.to_padded_tensor({name}, -1)")
        try:
            values = values.detach().resolve_conj().resolve_neg()
            if str(values.dtype).startswith(("torch.bfloat16", "torch.float8")):
                values = values.float()
            return values.numpy()
        except (TypeError, RuntimeError) as error:  # sparse, nested, quantized, fake
            raise ArgumentError(f"{name}: {_reason(error)}: expected a dense tensor of "
                                "numbers") from error
    device = getattr(values, "__dlpack_device__", None)
    if device is not None and device()[0] != 1 and not isinstance(values, np.ndarray):
        raise ArgumentError(f"{name} is on another device: expected memory of the host")
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ArgumentError(f"{name} has masked elements: expected a value for each, such as "
                            f"{name}.filled(0)")
    try:
        array = np.asarray(values)
    except ValueError:
        array = None
    if array is None or array.dtype == object:
        raise ArgumentError(f"{name}: expected an array of numbers, whose rows have one length")
    return array


def shaped(name: str, values: Any, dims: int, like: Optional[Tuple[int, ...]] = None) -> Any:
    """The same, with so many dimensions, or of that shape."""
    array = host(name, values)
    if like is not None and tuple(array.shape) != like:
        raise ArgumentError(f"{name} has shape {tuple(array.shape)}: expected {like}")
    if array.ndim != dims:
        raise ArgumentError(f"{name} has shape {tuple(array.shape)}: expected {dims} dimensions")
    return array


def token_ids(name: str, values: Any, vocabulary: int, least: int = 0,
              like: Optional[Tuple[int, ...]] = None) -> Any:
    """int32 [n, tokens] of token ids from `least` to below the vocabulary; dense."""
    np = numpy()
    array = shaped(name, values, 2, like)
    if array.dtype.kind not in "iu":
        raise ArgumentError(f"{name} has type {array.dtype}: expected whole numbers")
    wrong = (array < least) | (array >= vocabulary)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise ArgumentError(
            f"{name}[{row}, {column}] is {int(array[row, column])}: expected a token id from "
            f"{least} to {vocabulary - 1}"
        )
    return np.ascontiguousarray(array, dtype=np.int32)


def floats(name: str, values: Any, like: Tuple[int, ...], all_finite: bool = True) -> Any:
    """float32 of that shape, all finite unless said; dense."""
    np = numpy()
    array = shaped(name, values, len(like), like)
    if array.dtype.kind not in "iufb":
        raise ArgumentError(f"{name} has type {array.dtype}: expected numbers")
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, dtype=np.float32)
    finite = np.isfinite(array)
    if all_finite and not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ArgumentError(f"{name}{list(where)} is {array[where]}: expected finite numbers")
    return array


def row_lengths(name: str, ids: Any) -> Any:
    """int32 [n]: how many ids each row has before the -1 that end it."""
    np = numpy()
    lengths = (ids >= 0).sum(axis=1).astype(np.int32)
    wrong = (ids < 0) & (np.arange(ids.shape[1])[None, :] < lengths[:, None])
    if wrong.any():
        row = int(np.argwhere(wrong)[0][0])
        raise ArgumentError(f"{name}[{row}]: -1 ends a row: nothing may follow it")
    return lengths


def ragged(name: str, rows: Any, vocabulary: int) -> Tuple[Any, Any]:
    """ids [n, longest] and lengths [n] of rows of token ids: lists of different lengths, or one
    array whose rows end with -1."""
    np = numpy()
    if not is_array(rows) and isinstance(rows, Sequence) and not isinstance(rows, str):
        for i, row in enumerate(rows):
            if isinstance(row, (str, bytes, Mapping)) or not hasattr(row, "__len__"):
                raise ArgumentError(f"{name}[{i}]: got {type(row).__name__}: expected a list of token "
                                    "ids, as all of them are")
        lists = [host(f"{name}[{i}]", row) for i, row in enumerate(rows)]
        for i, row in enumerate(lists):
            if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
                raise ArgumentError(f"{name}[{i}]: expected a list of token ids")
        width = max((row.size for row in lists), default=0)
        array = np.full((len(lists), width), -1, dtype=np.int64)
        for i, row in enumerate(lists):
            array[i, : row.size] = row
    else:
        array = shaped(name, rows, 2)
    ids = token_ids(name, array, vocabulary, least=-1)
    lengths = row_lengths(name, ids)
    if ids.shape[0] == 0:
        raise ArgumentError(f"{name}: expected at least one")
    if (lengths == 0).any():
        raise ArgumentError(f"{name}[{int(np.argmin(lengths))}]: expected at least one token")
    return np.maximum(ids, 0), lengths
