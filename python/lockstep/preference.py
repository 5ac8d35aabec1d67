"""Preference tuning: :class:`DPO`, from pairs of texts of which one is better.

::

    run = ls.from_pretrained("runs/start", {"train.steps": 100, "batch.global": 16, ...})
    for m in ls.preference.DPO(run, "pairs.jsonl", beta=0.1):
        print(m.step, m.loss, m.accuracy)

A line of the file is ``{"prompt": TEXT, "chosen": TEXT, "rejected": TEXT}``. A batch is
``run.batch / 2`` pairs. The loop goes on where the run does, as those of :mod:`lockstep.rl`.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import time
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _arrays, _keys
from ._loop import Loop, order, recorded, trains
from .errors import ArgumentError, DataError, IOFailure, LockstepError
from .training import Run


class Preference(NamedTuple):
    """What a batch of pairs gave. ``accuracy`` is the share of pairs whose chosen text gained more
    than the rejected one, ``margin`` by how much: beta times the difference of log-ratios."""

    step: int
    loss: float
    accuracy: float
    margin: float
    tokens: int
    tokens_per_s: float
    update_s: float
    grad_norm: float
    lr: float
    hash: Optional[str]


def preference_loss(logp: Any, reference: Any, beta: float, smoothing: float = 0.0) -> Tuple[Any, Any]:
    """Of log-probabilities of texts [pairs, 2], chosen and rejected: the margins [pairs], and the
    derivative [pairs, 2] of the mean of :func:`losses` (DPO, arXiv 2305.18290)."""
    ratios = np.asarray(logp, np.float64) - reference
    margins = beta * (ratios[:, 0] - ratios[:, 1])
    slope = np.exp(-np.logaddexp(0, margins))
    if smoothing:
        slope = slope - smoothing
    slope = -beta / len(margins) * slope
    return margins, np.stack([slope, -slope], axis=1)


def losses(margins: Any, smoothing: float = 0.0) -> Any:
    """-log sigmoid(margin) of each pair; -log sigmoid(-margin) in its place with the weight smoothing."""
    return np.logaddexp(0, -margins) + smoothing * margins


def _pairs_read(pairs: Union[str, "os.PathLike[str]", Sequence[Any]]
                ) -> List[Tuple[str, Optional[Tuple[str, int]], Any]]:
    """(where, its file and line, {"prompt", "chosen", "rejected"}) of each pair."""
    found: List[Tuple[str, Optional[Tuple[str, int]], Any]] = []
    if isinstance(pairs, (str, os.PathLike)):
        path = _keys.path(pairs)
        try:
            opened = open(path, "rb")
        except OSError as error:
            raise IOFailure(f"{path}: {error.strerror}: expected a file of pairs") from None
        with opened as file:
            for number, line in enumerate(file, 1):
                line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if line.strip():
                    try:
                        found.append((f"{path}:{number}", (path, number),
                                      json.loads(line.decode())))
                    except (ValueError, RecursionError) as error:
                        raise DataError(f"{path}:{number}: {error}: expected one JSON object a "
                                        "line, in UTF-8", file=path, line=number) from None
    else:
        path = "pairs"
        found = [(f"pairs[{i}]", None, pair)
                 for i, pair in enumerate(_arrays.listed("pairs", pairs, "dicts"))]
    if not found:
        raise DataError(f"{path} holds no pairs: expected at least one")
    return found


class DPO(Loop):
    """Direct preference optimisation (arXiv 2305.18290).

    Args:
        run: it trains; ``run.batch`` texts are a batch, so ``run.batch / 2`` pairs.
        pairs: a file of JSON lines, or dicts, with ``"prompt"``, ``"chosen"``, ``"rejected"``:
            texts, in which special tokens are tokens, or lists of token ids. The tokenizer's
            ``eos_token``, or the token that ends a document if there is none, is put behind each
            chosen or rejected text that ends with neither.
        beta: how much a log-ratio counts.
        label_smoothing: the share of pairs that are taken to be the wrong way round (cDPO), below 0.5.
        reference: a :class:`Model` (frozen), or a function of ids that returns log-probabilities.
            None: the run as it is at step 0; what it gives the pairs is kept in
            ``RUN/preference.npz``, and no second model is held.
    """

    def __init__(self, run: Run, pairs: Union[str, "os.PathLike[str]", Sequence[Any]], *,
                 beta: float = 0.1, label_smoothing: float = 0.0, reference: Any = None,
                 seed: int = 0) -> None:
        trains(run)
        if run.batch % 2:
            raise ArgumentError(f"batch.global is {run.batch}: expected an even number, for pairs")
        _arrays.positive("beta", beta)
        _arrays.positive("label_smoothing", label_smoothing, or_zero=True)
        if label_smoothing >= .5:
            raise ArgumentError(f"label_smoothing is {label_smoothing}: expected a number below 0.5")
        super().__init__(run, seed, reference)
        self.beta, self.smoothing = beta, label_smoothing
        self._texts = []
        for where, place, pair in _pairs_read(pairs):
            try:
                self._texts.append(self._encoded(where, pair))
            except LockstepError as error:
                if place:
                    error.file, error.line = place
                raise
        self._saved = os.path.join(run.out, "preference.npz")
        self._before = self._kept() if reference is None else None

    def _ids(self, name: str, given: Any) -> List[int]:
        """Token ids of the caller's, none of which may be padding."""
        row = _arrays.host(name, given)
        if row.size == 0:
            row = np.zeros(0, int)
        return list(_arrays.token_ids(name, row[None], self.run.vocabulary)[0].tolist())

    def _encoded(self, where: str, pair: Any) -> List[Tuple[List[int], int]]:
        """Chosen and rejected: (ids, tokens of the prompt)."""
        run, out, ids = self.run, [], {}
        for name in ("prompt", "chosen", "rejected"):
            given = pair.get(name) if isinstance(pair, Mapping) else None
            if not isinstance(given, (str, list, tuple)) and not _arrays.is_array(given):
                raise DataError(f'{where}: no "{name}": expected a text, or a list of token ids, '
                                'for each of "prompt", "chosen" and "rejected"')
            if isinstance(given, (list, tuple)) and any(
                    isinstance(x, Mapping) and "role" in x for x in given):
                raise DataError(f'{where}: "{name}" is a list of messages: expected the text that '
                                "lockstep.data.ChatTemplate makes of them, as ids")
            ids[name] = (run._encode(given, around=name == "prompt")
                         if isinstance(given, str) else self._ids(f"{where}: {name}", given))
        ends = [run._answer[end] for end in ("end_of_text", "end_of_document") if end in run._answer]
        for name in ("chosen", "rejected"):
            ended = bool(ids[name]) and ids[name][-1] in ends
            whole = ids["prompt"] + ids[name] + ([] if ended else ends[:1])
            if not ids["prompt"] or len(whole) > run.sequence + 1:
                raise DataError(f"{where}: {name}: {len(ids['prompt'])} tokens and {len(whole)} in "
                                f"all: expected a prompt, and at most data.sequence + 1 = "
                                f"{run.sequence + 1}")
            out.append((whole, len(ids["prompt"])))
        return out

    def _batch(self, places: Sequence[int]) -> Tuple[Any, Any]:
        """ids and mask [2 * pairs, longest], chosen and rejected in turn."""
        texts = [text for place in places for text in self._texts[place]]
        ids, lengths = _arrays.ragged("pairs", [ids for ids, _ in texts], self.run.vocabulary)
        at = np.arange(ids.shape[1])[None, :]
        mask = (at < lengths[:, None]) & (at >= np.array([n for _, n in texts])[:, None])
        return np.where(at < lengths[:, None], ids, -1), mask

    def _sums(self, logprobs: Any, places: Sequence[int]) -> Any:
        """Log-probabilities of the texts [pairs, 2]."""
        ids, mask = self._batch(places)
        return np.where(mask, logprobs(ids), np.float64(0)).sum(axis=1).reshape(-1, 2)

    def _kept(self) -> Any:
        """What the run gave the pairs at step 0, [all pairs, 2]."""
        key = hashlib.sha256(json.dumps(self._texts).encode()).hexdigest()
        if self.run.step_count == 0:
            half = self.run.batch // 2
            sums = [self._sums(self.run.logprobs, range(i, min(i + half, len(self._texts))))
                    for i in range(0, len(self._texts), half)]
            self._write(self._saved,
                        lambda file: np.savez(file, pairs=key, sums=np.concatenate(sums)))
            return np.concatenate(sums)
        kept = self._read(self._saved, "what step 0 gave the pairs; begin there, or give a "
                          "reference")
        if str(kept.get("pairs")) != key:
            raise DataError(f"{self._saved} is of other pairs: expected those that the run began "
                            "with; give these, or a reference")
        return kept["sums"]

    @recorded
    def step(self) -> Preference:
        """A batch of pairs, and its update."""
        begin, run = time.perf_counter(), self.run
        half = run.batch // 2
        places = order(self.seed, run.step_count * half, half, len(self._texts))
        ids, mask = self._batch(places)
        before = (self._before[places] if self._before is not None
                  else self._sums(self._reference, places))
        margins, slope = preference_loss(self._sums(run.logprobs, places), before, self.beta, self.smoothing)
        self._backward(ids, mask * slope.reshape(-1, 1))
        last = self._update()
        seconds, tokens = time.perf_counter() - begin, (ids >= 0).sum()
        return self._record(Preference(
            last.step, losses(margins, self.smoothing).mean(), (margins > 0).mean(), margins.mean(), tokens,
            tokens / seconds, seconds, last.grad_norm, last.lr, last.hash))
