"""Layouts and runs held against each other: ``lockstep verify``, ``diff`` and ``audit``."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple, Union

from . import _keys, _tools
from ._keys import Config, Keys
from ._pictures import Table
from .errors import ArgumentError

Path = Union[str, "os.PathLike[str]"]


class Verified(NamedTuple):
    """A layout that was trained. ``result`` is "equal", "differs" (at ``step``, first in
    ``tensor``) or "failed" (``why``)."""

    number: int
    layout: str
    result: str
    ranks: int
    bytes: float
    seconds: float
    step: Optional[int] = None
    tensor: Optional[str] = None
    why: Optional[str] = None


class Verification:
    """What :func:`lockstep.verify` found; true if every layout gave the hash of one rank.

    Attributes:
        hash: of the state after the last step, on one rank.
        layouts: a list of :class:`Verified`.
        differ, failed: how many did. too_large: left out, for this machine's memory.
    """

    def __init__(self, answer: Dict[str, Any]) -> None:
        self.hash: str = answer["hash"]
        self.differ: int = answer["differ"]
        self.failed: int = answer["failed"]
        self.too_large: int = answer["too_large"]
        self.layouts = [_verified(layout) for layout in answer["layouts"]]

    def __bool__(self) -> bool:
        return self.differ + self.failed == 0

    def table(self) -> Table:
        """One line for each layout."""
        rows = [[str(v.number), str(v.ranks), v.layout, v.result, v.tensor or v.why or ""]
                for v in self.layouts]
        return Table(["", "ranks", "layout", "result", ""], rows)

    def __repr__(self) -> str:
        found = f"1 hash: {self.hash}" if self else f"{self.differ} differ, {self.failed} failed"
        return f"<lockstep.Verification {len(self.layouts)} layouts, {found}>"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def _verified(layout: Dict[str, Any]) -> Verified:
    return Verified(**{name: layout[name] for name in Verified._fields if name in layout})


def verify(config: Config, keys: Optional[Keys] = None, *, layouts: int = 50, ranks: int = 8, steps: int = 3,
           seed: int = 1,
           on_layout: Optional[Callable[[Verified], None]] = None) -> Verification:
    """Trains a recipe in layouts that are drawn, and compares each with one rank, bit for bit.

    Args:
        config: a YAML file, or keys.
        keys: keys over it.
        layouts: how many to try; ranks: the most of one; steps: to train; seed: of the draw.
        on_layout: called with each :class:`Verified` as it ends, in this thread.

    Raises:
        ConfigError: a key is wrong, or there are no data.
    """
    def on_event(event: Dict[str, Any]) -> None:
        if on_layout and event["event"] == "layout" and event["number"] and (
                event["result"] != "begins"):
            on_layout(_verified(event))

    options = dict(_keys.configured(config, keys), layouts=layouts, ranks=ranks, steps=steps,
                   seed=seed)
    return Verification(_tools.ask("verify", options, on_event))


class Difference(NamedTuple):
    """Where two runs part; what :func:`lockstep.diff` found.

    ``step`` is the first in which the records differ, in ``loss`` or ``hash``; None: in none of the
    ``compared`` steps up to ``last``. ``hash`` is also true if a checkpoint of the step is not the
    state that its run recorded; if no more differs, nothing is computed again. After both were
    computed again: the first ``tensor`` that differs, at ``tensor_step`` (None: they agree, so that
    a machine or a build is the cause), and whether each run was reproduced.
    """

    step: Optional[int]
    compared: int
    last: int
    loss: bool
    hash: bool
    hash_equal_to: Optional[int]
    recipe: str
    tensor: Optional[str] = None
    tensor_step: Optional[int] = None
    a_reproduced: Optional[bool] = None
    b_reproduced: Optional[bool] = None

    @property
    def equal(self) -> bool:
        """Whether no recorded step differs."""
        return self.step is None


def diff(a: Path, b: Path, *, rerun: bool = True, force: bool = False) -> Difference:
    """The first step, and the first tensor, in which two runs of a recipe differ.

    Args:
        a, b: folders of runs.
        rerun: computes both again from where they are equal, to find the tensor.
        force: compares runs of different recipes too.
    """
    answer = _tools.ask("diff", {"a": _keys.path(a), "b": _keys.path(b), "rerun": rerun,
                                 "force": force})
    return Difference(**answer)


class Audit(NamedTuple):
    """What :func:`lockstep.audit` found; ``equal`` if steps ``first`` to ``last``, computed again in
    ``layout``, have the recorded bits and the chain of records is whole.

    ``step`` is the first that differs (None: none), ``differs`` says in what, ``losses``, ``norms``
    and ``hashes`` how many were compared, ``chain`` why the chain of records is broken, or None.
    """

    equal: bool
    first: int
    last: int
    layout: str
    step: Optional[int]
    losses: int
    norms: int
    hashes: int
    differs: Dict[str, bool]
    chain: Optional[str]


def audit(run: Path, keys: Optional[Keys] = None, *, steps: Optional[Tuple[int, int]] = None,
          whole: bool = False) -> Audit:
    """Computes steps of a run again, in another layout, and compares them with its records.

    Args:
        run: the run's folder.
        keys: of the layout to compute in; None: one that differs in as much as it can.
        steps: the first and the last; None: those after the newest checkpoint but one.
        whole: all steps from the beginning, as ``lockstep replay`` does.
    """
    if steps is not None and not (isinstance(steps, (tuple, list)) and len(steps) == 2):
        raise ArgumentError(f"steps is {steps!r}: expected the first and the last, such as (3, 4)")
    if steps is not None and whole:
        raise ArgumentError(f"whole: expected no steps with it ({steps!r}): it means all of them")
    first, last = steps or (None, None)
    return Audit(**_tools.ask("audit", {"run": _keys.path(run), "keys": _keys.nested(keys or {}),
                                        "first": first, "last": last, "whole": whole}))


def report(*runs: Path, out: Optional[Path] = None) -> str:
    """A page about runs, up to six side by side: HTML that needs nothing else.

    Returns:
        The page, or "" if it was written to ``out``.
    """
    answer = _tools.ask("report", {"runs": [_keys.path(run) for run in runs],
                                   "out": None if out is None else _keys.path(out)})
    page: str = answer.get("html", "")
    return page


