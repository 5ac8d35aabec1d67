#!/usr/bin/env python3
"""Teaches a small model sums of two numbers by reward alone: right or wrong.

    PYTHONPATH=python examples/grpo_arithmetic.py [--out runs/arithmetic] [--keys "parallel.dp=2"]

First it makes its own beginning: a few hundred steps on written sums, until the model is right now
and then. Then GRPO: 64 sums a step, 8 answers to each, drawn from the model; a right answer is
worth 1, any other 0. A fifth of all sums is held out, and asked before and after. The reward of
each step is drawn to OUT/reward.svg. Layout keys change nothing that it prints but seconds.
"""
import argparse
import pathlib
import shutil

import numpy as np

import lockstep as ls
from lockstep.rl import GRPO

MODEL = {"model.arch": "llama", "model.layers": 2, "model.channels": 64, "model.heads": 4,
         "model.context": 12, "data.tokenizer": "byte", "data.sequence": 8,
         "numerics.precision": "fp32", "log.progress": "off",
         "parallel.threads": 1}  # of a rank: the model is so small that more would wait


def sums_all(most):
    """Sums to learn and sums held out, in an order that is the same each time."""
    order = np.random.RandomState(1).permutation(most * most)
    sums = [{"prompt": f"{at // most}+{at % most}=", "answer": str(at // most + at % most)}
            for at in order]
    return sums[len(sums) // 5:], sums[:len(sums) // 5]


def reward(sums, texts):
    return [float(text == asked["answer"]) for asked, text in zip(sums, texts)]


def share_right(model, sums):
    """Of one answer drawn to each."""
    out = model.generate([asked["prompt"] for asked in sums], max_tokens=3, seed=9, batch=256)
    return float(np.mean(reward(sums, out.texts)))


def warm_up(folder, sums, held_out, steps, layout):
    """Supervised steps: only what follows "=" counts."""
    keys = {**MODEL, "train.steps": steps, "train.out": folder, "batch.global": 64,
            "optim.lr": 2e-3, "optim.warmup_steps": 300, **layout}
    rng = np.random.RandomState(2)
    with ls.Run(keys) as run:
        end = run.end_of_document
        for _ in range(steps):
            tokens = np.full((64, 9), -1)
            weights = np.zeros(tokens.shape)
            for row, at in enumerate(rng.randint(len(sums), size=64)):
                prompt, answer = sums[at]["prompt"].encode(), sums[at]["answer"].encode()
                tokens[row, :len(prompt) + len(answer) + 1] = [*prompt, *answer, end]
                weights[row, len(prompt):len(prompt) + len(answer) + 1] = 1
            last = run.step(tokens, weights=weights)
        right = share_right(run, held_out)
    print(f"warm-up: {steps} steps, loss {last.loss:.3f}; held-out sums right: {right:.1%}",
          flush=True)


def tune(folder, start, sums, held_out, steps, layout):
    keys = {"model.from": start, "train.steps": steps, "train.out": folder, "batch.global": 512,
            "optim.lr": 6e-4, "optim.warmup_steps": 30, "optim.schedule": "constant",
            "optim.beta2": 0.99, "optim.weight_decay": 0,
            **{key: MODEL[key] for key in MODEL if not key.startswith("model.")}, **layout}
    rewards = []
    with ls.Run(keys) as run:
        before = share_right(run, held_out)
        for m in GRPO(run, sums, reward, n=8, max_tokens=3):
            rewards.append(m.reward)
            if m.step % 20 == 0 or m.step == steps:
                print(f"step {m.step:3}  reward {m.reward:.3f}  ratio {m.ratio_min} to "
                      f"{m.ratio_max}  {m.tokens_per_s:.0f} tokens/s, rollout "
                      f"{m.rollout_s / (m.rollout_s + m.update_s):.0%} of the time", flush=True)
        print(f"held-out sums right: {before:.1%} before, {share_right(run, held_out):.1%} after")
        print(f"hash {run.hash()}")
    return rewards


def draw(rewards, path):
    """Reward against step as an SVG, and as a line of text."""
    width, height = 640, 240
    points = " ".join(f"{40 + i * width / max(len(rewards) - 1, 1):.1f},{10 + (1 - r) * height:.1f}"
                      for i, r in enumerate(rewards))
    marks = "".join(f'<text x="4" y="{14 + (1 - y) * height}">{y}</text><path stroke="#ddd" d="M40 '
                    f'{10 + (1 - y) * height}h{width}"/>' for y in (0.0, 0.5, 1.0))
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 50} {height + 40}" '
        f'font-family="sans-serif" font-size="12">{marks}<polyline fill="none" stroke="#0060a0" '
        f'stroke-width="2" points="{points}"/><text x="40" y="{height + 30}">mean reward of steps 1 '
        f'to {len(rewards)}</text></svg>\n')
    few = [np.mean(part) for part in np.array_split(rewards, min(len(rewards), 60))]
    print("reward " + "".join("▁▂▃▄▅▆▇█"[min(int(r * 8), 7)] for r in few) + f"  ({path})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="runs/arithmetic", type=pathlib.Path)
    parser.add_argument("--keys", default="", help='of the layout: "parallel.dp=2"')
    parser.add_argument("--numbers", default=30, type=int, help="below this")
    parser.add_argument("--warm-up", default=320, type=int, help="steps")
    parser.add_argument("--steps", default=160, type=int)
    o = parser.parse_args()
    layout = {key: int(value) for key, value in (pair.split("=") for pair in o.keys.split())}
    sums, held_out = sums_all(o.numbers)
    for part in ("start", "grpo"):
        shutil.rmtree(o.out / part, ignore_errors=True)
    warm_up(o.out / "start", sums, held_out, o.warm_up, layout)
    rewards = tune(o.out / "grpo", o.out / "start", sums, held_out, o.steps, layout)
    draw(rewards, o.out / "reward.svg")


if __name__ == "__main__":
    main()
