"""A small GPT-2 in PyTorch, for the tools that hold training against it (interop_dpo.py,
interop_workers.py): how it is made, how it is trained, and how far from each other two trainings are."""
import argparse
import pathlib
import sys

import torch
import transformers


def model_make(seed, vocabulary, tokens, layers):
    torch.manual_seed(seed)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=vocabulary, n_positions=tokens, n_embd=64, n_layer=layers, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None))
    return model.train()


def adamw(model, lr, decay, epsilon):
    parameters = list(model.parameters())
    return torch.optim.AdamW(
        [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": decay},
         {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}],
        lr=lr, betas=(0.9, 0.95), eps=epsilon)


def update(model, optimizer, loss):
    """One, with the gradient clipped to norm 1; the loss as a number."""
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


@torch.no_grad()
def parameters_apart(ours, other, start):
    """The difference's norm as a share of that of the way from start to other."""
    apart = moved = 0.0
    for a, b, begin in zip(ours.parameters(), other.parameters(), start.parameters()):
        a, b, begin = (value.double() for value in (a, b, begin))
        apart += (a - b).square().sum().item()
        moved += (b - begin).square().sum().item()
    return (apart / moved) ** 0.5


def parser_make(description):
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    return parser


def end(tool, bad):
    """Prints what is off, and ends with 1 if something is."""
    for what in bad:
        print("FAILED:", what)
    print(f"{tool}: " + ("off" if bad else "alike"))
    sys.exit(1 if bad else 0)
