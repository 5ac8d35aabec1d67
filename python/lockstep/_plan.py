"""Plans and layouts: what ``lockstep plan`` and ``lockstep layout`` say. Nothing is trained."""

from __future__ import annotations

import os
from typing import Any, Dict, List, NamedTuple, Optional, Union

from . import _keys, _pictures, _tools, errors
from ._keys import Config, Keys
from ._pictures import Picture, Table


class Candidate(NamedTuple):
    """A layout of a recipe on a cluster, and its forecast.

    Attributes:
        keys: the layout as one writes it, ``"parallel.pp=8 parallel.tp=4 ..."``.
        step_s: seconds of a step.
        tokens_per_s: tokens a second, over all ranks.
        mfu: model flops utilisation, a share of the peak.
        device_bytes: memory of the rank that takes most.
        accelerators: that are used.
        reason: why it is slower than the best; empty for the best.
        forecast: every figure by name, with its unit at the end: ``"idle_s"``, ``"exposed_s"`` ...
    """

    keys: str
    step_s: float
    tokens_per_s: float
    mfu: float
    device_bytes: float
    accelerators: int
    reason: str
    forecast: Dict[str, Any]

    @property
    def config(self) -> Dict[str, Any]:
        """The same keys, nested, to be given to a run."""
        return _keys.words(self.keys)


def _candidate(plan: Dict[str, Any]) -> Candidate:
    f = plan["forecast"]
    return Candidate(plan["keys"], f["step_s"], f["tokens_per_s"], f["mfu"], f["device_bytes"],
                     f["accelerators"], plan.get("reason", ""), f)


class Plan:
    """What :func:`lockstep.plan` found.

    Attributes:
        best: the best :class:`Candidate`.
        candidates: all that are listed, the best first.
        cluster: the cluster's name; empty for this machine, as it was measured.
        yaml: the configuration in the best layout.
        proven: whether no other layout can be better than the best; False if time was up.
        considered: how many layouts there are; ``refused``, ``too_large`` and ``simulated`` of them.
    """

    def __init__(self, answer: Dict[str, Any], again: Dict[str, Any]) -> None:
        self.candidates: List[Candidate] = [_candidate(plan) for plan in answer["plans"]]
        self.best = self.candidates[0]
        self.cluster: str = answer["cluster"]
        self.goal: str = answer["goal"]
        self.yaml: str = answer["yaml"]
        self.considered: int = answer.get("candidates", 1)
        self.refused: int = answer.get("refused", 0)
        self.too_large: int = answer.get("too_large", 0)
        self.simulated: int = answer.get("simulated", 1)
        self.proven: bool = answer.get("unproven", 0) == 0
        self._svg: Optional[str] = answer.get("svg")
        self._again = again

    def table(self) -> Table:
        """One line for each candidate."""
        rows = [[c.keys, _pictures.seconds(c.step_s), f"{c.tokens_per_s:,.0f}", f"{100 * c.mfu:.1f} %",
                 _pictures.size(c.device_bytes), f"{c.accelerators:,}", c.reason]
                for c in self.candidates]
        return Table(["layout", "step", "tokens/s", "mfu", "memory", "used", ""], rows)

    def plot(self) -> Picture:
        """The step of the best layout over time: what ranks compute, and what moves meanwhile."""
        if self._svg is None:
            options = dict(self._again, layout=True, draw=True)
            keys = dict(options.get("keys") or {})
            for group, values in self.best.config.items():
                keys[group] = {**keys.get(group, {}), **values}
            options["keys"] = keys
            self._svg = _tools.ask("plan", options)["svg"]
        return Picture(self._svg)

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the configuration in the best layout."""
        _pictures.write(path, self.yaml)

    def __str__(self) -> str:
        return f"{self.best.keys}: {_pictures.seconds(self.best.step_s)} a step"

    def __repr__(self) -> str:
        return f"<lockstep.Plan {self}>"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def plan(config: Config, keys: Optional[Keys] = None, *, cluster: Union[str, "os.PathLike[str]", None] = None,
         goal: str = "time", top: int = 10, accelerators: Optional[int] = None,
         tokens: Optional[float] = None, within_days: Optional[float] = None,
         seconds: Optional[float] = None, layout: bool = False) -> Plan:
    """The best layouts of a recipe on a cluster. Trains nothing.

    Args:
        config: a YAML file, or keys: ``{"model": {"preset": "llama-8b"}}``. The layout in a file is
            where the search begins.
        keys: keys over it; those of the layout stay as they are given.
        cluster: a cluster's file (doc/planning.md); None measures this machine, which takes seconds.
        goal: ``"time"`` of a step, ``"cost"`` or ``"memory"``.
        top: how many candidates to list.
        accelerators: how many to use; None: all of the cluster.
        tokens: of the whole training, for days, price and failures; None: the configuration's steps.
        within_days: only layouts on which the training ends by then; None: all.
        seconds: the limit of time of the search; 8 by default, and ``float("inf")`` is none.
        layout: no search: only what the configuration's own layout takes.

    Raises:
        ConfigError: a key of the configuration or of the cluster is wrong.
        LayoutError: no layout fits, and what is lacking at least; or none ends in time.
    """
    options = _keys.configured(config, keys)
    options["cluster"] = None if cluster is None else _keys.path(cluster)
    if seconds is not None and not seconds > 0:
        raise errors.ArgumentError(f"seconds: got {seconds}: expected more than 0; "
                                   "float('inf') is no limit")
    if within_days is not None and (layout or not within_days > 0):
        raise errors.ArgumentError(f"within_days: got {within_days}: expected more than 0, without layout=True")
    if seconds == float("inf"):
        seconds = 0
    search = {"goal": goal, "top": top, "accelerators": accelerators, "tokens": tokens,
              "within_days": within_days, "seconds": seconds, "layout": layout, "draw": cluster is None}
    return Plan(_tools.ask("plan", {**options, **search}), options)


class Group(NamedTuple):
    """Ranks that communicate: ``groups`` of ``size`` ranks each; ``members`` is that of rank 0."""

    name: str
    size: int
    groups: int
    members: List[int]


class Stage(NamedTuple):
    """A pipeline stage: layers first to last (0 is the embedding) on pipeline rank pp; share of the
    work of the forward."""

    pp: int
    first: int
    last: int
    share: float


class Layout:
    """What :func:`lockstep.layout` says of a configuration's layout.

    Attributes:
        ranks: their number, the product of ``axes``.
        axes: sizes of pp, dp_replicate, dp_shard, cp and tp, in this order.
        zero, sp: ZeRO's stage, and whether sequence parallel is on.
        micro_batches: of a step on each rank.
        groups, stages: lists of :class:`Group` and :class:`Stage`.
        schedule, bubble: the pipeline's, and the share of a step that its ranks wait.
        memory: of each pipeline rank, a dict: ``memory`` (bytes by kind, as allocated), ``peak``
            (bytes in use at most, and ``peak_at`` when), ``host``, ``file``, ``live``, ``rollout``
            (bytes of weights in the layout of rollouts).
        sends: of each pipeline rank, bytes that a rank sends in a step, by axis.
        here: ``bytes`` of all ranks on this machine, ``total``, ``free``, ``fits``.
        proof: with ``check=True``: ranks, groups, collectives and messages that were proven to fit.
    """

    def __init__(self, answer: Dict[str, Any], again: Dict[str, Any]) -> None:
        self.ranks: int = answer["ranks"]
        self.axes: Dict[str, int] = answer["axes"]
        self.zero: int = answer["zero"]
        self.sp: bool = answer["sp"]
        self.micro_batches: int = answer["micro_batches"]
        self.batches: str = answer["batches"]
        self.note: str = answer["note"]
        self.groups = [Group(**group) for group in answer["groups"]]
        self.stages = [Stage(**stage) for stage in answer["stages"]]
        self.schedule: str = answer["schedule"]
        self.bubble: float = answer["bubble"]
        self.memory: List[Dict[str, Any]] = answer["pp_ranks"]
        self.sends: List[Dict[str, int]] = [rank["sends"] for rank in self.memory]
        self.here: Dict[str, Any] = answer["here"]
        self.proof: Optional[Dict[str, int]] = answer.get("proof")
        self._again = again

    def coordinates(self, rank: int) -> Dict[str, int]:
        """Where a rank is along each axis; the last axis, tp, counts fastest."""
        if not 0 <= rank < self.ranks:
            raise IndexError(f"rank {rank}: expected 0 to {self.ranks - 1}")
        at: Dict[str, int] = {}
        for name in reversed(list(self.axes)):
            rank, at[name] = divmod(rank, self.axes[name])
        return {name: at[name] for name in self.axes}

    def table(self) -> Table:
        """Memory of a rank by kind, and what it sends, for each pipeline rank."""
        kinds = list(self.memory[0]["memory"])
        axes = [name for name in self.sends[0] if any(sends[name] for sends in self.sends)]
        rows = [[str(rank["pp"]), *(_pictures.size(rank["memory"][kind]) for kind in kinds),
                 *(_pictures.size(rank["sends"][axis]) for axis in axes)] for rank in self.memory]
        return Table(["pp", *kinds, *(f"{axis} sends" for axis in axes)], rows)

    def plot(self, what: str = "memory") -> Picture:
        """The picture of rank 0's ``"memory"`` over a step, or of the pipeline's ``"schedule"``."""
        if what not in ("memory", "schedule"):
            raise errors.ArgumentError(f'plot: {what}: expected "memory" or "schedule"')
        return Picture(_tools.ask("layout", dict(self._again, draw=True))[f"{what}_svg"])

    def __str__(self) -> str:
        axes = " x ".join(f"{name} {count}" for name, count in self.axes.items())
        return f"{self.ranks} ranks = {axes}, zero {self.zero}"

    def __repr__(self) -> str:
        return f"<lockstep.Layout {self}>"

    def _repr_html_(self) -> str:
        return f"<p>{self}</p>{self.table()._repr_html_()}"


def layout(config: Config, keys: Optional[Keys] = None, *, check: bool = False) -> Layout:
    """How a configuration is cut over ranks, and what each keeps and sends. Trains nothing.

    Args:
        config: a YAML file, or keys.
        keys: keys over it.
        check: proves that all ranks' collectives and messages fit, so that no rank waits for ever.

    Raises:
        ConfigError: a key is wrong.
        LayoutError: the recipe does not admit the layout; the text names the nearest one that works.
    """
    options = _keys.configured(config, keys)
    return Layout(_tools.ask("layout", dict(options, check=check)), options)
