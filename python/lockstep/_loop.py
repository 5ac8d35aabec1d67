"""What the loops of :mod:`lockstep.rl` and :mod:`lockstep.preference` have in common: the order in
which they take things, their records, their files."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, TypeVar

import numpy as np

from . import _arrays
from ._lib import uninterrupted
from .errors import ArgumentError, DataError
from .training import Run, Step

Recorded = TypeVar("Recorded")  # a NamedTuple


def order(seed: int, first: int, count: int, of: int) -> List[int]:
    """Places first, first + 1, ... in endless passes over `of` things, each pass in an order of its
    own: a function of its arguments, with Philox's words, which no version of numpy changes."""
    out: List[int] = []
    while len(out) < count:
        epoch, place = divmod(first + len(out), of)
        words = np.random.Philox(key=np.array([seed, epoch], np.uint64)).random_raw(of)
        out += np.argsort(words, kind="stable")[place:place + count - len(out)].tolist()
    return out


def trains(run: Any) -> None:
    """Refuses what does not train."""
    if not isinstance(run, Run):
        raise ArgumentError(f"run is a {type(run).__name__}: expected a Run, which trains; "
                            "from_pretrained(path) makes one of a model")


def recorded(step: Callable[[Any], Recorded]) -> Callable[[Any], Recorded]:
    """The step of a loop: Ctrl-C from its update on is raised behind its record; twice, at once."""
    @functools.wraps(step)
    def method(self: Loop) -> Recorded:
        with contextlib.ExitStack() as self._held:
            self._heard = None
            made = step(self)
        return made
    return method


class Loop:
    """What all loops have: they iterate, and write what they measured."""

    def __init__(self, run: Run, seed: int, reference: Any) -> None:
        _arrays.whole("seed", seed, 0, 2**31 - 1)
        self.run, self.seed = run, seed
        self._logprobs = getattr(reference, "logprobs", reference)
        if not (reference is None or callable(self._logprobs)):
            raise ArgumentError("reference: expected a Model, or a function of ids that returns "
                                f"log-probabilities; got {type(reference).__name__}")
        self._records = os.path.join(run.out, "rl.jsonl")
        self._raised: Optional[BaseException] = None  # by a callback behind an update
        self._held = contextlib.ExitStack()  # of a step
        self._heard: Optional[List[int]] = None  # Ctrl-C since its first update
        self._updated = -1  # the step that the last update began at
        self._forget()

    def _reference(self, ids: Any, **temperature: Any) -> Any:
        """float32 of the shape of ids."""
        return _arrays.floats("reference", self._logprobs(ids, **temperature), ids.shape)

    def __iter__(self) -> Iterator[Any]:
        while not self.run.ended:
            yield self.step()  # type: ignore[attr-defined]

    def _backward(self, *gradient: Any, **more: Any) -> Any:
        """:meth:`Run.backward`. A gradient that waits for its update is given up: that of this batch,
        which an error or Ctrl-C ended, of another loop, or the caller's own."""
        self.run.discard()
        return self.run.backward(*gradient, **more)

    def _update(self) -> Step:
        """:meth:`Run.step`. What is raised once the update was made waits for its record."""
        before, self._raised = self.run.step_count, None
        if self._heard is None:
            self._heard = self._held.enter_context(
                uninterrupted(lambda: self.run.stop() if self.run._step == self._updated else None))
        self._updated = before
        try:
            return self.run.step()
        except BaseException as error:
            if self.run.step_count == before:
                raise
            self._raised = error
            return self.run._last

    def _updates_of(self, numbers: Iterable[int]) -> Iterator[int]:
        """These, until the run ends or something waits for the record."""
        for number in numbers:
            yield number
            if self.run.ended or self._raised or self._heard:
                return

    def _numbers(self, name: str, give: Callable[[], Any], count: int) -> Any:
        """So many numbers, float64: what rank 0's function gives, in all processes."""
        values, failed = np.full(count, np.nan), None
        if self.run.rank == 0:
            try:
                values = _arrays.numbers(name, give(), count)
            except BaseException as error:  # Ctrl-C too: the others wait for the values
                failed = error
        values = np.frombuffer(self.run.share(values.tobytes()), np.float64)
        if failed is not None:
            raise failed
        if np.isnan(values).any():
            raise ArgumentError(f"{name}: the function failed in rank 0")
        return values

    def _write(self, path: str, put: Callable[[Any], Any]) -> None:
        """A file of rank 0, whole or not at all."""
        if self.run.rank == 0:
            with open(path + ".new", "wb") as file:
                put(file)
            os.replace(path + ".new", path)

    def _read(self, path: str, expected: str) -> Dict[str, Any]:
        """Arrays that :meth:`_write` kept."""
        try:
            with np.load(path) as file:
                return dict(file)
        except Exception as error:  # a damaged file has errors of every kind
            raise DataError(f"{path}: {error}: expected {expected}") from None

    def _forget(self) -> None:
        """Drops records of steps that the run does not have any more."""
        if self.run.rank == 0 and os.path.exists(self._records):
            with open(self._records, "rb") as file:
                lines = [line for line in file if line.endswith(b"\n")]
            try:
                kept = [line for line in lines if json.loads(line)["step"] <= self.run.step_count]
            except (ValueError, KeyError, TypeError):
                raise DataError(f"{self._records}: expected one JSON object with a step a line; "
                                "move it away") from None
            self._write(self._records, lambda file: file.writelines(kept))

    def _record(self, metrics: Recorded) -> Recorded:
        """The same in Python's numbers, which rank 0 writes; then raises what waits for it."""
        made: Any = metrics
        made = made._make(v.item() if isinstance(v, np.generic) else v for v in made)
        if self.run.rank == 0:
            fields: Dict[str, Any] = made._asdict()
            plain = {k: None if v != v else v for k, v in fields.items()}
            with open(self._records, "a", encoding="utf-8") as file:
                file.write(json.dumps(plain) + "\n")
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised
        return made  # type: ignore[no-any-return]
