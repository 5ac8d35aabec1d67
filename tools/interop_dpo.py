#!/usr/bin/env python3
"""Holds preference tuning by weights of tokens against PyTorch.

    make interop [PYTHON=/path/to/venv/bin/python] [SEED=1]
    tools/interop_dpo.py --lockstep build/lockstep --example build/examples/dpo [--seed 1]

Needs torch, transformers and numpy. A small random GPT-2 is trained for 10 steps on pairs of texts with the
DPO loss (Rafailov et al. 2023, arXiv 2305.18290), in float32:

    Lockstep    examples/dpo.c: it scores the texts, makes a weight of each target from their
                log-probabilities, -d loss / d log p, and gives the batch with its weights; on one rank
                and, with the same bits, on four
    PyTorch     the loss as the paper writes it, and autograd

The loss of each step is at most 1e-5 apart: log-probabilities of texts are near -100, in float32. The
parameters' difference is at most 2e-5 of the way that training moved them (norms over all tensors): each
sum is taken in another order, and AdamW divides by the size of a gradient. Its epsilon is above rounding.

Broken twins of the plain one must be off: another beta; only chosen texts have a gradient; a mean
over tokens in the place of a sum. It ends with 1 where something is not as it should be.
"""
import copy
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers

import interop_gpt2
from interop_gpt2 import parameters_apart

LOSS_LIMIT, PARAMETERS_LIMIT = 1e-5, 2e-5
STEPS, PAIRS, BATCH, TOKENS, VOCABULARY, LR, BETA, EPSILON = 10, 12, 4, 48, 128, 1e-3, 0.3, 1e-5
LAYOUTS = [[], ["parallel.dp=2", "parallel.tp=2", "batch.micro=2"]]
TWINS = ["beta", "chosen", "mean"]


def model_make(seed):
    return interop_gpt2.model_make(seed, VOCABULARY, TOKENS, layers=2)


def texts_make(seed):
    """[(tokens of the prompt, ids)], chosen and rejected in turn."""
    generator = numpy.random.default_rng(seed)
    texts = []
    for _ in range(PAIRS):
        prompt = generator.integers(0, VOCABULARY, generator.integers(1, 12)).tolist()
        for _ in range(2):
            more = generator.integers(0, VOCABULARY, generator.integers(3, 30)).tolist()
            texts.append((len(prompt), prompt + more))
    return texts


# ---- PyTorch --------------------------------------------------------------------------------------

def logprob(model, text, mean=False):
    """Of the tokens behind the prompt, together."""
    prompt, ids = text
    ids = torch.tensor([ids])
    logits = model(ids[:, :-1]).logits[0]
    each = torch.log_softmax(logits, -1)[torch.arange(ids.shape[1] - 1), ids[0, 1:]][prompt - 1:]
    return each.mean() if mean else each.sum()


def dpo_loss(policy, reference, texts, twin):
    losses = []
    for chosen, rejected in zip(texts[::2], texts[1::2]):
        mean = twin == "mean"
        ratio = []
        for text in (chosen, rejected):
            with torch.no_grad():
                before = logprob(reference, text, mean)
            ratio.append(logprob(policy, text, mean) - before)
        if twin == "chosen":
            ratio[1] = ratio[1].detach()
        beta = BETA * (1.05 if twin == "beta" else 1)
        losses.append(-torch.nn.functional.logsigmoid(beta * (ratio[0] - ratio[1])))
    return torch.stack(losses).mean()


def by_torch(start, texts, twin=None):
    policy = copy.deepcopy(start)
    optimizer = interop_gpt2.adamw(policy, LR, 0.1, EPSILON)
    losses = []
    for step in range(STEPS):
        first = step * BATCH % len(texts)
        loss = dpo_loss(policy, start, texts[first:first + BATCH], twin)
        losses.append(interop_gpt2.update(policy, optimizer, loss))
    return losses, policy


# ---- Lockstep -------------------------------------------------------------------------------------

def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def by_lockstep(arguments, folder, number, layout):
    """Losses, the hash, and the model."""
    out, export = folder / f"run{number}", folder / f"export{number}"
    told = run(arguments.example, folder / "pairs.txt", BETA, f"model.from={folder / 'start'}",
               f"data.sequence={TOKENS}", f"batch.global={BATCH}", f"train.steps={STEPS}",
               f"optim.lr={LR}", f"optim.epsilon={EPSILON}", "optim.schedule=constant",
               "optim.weight_decay=0.1", "numerics.precision=fp32", "parallel.threads=1",
               f"train.out={out}", *layout).split()
    losses = [float(word) for before, word in zip(told, told[1:]) if before == "loss"]
    run(arguments.lockstep, "export", out, "--out", export)
    return losses, told[-1], transformers.GPT2LMHeadModel.from_pretrained(export)


# ---- the comparison -------------------------------------------------------------------------------

def losses_apart(a, b):
    assert len(a) == len(b) == STEPS
    return max(abs(x - y) for x, y in zip(a, b))


def check_all(arguments):
    torch.set_num_threads(1)
    bad, start, texts = [], model_make(arguments.seed), texts_make(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        start.save_pretrained(folder / "start")
        (folder / "pairs.txt").write_text(
            "".join(f"{prompt} {' '.join(map(str, ids))}\n" for prompt, ids in texts))
        made = [by_lockstep(arguments, folder, i, layout) for i, layout in enumerate(LAYOUTS)]
    losses, digest, model = made[0]
    if any(other[:2] != (losses, digest) for other in made[1:]):
        bad.append("two layouts have other losses or another hash")
    for twin in [None, *TWINS]:
        found, policy = by_torch(start, texts, twin)
        loss, parameters = losses_apart(losses, found), parameters_apart(model, policy, start)
        what = f"twin {twin}" if twin else f"PyTorch, losses {found[0]:.4f} to {found[-1]:.4f}"
        print(f"{what}: losses {loss:.1e} apart (limit {LOSS_LIMIT:.0e}, {LOSS_LIMIT / loss:.3g} times "
              f"that), parameters {parameters:.1e} (limit {PARAMETERS_LIMIT:.0e}, "
              f"{PARAMETERS_LIMIT / parameters:.3g} times that)")
        if not twin and not (loss <= LOSS_LIMIT and parameters <= PARAMETERS_LIMIT):
            bad.append("PyTorch")
        if twin and (loss <= 10 * LOSS_LIMIT or parameters <= 10 * PARAMETERS_LIMIT):
            bad.append(f"the twin {twin} is not found")
    return bad


def main():
    parser = interop_gpt2.parser_make(__doc__)
    parser.add_argument("--example", type=pathlib.Path, required=True, help="examples/dpo, built")
    interop_gpt2.end("interop_dpo", check_all(parser.parse_args()))


if __name__ == "__main__":
    main()
