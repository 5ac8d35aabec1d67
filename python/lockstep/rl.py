"""Training on what the model wrote: :class:`GRPO` and :class:`RLOO`.

::

    run = ls.from_pretrained("runs/start", {"train.steps": 100, "batch.global": 64, ...})
    trainer = ls.rl.GRPO(run, prompts, reward, n=8, max_tokens=32)
    for m in trainer:
        print(m.step, m.reward)

A batch is ``minibatches * run.batch`` texts, n of each prompt; a minibatch of ``run.batch`` texts is
one step of the run. The log-probabilities of drawn tokens, at the temperature they were drawn at,
have the bits of the forward pass of training, so in the first update of a batch the ratio of new to
old probability is exactly 1.

The prompts and texts of a batch follow from the seed and ``run.step_count``: a loop goes on where
the run does, in another layout too, to the same bits. Its metrics are lines of ``RUN/rl.jsonl``.
Over MPI all processes run the same loop; the reward function is called in rank 0 alone.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _arrays, _rewards
from ._formulas import Loss, group_advantages, k3, leave_one_out, policy_loss, token_weights
from ._loop import Loop, order, recorded, trains
from .errors import ArgumentError, DataError
from .training import Run

__all__ = ["GRPO", "RLOO", "Loss", "Metrics", "group_advantages", "k3", "leave_one_out",
           "policy_loss", "token_weights"]


class Metrics(NamedTuple):
    """What a batch of texts gave.

    ``reward`` and ``reward_std`` are over its texts; ``length`` is the mean of tokens drawn in a
    text, ``truncated`` the share of texts that no token or text to stop at has ended. ``kl`` is the
    mean of :func:`k3` over tokens (NaN without a reference); ``entropy`` that of the distributions
    that they were drawn from (by default an estimate); both before the first update, as is ``loss``,
    of the first minibatch, the bonus taken off. Over all updates: ``clip_share``, the share of
    tokens that clipping left without gradient; ``ratio_*``, the range of new to old probability;
    ``kl_old``, the mean of :func:`k3` of the old policy, which drew, and the new. ``tokens_per_s``
    counts rollout and updates. ``rewards`` are the means of each reward function, not weighted. The
    rest is of the last update.
    """

    step: int
    reward: float
    reward_std: float
    loss: float
    kl: float
    entropy: float
    clip_share: float
    ratio_min: float
    ratio_max: float
    kl_old: float
    length: float
    truncated: float
    tokens: int
    tokens_per_s: float
    rollout_s: float
    update_s: float
    grad_norm: float
    lr: float
    hash: Optional[str]
    rewards: Tuple[float, ...] = ()


THEIRS = {  # names of TRL
    "beta": "kl", "num_generations": "n", "max_completion_length": "max_tokens", "epsilon": "clip",
    "epsilon_high": "clip", "num_iterations": "updates", "steps_per_generation": "minibatches",
    "loss_type": "normalise", "scale_rewards": "scale", "importance_sampling_level": "ratio",
    "reward_funcs": "reward", "ref_model": "reference", "entropy_coef": "entropy_bonus",
    "mask_truncated_completions": "mask_truncated", "use_bias_correction_kl": "kl_weighted"}


def _number(pattern: str, name: str) -> int:
    found = re.fullmatch(pattern, name)
    return int(found.group(1)) if found else -1


class GRPO(Loop):
    """Group relative policy optimisation (arXiv 2402.03300).

    Args:
        run: it trains; each of its steps takes ``run.batch`` texts.
        prompts: texts, lists of token ids, or dicts with ``"prompt"`` and whatever reward needs.
        reward: called with the prompts as given and the texts drawn (lists of token ids, where the
            model has no tokenizer), one of each; returns as many numbers. One with a parameter
            ``completions`` is called as TRL calls it (doc/rl.md). A list of functions: their sum.
        reward_weights: what each function weighs in the sum; None: 1.
        n: texts of a prompt.
        max_tokens: drawn in each text at most.
        updates: passes over a batch, each of all its texts.
        minibatches: of a batch, ``run.batch`` texts each; one is a step of the run.
        shuffle: each pass takes its texts in an order of its own, by seed and step, not by prompts.
        temperature: texts are drawn at it, and all log-probabilities are of the model at it.
        mask_truncated: texts that only max_tokens or the context ended count for nothing in the
            loss; their rewards count in their group.
        clip: how far the ratio may go from 1, down and up; one number for both.
        ratio: ``"token"``, or ``"text"``: one of a text, the geometric mean of its tokens' (GSPO).
        kl: weight of the divergence from reference; kl_weighted: its tokens are weighted by the ratio.
        entropy_bonus: weight of the entropy of what each token is drawn from, which is made larger.
        reference: a :class:`Model` (frozen), or a function of ids that returns log-probabilities;
            it gets ``temperature=`` where that is not 1.
        entropy: ``Metrics.entropy`` is exact, not an estimate; doc/rl.md says what it costs.
        normalise, scale: see :func:`token_weights` and :func:`group_advantages`. None is
            ``"text"``, for RLOO ``"sum"``; Dr. GRPO is ``normalise="max", scale=False``.
        stop, ends: as of :meth:`Run.generate`.
    """

    _normalise, _kl_in_loss = "text", True

    def __init__(self, run: Run, prompts: Sequence[Any],
                 reward: Union[_rewards.Reward, Sequence[_rewards.Reward]], *, n: int = 8,
                 max_tokens: int = 128, updates: int = 1, minibatches: int = 1,
                 shuffle: bool = False, temperature: float = 1.0, mask_truncated: bool = False,
                 clip: Union[float, Tuple[float, float]] = 0.2, kl: float = 0.0,
                 reference: Any = None, entropy: bool = False, entropy_bonus: float = 0.0,
                 normalise: Optional[str] = None, scale: Union[None, bool, str] = None,
                 ratio: str = "token", kl_weighted: bool = False,
                 reward_weights: Optional[Sequence[float]] = None, seed: int = 0,
                 stop: Sequence[str] = (), ends: Optional[Sequence[int]] = None, **other: Any) -> None:
        trains(run)
        for name in other:
            if name not in ("top_k", "top_p", "min_p", "repetition_penalty"):
                ours = f": it is {THEIRS[name]} here (doc/rl.md)" if name in THEIRS else ""
                raise TypeError(
                    f"{type(self).__name__}() got an unexpected keyword argument {name!r}{ours}")
            raise ArgumentError(f"{name}: texts would be drawn from another distribution than that "
                                "whose log-probabilities are in the loss: leave it out, and lower "
                                "temperature to draw unlikely tokens less often")
        _arrays.whole("n", n, 2, run.batch)
        if run.batch % n:
            raise ArgumentError(f"n is {n}: expected a divisor of batch.global = {run.batch}")
        for what, value, most in (("updates", updates, 1000), ("minibatches", minibatches, 1000),
                                  ("max_tokens", max_tokens, run.sequence)):
            _arrays.whole(what, value, 1, most)
        _arrays.positive("temperature", temperature)
        _arrays.positive("kl", kl, or_zero=True)
        _arrays.positive("entropy_bonus", entropy_bonus, or_zero=True)
        if scale is not None and not self._kl_in_loss:
            raise ArgumentError("scale: RLOO's advantages are not divided: leave it out")
        if scale not in (None, True, False, "batch"):
            raise ArgumentError(f"scale is {scale!r}: expected True (by group), False or 'batch'")
        if ratio not in ("token", "text"):
            raise ArgumentError(f"ratio is {ratio!r}: expected 'token' or 'text'")
        if kl_weighted and not (kl and self._kl_in_loss):
            raise ArgumentError("kl_weighted: there is no divergence in the loss: leave it out" if kl
                                else "kl_weighted: expected kl above 0")
        if kl and reference is None:
            raise ArgumentError(f"kl is {kl}: expected a reference, the model to stay near to")
        super().__init__(run, seed, reference)
        self.prompts, self._starts = _arrays.prompts_read(prompts)
        self.reward, self.reward_weights = reward, _rewards.checked(reward, reward_weights)
        self.n, self.max_tokens, self.bonus = n, max_tokens, entropy_bonus
        self.texts, self.steps = minibatches * run.batch, minibatches * updates  # of a batch
        self.shuffle, self.mask_truncated, self.entropy = shuffle, mask_truncated, entropy
        self._at_once = entropy and self.steps == 1 and not shuffle  # by the forward of the update
        self.temperature: Dict[str, Any] = {} if temperature == 1 else {"temperature": temperature}
        self.clip, self.kl = _arrays.down_and_up("clip", clip), kl
        self.scale = True if scale is None else scale
        self._of_ratio: Dict[str, Any] = {"ratio_of": ratio, "kl_weighted": kl_weighted}
        self.normalise = self._normalise if normalise is None else normalise
        token_weights(np.zeros((1, 1)), self.normalise, 1)
        self._ends: Dict[str, Any] = {"stop": stop, "ends": ends}

    def _kept(self, first: int) -> str:
        """Where the texts of the batch that begins at that step are."""
        return os.path.join(self.run.out, f"rl-batch-{first}.npz")

    def _keep(self, batch: Dict[str, Any]) -> None:
        """Its texts, beside those of batches in which the run may go on: that before, of which there
        may be a snapshot, and those that a checkpoint stands in."""
        first = int(batch["first"])
        self._write(self._kept(first), lambda file: np.savez(file, **batch))
        if self.run.rank == 0:
            folder = os.path.join(self.run.out, "checkpoints")
            saved = [_number(r"step-(\d+)", name) for name in os.listdir(folder)]
            needed = {first, first - self.steps} | {s - s % self.steps for s in saved if s % self.steps}
            for name in os.listdir(self.run.out):
                if _number(r"rl-batch-(\d+)\.npz", name) not in {-1} | needed:
                    os.remove(os.path.join(self.run.out, name))

    def _advantages(self, batch: Dict[str, Any]) -> Any:
        return group_advantages(batch["rewards"].reshape(-1, self.n), self.scale)

    def _roll(self, first: int) -> Dict[str, Any]:
        """Texts of the batch that begins at that step, and what they are worth."""
        groups = self.texts // self.n
        places = order(self.seed, first // self.steps * groups, groups, len(self.prompts))
        out = self.run.generate([self._starts[i] for i in places], self.n,
                                max_tokens=self.max_tokens, seed=self.seed * 2**32 + first,
                                batch=self.run.batch, scaled=True, **self.temperature, **self._ends)
        if out.ids.shape[1] > self.run.sequence + 1:
            longest = int(out.prompt_lengths.argmax()) // self.n
            raise ArgumentError(f"prompts[{places[longest]}]: {out.prompt_lengths.max()} tokens, "
                                f"and {self.max_tokens} drawn: expected data.sequence + 1 = "
                                f"{self.run.sequence + 1} or less in all")
        drawn = [row[mask].tolist() for row, mask in zip(out.ids, out.mask)]
        texts = out.texts if self.run._answer["tokenizer"] else drawn
        asked = [self.prompts[i] for i in places for _ in range(self.n)]
        each = [self._numbers(name, lambda: _rewards.call(function, asked, texts, drawn), len(texts))
                for name, function in _rewards.named(self.reward)]
        batch = {"first": np.int64(first), "ids": out.ids, "old": out.logp, "mask": out.mask,
                 "each": np.stack(each, axis=1), "ended": np.isin(out.finish, ("end", "stop")),
                 "rewards": sum(w * one for w, one in zip(self.reward_weights, each))}
        if self._logprobs is not None:
            batch["reference"] = self._reference(out.ids, **self.temperature)
        if self.entropy and not self._at_once:
            batch["entropy"] = self.run.logprobs(out.ids, entropy=True, **self.temperature)[1]
        if self.steps > 1:
            self._keep(batch)
        return batch

    def _again(self, first: int) -> Dict[str, Any]:
        """The texts of a batch of which the run has taken some updates."""
        expected = (f"the texts of step {first}; go on from a checkpoint at a multiple of "
                    f"{self.steps} steps")
        path, older = self._kept(first), os.path.join(self.run.out, "rl-batch.npz")
        path = older if os.path.exists(older) and not os.path.exists(path) else path
        batch = self._read(path, expected)
        if batch.get("first") != first:
            raise DataError(f"{path} is of step {batch.get('first')}: expected {expected}")
        return batch

    def _part(self, batch: Dict[str, Any], number: int) -> Dict[str, Any]:
        """The texts of a step of the batch, with advantages, and the mask of the loss."""
        size, at = self.run.batch, number * self.run.batch % self.texts
        places: Any = slice(at, at + size)
        if self.shuffle:  # the seeds of prompts end at 2**31
            places = order(2**31 + self.seed, (int(batch["first"]) + number) * size, size, self.texts)
        whole = {**batch, "advantages": self._advantages(batch).reshape(-1)}
        part = {name: value[places] for name, value in whole.items() if name != "first"}
        if self.mask_truncated:
            part["mask"] = part["mask"] & part["ended"][:, None]
        return part

    @recorded
    def step(self) -> Metrics:
        """A batch: rollout, rewards and updates."""
        begin, run = time.perf_counter(), self.run
        first, done = run.step_count // self.steps * self.steps, run.step_count % self.steps
        batch = self._again(first) if done else self._roll(first)
        middle, losses, clipped, log_ratios = time.perf_counter(), [], 0, []
        for number in self._updates_of(range(done, self.steps)):
            part = self._part(batch, number)
            logp = run.logprobs(part["ids"], **self.temperature) if number else part["old"]
            weights = token_weights(part["mask"], self.normalise, self.max_tokens)
            loss = policy_loss(logp, part["old"], part["advantages"], weights, self.clip,
                               self.kl if self._kl_in_loss else 0, part.get("reference"), **self._of_ratio)
            bonus = -self.bonus * weights if self.bonus or self._at_once else None
            logp = self._backward(part["ids"], loss.d_logprobs, d_entropies=bonus, **self.temperature)
            logp, entropies = (logp, 0) if bonus is None else logp
            if self._at_once:  # of the model that drew, if nothing was dropped out
                batch["entropy"] = entropies if np.array_equal(logp, batch["old"]) else run.logprobs(
                    batch["ids"], entropy=True, **self.temperature)[1]
            last = self._update()
            losses.append(loss.value + (0 if bonus is None else float((bonus * entropies).sum())))
            clipped += loss.clipped.sum()
            log_ratios.append((logp.astype(np.float64) - part["old"])[part["mask"]])
        end, mask, rewards = time.perf_counter(), batch["mask"], batch["rewards"]
        each = batch.get("each", rewards[:, None])  # of older versions
        drawn, old, log_ratio = mask.sum(), batch["old"][mask], np.concatenate(log_ratios)
        kl = k3(old, batch["reference"][mask]) if "reference" in batch else np.nan
        entropy = batch["entropy"][mask] if "entropy" in batch else -old
        log_ratio = log_ratio if log_ratio.size else np.full(1, np.nan)  # all texts are masked
        return self._record(Metrics(
            last.step, rewards.mean(), rewards.std(), losses[0], float(np.mean(kl)),
            entropy.mean(dtype=np.float64), clipped / log_ratio.size, np.exp(log_ratio.min()),
            np.exp(log_ratio.max()), k3(0, log_ratio).mean(), drawn / len(mask),
            1 - batch["ended"].mean(), drawn, drawn / (end - begin), middle - begin, end - middle,
            last.grad_norm, last.lr, last.hash, tuple(each.mean(axis=0).tolist())))


class RLOO(GRPO):
    """REINFORCE with a leave-one-out baseline (arXiv 2402.14740): advantages are
    :func:`leave_one_out`, a text's loss is the sum over its tokens, and kl is taken from the
    reward, as kl * log(policy / reference) of the text. Arguments as of :class:`GRPO`, but scale."""

    _normalise, _kl_in_loss = "sum", False

    def _advantages(self, batch: Dict[str, Any]) -> Any:
        rewards = batch["rewards"]
        if self.kl:
            apart = batch["old"].astype(np.float64) - batch["reference"]
            rewards = rewards - self.kl * (apart * batch["mask"]).sum(axis=1)
        return leave_one_out(rewards.reshape(-1, self.n))
