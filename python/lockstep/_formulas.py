"""The formulas of :mod:`lockstep.rl`: arrays are [texts, tokens], [texts] or [prompts, n]."""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple, Union

import numpy as np

from .errors import ArgumentError


def group_advantages(rewards: Any, scale: Union[bool, str] = True) -> Any:
    """Of rewards [prompts, n]: reward minus the mean of its group, over the group's standard
    deviation (GRPO, arXiv 2402.03300); scale="batch": over that of all rewards (arXiv 2508.08221);
    scale=False: not divided (Dr. GRPO, arXiv 2503.20783)."""
    rewards = np.asarray(rewards, np.float64)
    apart = rewards - rewards.mean(axis=1, keepdims=True)
    if scale == "batch":
        return apart / (rewards.std(ddof=1) + 1e-4)
    return apart / (rewards.std(axis=1, ddof=1, keepdims=True) + 1e-4) if scale else apart


def leave_one_out(rewards: Any) -> Any:
    """Of rewards [prompts, n]: reward minus the mean of the others of its group (RLOO, arXiv
    2402.14740)."""
    rewards = np.asarray(rewards, np.float64)
    n = rewards.shape[1]
    return (rewards - rewards.mean(axis=1, keepdims=True)) * (n / (n - 1))


def k3(logp: Any, reference: Any) -> Any:
    """Of each token: r - log r - 1 with r = reference / policy. Its mean over drawn tokens
    estimates KL(policy, reference), and is never negative (arXiv 2402.03300, equation 4)."""
    log_r = np.asarray(reference, np.float64) - logp
    return np.exp(log_r) - log_r - 1


def token_weights(mask: Any, normalise: str, max_tokens: int) -> Any:
    """What each drawn token weighs in the loss. ``"text"``: a mean over the tokens of a text, then
    over texts (GRPO); ``"max"``: a sum over tokens divided by texts * max_tokens (Dr. GRPO);
    ``"tokens"``: a mean over all tokens; ``"sum"``: a sum over tokens, a mean over texts (RLOO)."""
    texts, lengths = mask.shape[0], np.maximum(mask.sum(axis=1, keepdims=True), 1)
    divisors = {"text": texts * lengths, "max": texts * max_tokens, "sum": texts,
                "tokens": max(int(mask.sum()), 1)}
    if normalise not in divisors:
        raise ArgumentError(f"normalise is {normalise!r}: expected one of {', '.join(divisors)}")
    return mask / np.asarray(divisors[normalise], np.float64)


class Loss(NamedTuple):
    """A loss, its derivative by each token's log-probability, and the tokens that were clipped."""

    value: float
    d_logprobs: Any
    clipped: Any


def policy_loss(logp: Any, old: Any, advantages: Any, weights: Any, clip: Tuple[float, float],
                kl: float = 0.0, reference: Any = None, ratio_of: str = "token",
                kl_weighted: bool = False) -> Loss:
    """Sum over tokens of weight * (kl * k3 - min(ratio A, clip(ratio, 1 - low, 1 + high) A)), where
    ratio = exp(logp - old) and A = advantages [texts]: PPO's objective (arXiv 1707.06347).
    ratio_of="text": exp of the mean of logp - old over a text's tokens (GSPO, arXiv 2507.18071), all
    of which weigh the same. kl_weighted: k3 times the ratio (arXiv 2512.02556)."""
    log_ratio = np.asarray(logp, np.float64) - old
    share = (weights > 0) / np.maximum((weights > 0).sum(axis=1, keepdims=True), 1)
    if ratio_of == "text":
        log_ratio = np.broadcast_to((log_ratio * share).sum(axis=1, keepdims=True), log_ratio.shape)
    ratio = np.exp(log_ratio)
    gain = np.asarray(advantages, np.float64)[:, None]
    bounded = np.clip(ratio, 1 - clip[0], 1 + clip[1])
    clipped = (ratio * gain > bounded * gain) & (weights > 0)
    each, slope = -np.minimum(ratio * gain, bounded * gain), np.where(clipped, 0, -ratio * gain)
    apart = k3(logp, reference) if kl and reference is not None else None
    if apart is not None and kl_weighted:
        slope = slope + kl * ratio * apart
    if ratio_of == "text":  # each token's part of the ratio
        slope = (slope * share).sum(axis=1, keepdims=True)
    if apart is not None:
        heft = kl * (ratio if kl_weighted else 1)
        each = each + heft * apart
        slope = slope + heft * (1 - np.exp(np.asarray(reference, np.float64) - logp))
    return Loss(float((weights * each).sum()), weights * slope, clipped)
