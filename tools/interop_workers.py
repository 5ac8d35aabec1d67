#!/usr/bin/env python3
"""Holds workers (async.mode = diloco) against PyTorch, and against torchft's own DiLoCo.

    make interop [PYTHON=/path/to/venv/bin/python] [SEED=1]
    tools/interop_workers.py --lockstep build/lockstep [--seed 1] [--no-torchft]

Needs torch, transformers, numpy and torchft. A small random GPT-2 is trained three times on the same
samples (`lockstep data order` says which), by four or fewer workers, for 12 steps in float32:

    Lockstep    model.from=..., then `lockstep export` of the global parameters
    PyTorch     the algorithm in plain tensors, written from arXiv 2311.08105 and 2501.18512
    torchft     torchft.local_sgd.DiLoCo, a thread for each worker; in the place of its manager a sum
                over these threads, in the order of workers

The loss of each step, the mean over workers, is at most 1e-6 apart, relatively: each sum of a step
is taken in another order. The global parameters' difference is at most 2e-5 of the way that training
moved them (norms over all tensors). AdamW divides a gradient by its own size, so with its usual
epsilon an element whose gradient is hardly more than rounding, such as a bias of keys, which softmax
does not see, would move by any share of the learning rate. The epsilons here are above rounding.

Broken twins of the plain one must be off: fragments in another order, outer momentum 0.8 instead of
0.9, half of the mixing, deltas that leave a step later. It ends with 1 where something is not as it
should be.
"""
import copy
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

import numpy
import torch
import transformers

import interop_gpt2
from interop_gpt2 import parameters_apart

LOSS_LIMIT, PARAMETERS_LIMIT = 1e-6, 2e-5
STEPS, BATCH, TOKENS, VOCABULARY, LAYERS, LR, DECAY = 12, 2, 32, 256, 3, 1e-3, 0.1
EPSILON = 1e-6


@dataclasses.dataclass
class Setting:
    workers: int
    sync_every: int
    fragments: int = 1
    delay: int = 0
    mixing: float = 0.0
    outer: str = "nesterov"
    lr: float = 0.7
    momentum: float = 0.9
    epsilon: float = 1e-3
    order: int = 1  # of fragments; -1: a twin's

    @property
    def interval(self):
        return self.sync_every // self.fragments

    def keys(self):
        more = [] if self.outer == "sgd" else [f"async.outer_momentum={self.momentum}"]
        if self.outer == "adamw":
            more.append(f"async.outer_epsilon={self.epsilon}")
        return ["async.mode=diloco", f"async.workers={self.workers}",
                f"async.sync_every={self.sync_every}", f"async.fragments={self.fragments}",
                f"async.delay={self.delay}", f"async.mixing={self.mixing}",
                f"async.outer_optim={self.outer}", f"async.outer_lr={self.lr}", *more]

    def outer_optimizer(self, parameters):
        if self.outer == "adamw":
            return torch.optim.AdamW(parameters, lr=self.lr, betas=(self.momentum, 0.95),
                                     eps=self.epsilon, weight_decay=0.0)
        nesterov = self.outer == "nesterov"
        return torch.optim.SGD(parameters, lr=self.lr, nesterov=nesterov,
                               momentum=self.momentum if nesterov else 0.0)


SETTINGS = [
    Setting(workers=4, sync_every=6),
    Setting(workers=4, sync_every=6, fragments=3, delay=1, mixing=0.5),
    Setting(workers=3, sync_every=4, fragments=2, delay=1, mixing=0.25),
    Setting(workers=2, sync_every=3, outer="sgd", lr=1.0),
    Setting(workers=4, sync_every=4, fragments=2, outer="adamw", lr=0.003, mixing=0.75),
    Setting(workers=4, sync_every=3, delay=2, lr=0.3, momentum=0.6),
]
# Each of one setting: what its twin has instead of it.
TWINS = [(SETTINGS[1], {"order": -1}), (SETTINGS[0], {"momentum": 0.8}),
         (SETTINGS[1], {"mixing": 0.25}), (SETTINGS[5], {"delay": 1})]


# ---- what both train ------------------------------------------------------------------------------

def inner_optimizer(model):
    return interop_gpt2.adamw(model, LR, DECAY, EPSILON)


def fragments_of(model, count):
    """Lists of modules: consecutive blocks; what is in no block goes with the first ones."""
    parts = [torch.nn.ModuleList() for _ in range(count)]
    base = model.transformer
    parts[0].extend([base.wte, base.wpe, base.ln_f])
    for layer, block in enumerate(base.h):
        parts[layer * count // LAYERS].append(block)
    return parts


class Data:
    """Which samples each worker takes in a step, as the order of the run says."""

    def __init__(self, tokens, numbers, workers):
        self.tokens, self.numbers, self.workers = tokens, numbers, workers

    def batch(self, worker, step):
        first = (step * self.workers + worker) * BATCH
        rows = [self.tokens[n * TOKENS:(n + 1) * TOKENS + 1]
                for n in self.numbers[first:first + BATCH]]
        rows = torch.stack(rows)
        return rows[:, :-1], rows[:, 1:]


def inner_step(model, optimizer, batch):
    inputs, targets = batch
    logits = model(inputs).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]),
                                             targets.reshape(-1))
    return interop_gpt2.update(model, optimizer, loss)


# ---- in plain tensors -----------------------------------------------------------------------------

@torch.no_grad()
def delta_mean(fragment, models, setting):
    """Of (global - worker), by name."""
    deltas = []
    for name, value in fragment.named_parameters():
        locals_ = [dict(fragments_of(model, setting.fragments)[fragment.number].named_parameters())
                   [name] for model in models]
        total = value - locals_[0]
        for local in locals_[1:]:
            total = total + (value - local)
        deltas.append(total / len(models))
    return deltas


def plain(start, data, setting):
    """Losses [STEPS], and the global model."""
    whole = copy.deepcopy(start)
    models = [copy.deepcopy(start) for _ in range(setting.workers)]
    inner = [inner_optimizer(model) for model in models]
    fragments = fragments_of(whole, setting.fragments)
    outer = []
    for number, fragment in enumerate(fragments):
        fragment.number = number
        outer.append(setting.outer_optimizer(list(fragment.parameters())))
    losses, gradient = [], None
    for step in range(STEPS):
        losses.append(sum(inner_step(models[w], inner[w], data.batch(w, step))
                          for w in range(setting.workers)) / setting.workers)
        meeting, place = step // setting.interval, step % setting.interval + 1
        turn = setting.order * meeting % setting.fragments
        if place == setting.interval - setting.delay:
            gradient = delta_mean(fragments[turn], models, setting)
        if place == setting.interval:
            for value, delta in zip(fragments[turn].parameters(), gradient):
                value.grad = delta
            outer[turn].step()
            with torch.no_grad():
                for model in models:
                    for local, value in zip(
                            fragments_of(model, setting.fragments)[turn].parameters(),
                            fragments[turn].parameters()):
                        local.copy_(torch.lerp(value, local, setting.mixing))
    return losses, whole


# ---- by torchft -----------------------------------------------------------------------------------

class Sums:
    """What workers' threads add: one call after the other, in the order of workers."""

    def __init__(self, workers):
        self.calls, self.workers = {}, workers
        self.changed = threading.Condition()

    def give(self, call, worker, tensor):
        with self.changed:
            self.calls.setdefault(call, {})[worker] = tensor.clone()
            self.changed.notify_all()

    def take(self, call):
        with self.changed:
            self.changed.wait_for(lambda: len(self.calls[call]) == self.workers)
            parts = self.calls[call]
        total = parts[0].clone()
        for worker in range(1, self.workers):
            total += parts[worker]
        return total / self.workers


class Work:
    def __init__(self, sums, call, tensor):
        self.sums, self.call, self.tensor = sums, call, tensor

    def wait(self):
        self.tensor.copy_(self.sums.take(self.call))
        return True


class Manager:
    """What torchft's DiLoCo calls of its manager, where nobody fails."""
    _use_async_quorum = False

    def __init__(self, sums, worker):
        self.sums, self.worker, self.calls, self.steps = sums, worker, 0, 0

    def allreduce(self, tensor, should_quantize=False):
        assert not should_quantize
        self.calls += 1
        self.sums.give(self.calls, self.worker, tensor)
        return Work(self.sums, self.calls, tensor)

    def should_commit(self):
        self.steps += 1
        return True

    def current_step(self):
        return self.steps

    def start_quorum(self):
        pass

    def allow_state_dict_read(self):
        pass

    def disallow_state_dict_read(self):
        pass

    def register_state_dict_fn(self, key, load, save):
        pass


def by_torchft(start, data, setting):
    from torchft.local_sgd import DiLoCo
    models = [copy.deepcopy(start) for _ in range(setting.workers)]
    sums = Sums(setting.workers)
    losses = [[0.0] * setting.workers for _ in range(STEPS)]
    trained, failed = [None] * setting.workers, []

    def work(worker):
        model = models[worker]
        inner = inner_optimizer(model)
        fragments = fragments_of(model, setting.fragments)
        outer = [setting.outer_optimizer(list(part.parameters())) for part in fragments]
        with DiLoCo(Manager(sums, worker), fragments, inner, outer, setting.sync_every,
                    fragment_sync_delay=setting.delay,
                    fragment_update_alpha=setting.mixing) as diloco:
            for step in range(STEPS):
                losses[step][worker] = inner_step(model, inner, data.batch(worker, step))
        trained[worker] = diloco

    def guarded(worker):
        try:
            work(worker)
        except BaseException as error:  # of a thread: told below
            failed.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(worker,), daemon=True)
               for worker in range(setting.workers)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and not failed:
        for thread in threads:
            thread.join(0.05)
    if failed:
        raise failed[0]
    whole = models[0]
    with torch.no_grad():
        for part, fragment in zip(fragments_of(whole, setting.fragments), trained[0]._fragments):
            for name, value in part.named_parameters():
                value.copy_(fragment.original_parameters[name])
    return [sum(row) / len(row) for row in losses], whole


# ---- by Lockstep ----------------------------------------------------------------------------------

class Lockstep:
    def __init__(self, program, folder, seed, start):
        self.program, self.folder = program, folder
        generator = numpy.random.default_rng(seed)
        tokens = generator.integers(0, VOCABULARY, 200 * TOKENS + 1).astype(numpy.uint16)
        tokens[::2] = tokens[::2] % 16  # something to learn
        tokens.tofile(folder / "data.bin")
        self.tokens = torch.from_numpy(tokens.astype(numpy.int64))
        start.save_pretrained(folder / "start")

    def run(self, *words):
        done = subprocess.run([str(self.program), *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")
        return done.stdout

    def keys(self, setting):
        return [f"model.from={self.folder / 'start'}", f"data.train=u16:{self.folder / 'data.bin'}",
                f"data.sequence={TOKENS}", f"batch.global={BATCH}", f"train.steps={STEPS}",
                f"optim.lr={LR}", f"optim.epsilon={EPSILON}", "optim.schedule=constant",
                f"optim.weight_decay={DECAY}", "numerics.precision=fp32", *setting.keys()]

    def train(self, number, setting):
        """Losses, the global model, and the samples of the run."""
        out, export = self.folder / f"run{number}", self.folder / f"export{number}"
        self.run("train", f"train.out={out}", "log.progress=off", *self.keys(setting))
        records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        losses = [record["loss"] for record in records if "loss" in record]
        self.run("export", out, "--out", export)
        model = transformers.GPT2LMHeadModel.from_pretrained(export)
        lines = self.run("data", "order", out / "config.yaml", "--steps", STEPS).splitlines()
        rows = [line.split() for line in lines]
        numbers = [int(row[-1]) for row in rows if row and row[0].isdigit()]
        expected = STEPS * BATCH * setting.workers
        if len(numbers) != expected:
            sys.exit(f"data order: {len(numbers)} samples, expected {expected}:\n{lines[:3]}")
        return losses, model, Data(self.tokens, numbers, setting.workers)


# ---- the comparison -------------------------------------------------------------------------------

def losses_apart(a, b):
    assert len(a) == len(b) == STEPS
    return max(abs(x - y) / y for x, y in zip(a, b))


def check_all(arguments):
    torch.set_num_threads(1)
    bad, kept = [], {}
    start = interop_gpt2.model_make(arguments.seed, VOCABULARY, TOKENS, LAYERS)
    peers = {"PyTorch": plain} if arguments.no_torchft else {"PyTorch": plain,
                                                             "torchft": by_torchft}
    with tempfile.TemporaryDirectory() as name:
        lockstep = Lockstep(arguments.lockstep.resolve(), pathlib.Path(name), arguments.seed, start)
        for number, setting in enumerate(SETTINGS):
            losses, model, data = kept[number] = lockstep.train(number, setting)
            print(" ".join(setting.keys()[1:]))
            for peer, train in peers.items():
                found, whole = train(start, data, setting)
                loss, parameters = losses_apart(losses, found), parameters_apart(model, whole, start)
                print(f"  {peer:<8} losses {loss:.1e} (at most {LOSS_LIMIT:.0e}), parameters "
                      f"{parameters:.1e} (at most {PARAMETERS_LIMIT:.0e})")
                if not (loss <= LOSS_LIMIT and parameters <= PARAMETERS_LIMIT):
                    bad.append(f"setting {number}: {peer}")
        for setting, change in TWINS:
            losses, model, data = kept[SETTINGS.index(setting)]
            found, whole = plain(start, data, dataclasses.replace(setting, **change))
            loss, parameters = losses_apart(losses, found), parameters_apart(model, whole, start)
            print(f"  twin {change}: losses {loss:.1e}, parameters {parameters:.1e}")
            if loss <= 10 * LOSS_LIMIT or parameters <= 10 * PARAMETERS_LIMIT:
                bad.append(f"the twin {change} is not found")
    return bad


def main():
    parser = interop_gpt2.parser_make(__doc__)
    parser.add_argument("--no-torchft", action="store_true", help="where it is not installed")
    interop_gpt2.end("interop_workers", check_all(parser.parse_args()))


if __name__ == "__main__":
    main()
