#!/usr/bin/env python3
"""PyTorch's sharded training steps of GPT-2 on two or more CPU processes over gloo: the peers of
`lockstep bench step` with parallel.zero=3, parallel.tp and parallel.pp.

    pytorch_parallel.py --kind fsdp2 --world 2 --batch 4 --tokens 1024
    pytorch_parallel.py --kind tp    ...      Megatron's plan: q, k, v, up by columns, out,
                                              down by rows
    pytorch_parallel.py --kind pp --micro-batches 8   ...   torch.distributed.pipelining, 1F1B

The model is the one of pytorch_gpt2.py (same shape, same initial distribution, fused AdamW,
clipping to norm 1); tensor parallel has q, k and v apart, as a plan by columns needs. FSDP2 gathers each
block in bf16 and reduces in float32. Precision is bf16 (autocast where weights are not cast).
The last line on stdout is one JSON object as pytorch_gpt2.py's.

Needs torch and numpy only.
"""
import os
import resource
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

import pytorch_gpt2 as one


class SplitBlock(nn.Module):
    """one.Block with q, k and v in matrices of their own, as many heads as their width holds."""

    def __init__(self, channels, heads):
        super().__init__()
        self.head_dim = channels // heads
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.q, self.k, self.v, self.out = (nn.Linear(channels, channels) for _ in range(4))
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        batch, tokens, _ = x.shape
        split = lambda t: t.view(batch, tokens, -1, self.head_dim).transpose(1, 2)
        a = self.norm1(x)
        attended = F.scaled_dot_product_attention(split(self.q(a)), split(self.k(a)),
                                                  split(self.v(a)), is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Stage(nn.Module):
    """A contiguous part of the blocks, with the embedding on the first and the head on the last
    rank. Weights of embedding and head are not tied: they live on different ranks."""

    def __init__(self, layers, heads, channels, vocabulary, context, rank, world):
        super().__init__()
        padded = -(-vocabulary // 128) * 128
        self.first, self.last = rank == 0, rank == world - 1
        if self.first:
            self.tokens = nn.Embedding(padded, channels)
            self.positions = nn.Embedding(context, channels)
        blocks = range(layers * rank // world, layers * (rank + 1) // world)
        self.blocks = nn.ModuleList(one.Block(channels, heads) for _ in blocks)
        if self.last:
            self.norm, self.head = nn.LayerNorm(channels), nn.Linear(channels, padded, bias=False)
        for weight in self.parameters():
            if weight.ndim >= 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            if self.first:
                x = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)) if self.last else x


def fsdp2(options, mesh):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    layers, heads, channels, vocabulary = options.shape
    model = one.GPT2(layers, heads, channels, vocabulary, options.tokens, "full")
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def tensor_parallel(options, mesh):
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)
    layers, heads, channels, vocabulary = options.shape
    model = one.GPT2(layers, heads, channels, vocabulary, options.tokens, "full")
    model.blocks = nn.ModuleList(SplitBlock(channels, heads) for _ in range(layers))
    plan = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    plan |= {name: RowwiseParallel() for name in ("out", "down")}
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    return model


class Update:
    """Clipping to norm 1 and AdamW. Sharded and plain parameters do not mix in one fused call, so
    each kind has its own, and the norm is that of both."""

    def __init__(self, model):
        named = list(model.named_parameters())
        kinds = [[p for _, p in named if isinstance(p, DTensor)],
                 [p for _, p in named if not isinstance(p, DTensor)]]
        self.kinds = [parameters for parameters in kinds if parameters]
        self.optimizers = [one.adamw(nn.ParameterList(parameters)) for parameters in self.kinds]

    def step(self):
        norms = []
        for parameters in self.kinds:
            norm = nn.utils.get_total_norm([p.grad for p in parameters])
            norms.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        total = torch.linalg.vector_norm(torch.stack(norms))
        for parameters, optimizer in zip(self.kinds, self.optimizers):
            nn.utils.clip_grads_with_norm_(parameters, 1.0, total)
            optimizer.step()
            optimizer.zero_grad()


def timed_steps(options, rank, body):
    """body(step) -> loss, one optimizer step; the record of the timed ones."""
    result = {"losses": [], "step_s_all": []}
    for step in range(options.warmup + options.steps):
        torch.distributed.barrier()
        start = time.perf_counter()
        loss = body(step)
        result["losses"].append(loss)
        if step >= options.warmup:
            result["step_s_all"].append(time.perf_counter() - start)
    result["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return result


def batches(options, rank, share):
    stream = torch.from_numpy(one.token_stream(options, options.shape[3]))

    def at(step):
        first = (step * options.batch + rank * share) * options.tokens
        window = stream[first: first + share * options.tokens + 1]
        return tuple(t.view(share, options.tokens) for t in (window[:-1], window[1:]))
    return at


def train_whole(options, rank, world, mesh):
    model = fsdp2(options, mesh) if options.kind == "fsdp2" else tensor_parallel(options, mesh)
    update = Update(model)
    if options.mode == "compile":
        model.compile()
    shared = options.kind == "fsdp2"
    batch_at = batches(options, rank if shared else 0, options.batch // (world if shared else 1))

    def body(step):
        ids, targets = batch_at(step)
        with torch.autocast("cpu", torch.bfloat16, enabled=options.kind == "tp"):
            loss = model(ids, targets)
        loss.backward()
        update.step()
        return loss.item()
    return timed_steps(options, rank, body)


def train_stages(options, rank, world):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    layers, heads, channels, vocabulary = options.shape
    module = Stage(layers, heads, channels, vocabulary, options.tokens, rank, world)
    update = Update(module)
    if options.mode == "compile":
        module.compile()
    stage = PipelineStage(module, rank, world, torch.device("cpu"))

    def loss_of(logits, targets):
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
    schedule = Schedule1F1B(stage, options.micro_batches, loss_fn=loss_of)
    batch_at = batches(options, 0, options.batch)

    def body(step):
        ids, targets = batch_at(step)
        losses = []
        if rank == 0:
            schedule.step(ids)
        else:
            schedule.step(target=targets, losses=losses)
        update.step()
        return statistics.fmean(l.item() for l in losses) if losses else 0.0
    return timed_steps(options, rank, body)


def process(rank, world, port, options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                                         world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    mine = (train_stages(options, rank, world) if options.kind == "pp"
            else train_whole(options, rank, world, mesh))
    results = [None] * world
    torch.distributed.all_gather_object(results, mine)
    if rank == 0:
        per_step = lambda key, f: [f(values) for values in zip(*(r[key] for r in results))]
        one.report(options, {"losses": per_step("losses", max),
                             "step_s_all": per_step("step_s_all", max), "gemm_all": [],
                             "activations_all": [],
                             "peak_rss_bytes": sum(r["peak_rss_bytes"] for r in results)})
    torch.distributed.barrier()
    os._exit(0)  # as in pytorch_gpt2.py: gloo's shutdown may abort


def parse():
    parser = one.parser_make(__doc__, threads=1)
    add = parser.add_argument
    add("--kind", choices=("fsdp2", "tp", "pp"), required=True)
    add("--world", type=int, default=2)
    add("--micro-batches", type=int, default=8, help="of a step, kind pp")
    add("--mode", choices=("eager", "compile"), default="eager")
    add("--malloc", choices=("default", "keep"), default="default")
    options = one.parsed(parser)
    if options.kind == "pp" and options.batch % options.micro_batches:
        parser.error(f"--batch {options.batch} is not {options.micro_batches} micro-batches")
    return options


def main():
    options = parse()
    if options.malloc == "keep":
        one.malloc_keep()
    torch.multiprocessing.spawn(process, (options.world, one.port_find(), options),
                                nprocs=options.world)


if __name__ == "__main__":
    main()
