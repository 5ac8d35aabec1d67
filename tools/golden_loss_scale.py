#!/usr/bin/env python3
"""Writes test/golden/loss_scale.txt: what PyTorch's GradScaler and DeepSpeed's DynamicLossScaler
make of sequences of steps that were finite or not. Needs torch and deepspeed.

    python3 tools/golden_loss_scale.py > test/golden/loss_scale.txt

A line is a case: who, initial scale, window, hysteresis, consecutive hysteresis, least scale, then
for each step "+" (finite) or "-" with the scale after it; "!" where DeepSpeed raises because the
scale is at its least, which ends the case.

This version of DeepSpeed doubles one step later than the window says, and than GradScaler and its
own earlier versions do: that step is taken away here.
"""
import random

import deepspeed
import torch
from deepspeed.runtime.fp16 import loss_scaler

loss_scaler.dist.get_rank = lambda: 0  # it logs on rank 0
loss_scaler.logger.disabled = True


def draw(rng, steps, share):
    """Runs of overflows of length 1 to 4 between runs of finite steps."""
    finite = []
    while len(finite) < steps:
        finite += [True] * rng.randint(1, max(1, int(6 / share / 10)))
        finite += [False] * (rng.randint(1, 4) if rng.random() < 3 * share else 0)
    return finite[:steps]


def torch_case(initial, window, finite):
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=initial, growth_interval=window)
    told = []
    for good in finite:
        scaler.scale(torch.zeros(()))  # makes the scale
        weight.grad = torch.full((2,), 1.0 if good else float("inf"))
        scaler.step(optimizer)
        scaler.update()
        told.append(f"{'+' if good else '-'}{scaler.get_scale():.17g}")
    return ["torch", f"{initial:.17g}", window, 1, 0, 0] + told


def deepspeed_case(initial, window, hysteresis, consecutive, least, finite):
    scaler = loss_scaler.DynamicLossScaler(
        init_scale=initial, scale_window=window, min_scale=least, delayed_shift=hysteresis,
        consecutive_hysteresis=consecutive, raise_error_at_min_scale=True, dtype=torch.half)
    scaler.last_overflow_iter -= 1
    told = []
    for good in finite:
        try:
            scaler.update_scale(not good)
        except Exception as error:
            assert "already at minimum" in str(error), error
            told.append("!")
            break
        scaler.last_overflow_iter -= not good
        told.append(f"{'+' if good else '-'}{scaler.loss_scale:.17g}")
    return ["deepspeed", f"{initial:.17g}", window, hysteresis, int(consecutive), f"{least:.17g}"] + told


def main():
    rng = random.Random(1)
    print(f"# by tools/golden_loss_scale.py with torch {torch.__version__}, "
          f"deepspeed {deepspeed.__version__}")
    for case in range(24):
        finite = draw(rng, 60, rng.choice([0.02, 0.1, 0.3]))
        print(*torch_case(2.0 ** rng.choice([4, 16, 24]), rng.choice([1, 2, 3, 5, 20]), finite))
    for case in range(72):
        finite = draw(rng, 60, rng.choice([0.02, 0.1, 0.3]))
        print(*deepspeed_case(2.0 ** rng.choice([3, 8, 16]), rng.choice([1, 2, 3, 5, 20]),
                              rng.choice([1, 2, 3]), rng.random() < 0.5,
                              rng.choice([0.25, 1.0, 2.0, 8.0]), finite))


if __name__ == "__main__":
    main()
