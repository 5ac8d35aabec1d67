#!/usr/bin/env python3
"""Holds lockstep.rl against TRL: drawn batches, and the parameters after their steps.

    make interop [PYTHON=/path/to/venv/bin/python] [COUNT=20] [SEED=1]
    PYTHONPATH=python tools/interop_trl.py [--count 20] [--seed 1]

Needs torch, transformers, trl and numpy. A small random GPT-2 writes texts in a drawn layout and learns
from drawn rewards by lockstep.rl, in one to six steps of plain SGD. The same texts and rewards go through
TRL's own loss (`_compute_loss` of GRPOTrainer, and of RLOOTrainer for one step of RLOO) and PyTorch's
autograd, with old and reference log-probabilities that PyTorch computes. Drawn are groups, lengths, ends (a
text may end at its first token, or never), truncated texts that are masked, rewards that are all equal,
clipping, temperature, divergence, how tokens weigh, the ratio's level, updates, minibatches and their order.

The parameters' difference is at most 3e-5 of the way that training moved them. The twin, whose divergence
weighs a tenth more or, without one, whose advantages do, must be off. It ends with 1 where something is not
as it should be.
"""
import argparse
import collections
import copy
import os
import pathlib
import tempfile
import types

import numpy as np
import torch
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_trainer import RLOOTrainer

import interop_gpt2
import lockstep as ls
from lockstep._loop import order

os.environ.setdefault("LOCKSTEP_PEAK_FLOPS", "2e11")  # nothing is measured
VOCABULARY, BATCH, LIMIT, LR = 64, 8, 3e-5, .05
LOSSES = {"text": "grpo", "tokens": "bnpo", "max": "dr_grpo", "sum": "luspo"}
LAYOUTS = [{}, {"parallel.dp": 2}, {"parallel.tp": 2}, {"parallel.pp": 2}]


def drawn(rng):
    """The options of a case."""
    pick = lambda *values: values[rng.randint(len(values))]  # noqa: E731
    o = types.SimpleNamespace(
        kind=pick(ls.rl.GRPO, ls.rl.GRPO, ls.rl.RLOO), layout=pick(*LAYOUTS), rewards=pick("any", "equal", "one"),
        prompts=[rng.randint(0, VOCABULARY, rng.randint(1, 6)).tolist() for _ in range(rng.randint(1, 7))])
    o.given = {"n": pick(2, 4, 8), "minibatches": pick(1, 1, 2), "updates": pick(1, 1, 2, 3), "kl": pick(0, .1, .5),
               "normalise": pick(*LOSSES), "clip": (pick(.01, .2), pick(.02, .28)), "temperature": pick(1, .7, 1.4),
               "max_tokens": pick(1, 2, 5, 8), "mask_truncated": pick(False, True), "shuffle": pick(False, True),
               "ratio": pick("token", "text"),
               "ends": pick([], [5], list(range(0, VOCABULARY, 3)), list(range(VOCABULARY)))}
    if o.kind is ls.rl.GRPO:
        o.given.update(scale=pick(True, False, "batch"), kl_weighted=o.given["kl"] > 0 and pick(False, True))
    o.steps = o.given["minibatches"] * o.given["updates"]
    o.own = o.kind is ls.rl.RLOO and o.steps == 1 and (o.given["normalise"], o.given["ratio"]) == ("sum", "token")
    return o


def by_lockstep(o, folder, rng):
    """The batch, and parameters by the names of transformers."""
    seen = []

    class Seen(o.kind):
        def _roll(self, first):
            seen.append(super()._roll(first))
            return seen[-1]

    def reward(_, texts):
        return {"any": rng.randn(len(texts)), "equal": np.full(len(texts), .3), "one": np.eye(len(texts))[0]}[o.rewards]

    keys = {"model.from": folder / "start", "train.out": tempfile.mkdtemp(dir=folder), "train.resume": "never",
            "data.sequence": 15, "batch.global": BATCH, "train.steps": o.steps, "numerics.precision": "fp32",
            "parallel.threads": 1, "log.tensorboard": False, "optim.name": "sgd", "optim.momentum": 0,
            "optim.lr": LR, "optim.schedule": "constant", "optim.clip": 0, "optim.weight_decay": 0}
    with ls.Model(folder / "reference", {"numerics.precision": "fp32"}) as reference:
        with ls.Run(keys, o.layout, progress=False) as run:
            Seen(run, o.prompts, reward, reference=reference if o.given["kl"] else None, **o.given).step()
            return seen[0], {name: torch.tensor(np.array(value)) for name, value in run.state_dict().items()}


# ---- TRL ------------------------------------------------------------------------------------------

class Alone:
    """An accelerator of one process."""

    num_processes, sync_gradients = 1, True
    gather = gather_for_metrics = staticmethod(lambda value: value)
    reduce = staticmethod(lambda value, reduction: value)


def logprobs(model, ids, attention, keep, temperature):
    places = (attention.cumsum(1) - 1).clamp(min=0)
    logits = model(ids, attention_mask=attention, position_ids=places).logits[:, :-1][:, -keep:]
    every = torch.log_softmax(logits / temperature, -1)
    return every.gather(2, ids[:, -keep:, None])[..., 0]


def trainer_of(o, model):
    """TRL's, without its constructor, which wants files and processes."""
    given, kind = o.given, RLOOTrainer if o.own else GRPOTrainer
    trainer = object.__new__(kind)
    vars(trainer).update(
        model=model, accelerator=Alone(), _metrics={"train": collections.defaultdict(list)}, aux_loss_enabled=False,
        top_entropy_quantile=1.0, off_policy_mask_threshold=None, use_vllm=False, _entropy_bonus_enabled=False,
        current_gradient_accumulation_steps=1, epsilon_low=given["clip"][0], epsilon_high=given["clip"][1],
        loss_type=LOSSES[given["normalise"]], max_completion_length=given["max_tokens"],
        importance_sampling_level={"token": "token", "text": "sequence"}[given["ratio"]],
        beta=given["kl"] if o.kind is ls.rl.GRPO else 0.0,
        args=types.SimpleNamespace(delta=None, use_bias_correction_kl=given.get("kl_weighted", False)))

    def each(model, ids, attention, keep, **_):
        found = logprobs(model, ids, attention, keep, given["temperature"])
        return found, torch.zeros_like(found), None

    trainer._get_per_token_logps_and_entropies = each
    return trainer


def padded(batch):
    """As TRL has texts: prompts end, and drawn parts begin, in one column."""
    lengths, masks = batch["mask"].argmax(1), batch["mask"]
    before, after = int(lengths.max()), int(masks.sum(1).max())
    out = {name: torch.zeros(len(masks), width, dtype=torch.long) for name, width in (
        ("prompt_ids", before), ("prompt_mask", before), ("completion_ids", after), ("completion_mask", after))}
    for i, (row, mask, length) in enumerate(zip(batch["ids"].astype(np.int64), masks, lengths)):
        out["prompt_ids"][i, before - length:] = torch.from_numpy(row[:length])
        out["prompt_mask"][i, before - length:] = 1
        out["completion_ids"][i, :mask.sum()] = torch.from_numpy(row[mask])
        out["completion_mask"][i, :mask.sum()] = 1
    return out


def advantages_of(o, rewards, divergence):
    """The lines of TRL's _generate_and_score_completions."""
    n = o.given["n"]
    if o.kind is ls.rl.RLOO:
        rewards = rewards - o.given["kl"] * divergence
        groups = rewards.view(-1, n)
        return rewards - ((groups.sum(1, keepdim=True) - groups) / (n - 1)).view(-1)
    groups, scale = rewards.view(-1, n), o.given["scale"]
    apart = rewards - groups.mean(1).repeat_interleave(n)
    deviation = groups.std() if scale == "batch" else groups.std(1).repeat_interleave(n)
    return apart / (deviation + 1e-4) if scale else apart


def by_trl(o, start, reference, batch, twin=1.0):
    o = copy.deepcopy(o)
    o.given["kl"] *= twin
    policy, whole = copy.deepcopy(start), padded(batch)
    both = [torch.cat([whole["prompt_" + name], whole["completion_" + name]], 1) for name in ("ids", "mask")]
    with torch.no_grad():
        old, apart = (logprobs(model, *both, whole["completion_ids"].shape[1], o.given["temperature"])
                      for model in (start, reference))
    divergence = ((old - apart) * whole["completion_mask"]).sum(1).double()
    gains = advantages_of(o, torch.tensor(batch["rewards"]), divergence) * (1 if o.given["kl"] else twin)
    if o.given["mask_truncated"]:
        whole["completion_mask"] *= torch.tensor(batch["ended"])[:, None]
    trainer, texts = trainer_of(o, policy), len(gains)
    for step in range(o.steps):
        first = step * BATCH % texts
        places = order(2**31, step * BATCH, BATCH, texts) if o.given["shuffle"] else range(first, first + BATCH)
        places = list(places)
        inputs = {name: value[places] for name, value in whole.items()}
        inputs.update(advantages=gains[places].float(), old_per_token_logps=old[places],
                      ref_per_token_logps=apart[places],
                      old_logps=(old * whole["completion_mask"])[places].sum(1))
        policy.zero_grad()
        trainer._compute_loss(policy, inputs).backward()
        with torch.no_grad():
            for weight in policy.parameters():
                weight -= LR * weight.grad
    return policy


# ---- the comparison -------------------------------------------------------------------------------

def farness(ours, other, start):
    """The difference's norm, and that of the way from start to other."""
    far = moved = 0.0
    for (name, weight), begin in zip(other.named_parameters(), start.parameters()):
        far += (ours[name] - weight).double().square().sum().item()
        moved += (weight - begin).double().square().sum().item()
    return far ** .5, moved ** .5


def check_all(arguments):
    torch.set_num_threads(1)
    bad, worst, least = [], 0.0, 1.0
    start, reference = (interop_gpt2.model_make(seed, VOCABULARY, 16, layers=2) for seed in (1, 2))
    rounding = 1e-6 * sum(p.double().square().sum().item() for p in start.parameters()) ** .5
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        start.save_pretrained(folder / "start")
        reference.save_pretrained(folder / "reference")
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            rng = np.random.RandomState(seed)
            o = drawn(rng)
            batch, ours = by_lockstep(o, folder, rng)
            far, moved = farness(ours, by_trl(o, start, reference, batch), start)
            off = farness(ours, by_trl(o, start, reference, batch, 1.1), start)[0]
            if far > LIMIT * moved + rounding:
                bad.append(f"seed {seed}: {far:.1e} of {moved:.1e} apart: {o.kind.__name__} {o.given}")
            if moved > 100 * rounding:
                worst, least = max(worst, far / moved), min(least, off / moved)
    if least <= 5 * LIMIT:
        bad.append("the twin is not found")
    print(f"{arguments.count} batches: at most {worst:.1e} of the way apart; the twin at least {least:.1e}")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    interop_gpt2.end("interop_trl", check_all(parser.parse_args()))


if __name__ == "__main__":
    main()
