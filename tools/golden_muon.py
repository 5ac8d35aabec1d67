#!/usr/bin/env python3
"""Writes test/golden/muon.txt: what torch.optim.Muon makes of small matrices.

    tools/golden_muon.py [OUT]

Needs PyTorch of at least 2.9; the tests read the file without it. PyTorch orthogonalises in
bfloat16. To tell what its formulas say from what that rounds away, each case runs twice: with
torch.bfloat16 made float64, and as PyTorch is. Lines that begin with # are comments; a case is

    case ROWS COLS NESTEROV SCALE LR WEIGHT_DECAY MOMENTUM NS_STEPS STEPS
    param V...      before the first step, row-major
    grad V...       of each step, a line each
    want V...       param after the last step, in float64
    buffer V...     momentum_buffer then
    rounded V...    param after the last step as PyTorch computes it
"""

import sys

import torch

STEPS = 3
CASES = [
    # rows, cols, nesterov, scale, lr, weight decay, momentum, ns_steps
    (4, 6, True, "match_rms_adamw", 0.02, 0.1, 0.95, 5),
    (6, 4, True, "match_rms_adamw", 0.02, 0.1, 0.95, 5),
    (5, 5, False, "original", 0.05, 0.0, 0.9, 5),
    (12, 3, True, "original", 0.05, 0.3, 0.95, 5),
    (3, 12, True, "original", 0.05, 0.3, 0.5, 4),
    (1, 7, True, "match_rms_adamw", 0.02, 0.1, 0.95, 5),
    (7, 1, False, "match_rms_adamw", 0.02, 0.1, 0.95, 1),
    (10, 16, True, "match_rms_adamw", 0.02, 0.1, 0.0, 6),
]


def values_of(seed, rows, cols):
    generator = torch.Generator().manual_seed(seed)
    # What a float32 holds, so that the test reads the same numbers.
    return torch.randn(rows, cols, generator=generator).to(torch.float64)


def run(case, seed, dtype):
    rows, cols, nesterov, scale, lr, decay, momentum, ns_steps = case
    param = torch.nn.Parameter(values_of(seed, rows, cols).to(dtype))
    optimizer = torch.optim.Muon([param], lr=lr, weight_decay=decay, momentum=momentum,
                                 nesterov=nesterov, ns_steps=ns_steps, adjust_lr_fn=scale)
    for step in range(STEPS):
        param.grad = values_of(seed + 1 + step, rows, cols).to(dtype)
        optimizer.step()
    return param.detach(), optimizer.state[param]["momentum_buffer"]


def line(name, values):
    return name + "".join(f" {value:.9g}" for value in values.flatten().tolist()) + "\n"


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "test/golden/muon.txt"
    with open(out, "w", encoding="ascii") as file:
        file.write(f"# torch {torch.__version__}, written by tools/golden_muon.py\n")
        for number, case in enumerate(CASES):
            seed = 100 * (number + 1)
            rounded, _ = run(case, seed, torch.float32)
            bfloat16, torch.bfloat16 = torch.bfloat16, torch.float64
            want, buffer = run(case, seed, torch.float64)
            torch.bfloat16 = bfloat16
            rows, cols, nesterov, scale, lr, decay, momentum, ns_steps = case
            file.write(f"case {rows} {cols} {int(nesterov)} {scale} {lr:g} {decay:g} {momentum:g} "
                       f"{ns_steps} {STEPS}\n")
            file.write(line("param", values_of(seed, rows, cols)))
            for step in range(STEPS):
                file.write(line("grad", values_of(seed + 1 + step, rows, cols)))
            file.write(line("want", want))
            file.write(line("buffer", buffer))
            file.write(line("rounded", rounded))


main()
