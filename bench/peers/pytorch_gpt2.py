#!/usr/bin/env python3
"""PyTorch's training step of GPT-2 on the CPU, as its users would write it: the peer of
`lockstep bench step`.

    pytorch_gpt2.py --precision bf16 --mode eager --batch 4 --tokens 1024 --threads 2 --steps 5

Fused QKV, scaled_dot_product_attention, tied head, vocabulary padded to a multiple of 128, no
dropout, fused AdamW, gradients clipped to norm 1. Precision bf16 is autocast over float32 weights;
bf16-weights holds weights and optimizer state in bf16 (less work and memory, another recipe).
--ddp N runs N processes under DistributedDataParallel over gloo, each with its share of the batch
and --threads threads of its own. --loss chunked uses linear_cross_entropy's chunked form, which
never holds the whole batch's logits.

--recompute full puts torch.utils.checkpoint around every block, so a block keeps its input only.
selective is its context that keeps the results of matrix products, and makes the rest again: norms,
attention, the activation.

--malloc keep asks glibc to keep freed memory and to use huge pages, as PyTorch's tuning guide asks
of other allocators: by default each large tensor is mapped anew and half of the time may go there.

The last line on stdout is one JSON object:

    tokens_per_s, step_s   median over the timed steps (warm-up steps, and so compilation, left out)
    step_s_all, losses     each timed step; losses of all steps, warm-up first (loss: the last)
    peak_rss_bytes         largest resident set, ru_maxrss; with --ddp the sum over processes
    activation_bytes       what the forward leaves in use for the backward: bytes that malloc has
                           given out behind it, less those before it, median over the timed steps
    gemm_flops_per_s       rate of one 4096^3 product in the same precision and threads, measured
                           between the steps, median: the machine's state while this ran
    versions, options

Needs torch and numpy only.
"""
import argparse
import ctypes
import functools
import json
import os
import resource
import socket
import statistics
import sys
import time

import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

PRESETS = {  # layers, heads, channels
    "gpt2-124m": (12, 12, 768), "gpt2-350m": (24, 16, 1024),
    "gpt2-774m": (36, 20, 1280), "gpt2-1558m": (48, 25, 1600)}
VOCABULARY, GEMM_SIZE = 50257, 4096


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        batch, tokens, channels = x.shape
        split = lambda t: t.view(batch, tokens, self.heads, -1).transpose(1, 2)
        q, k, v = map(split, self.qkv(self.norm1(x)).split(channels, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, channels))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


# Without dropout no state of a generator needs to be kept.
KEEP_INPUT = functools.partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
PRODUCTS = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]
KEEP_PRODUCTS = functools.partial(KEEP_INPUT, context_fn=functools.partial(
    create_selective_checkpoint_contexts, PRODUCTS))
RECOMPUTE = {"none": lambda block, x: block(x), "selective": KEEP_PRODUCTS, "full": KEEP_INPUT}


class GPT2(nn.Module):
    """forward(ids, targets) -> mean loss, so that the head and the loss compile as one."""

    def __init__(self, layers, heads, channels, vocabulary, context, loss, recompute="none"):
        super().__init__()
        padded = -(-vocabulary // 128) * 128
        self.loss, self.run = loss, RECOMPUTE[recompute]
        self.tokens = nn.Embedding(padded, channels)
        self.positions = nn.Embedding(context, channels)
        self.blocks = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(channels)
        for name, weight in self.named_parameters():
            if weight.ndim >= 2:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / ((2 * layers) ** 0.5 if residual else 1.0))
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = self.run(block, x)
        x, targets = self.norm(x).flatten(0, 1), targets.flatten()
        if self.loss == "chunked":
            x = x.to(torch.bfloat16) if torch.is_autocast_enabled("cpu") else x
            return F.linear_cross_entropy(x, self.tokens.weight.to(x.dtype), targets,
                                          options=nn.LinearCrossEntropyOptions())
        return F.cross_entropy(F.linear(x, self.tokens.weight), targets)


def token_stream(options, vocabulary):
    """Tokens as int64: an llm.c or nanoGPT u16 file, or random ones from the seed."""
    need = options.batch * options.tokens * (options.steps + options.warmup) + 1
    if options.data is None:
        return numpy.random.default_rng(options.seed).integers(vocabulary, size=need)
    header = numpy.fromfile(options.data, dtype="<i4", count=256)
    skip = 1024 if len(header) == 256 and header[0] == 20240520 else 0
    tokens = numpy.fromfile(options.data, dtype="<u2", offset=skip).astype(numpy.int64)
    if tokens.size == 0 or tokens.max() >= vocabulary:
        raise SystemExit(f"{options.data}: want u16 tokens below {vocabulary}")
    return numpy.resize(tokens, need)


def gemm_rate(dtype):
    a, b = (torch.rand(GEMM_SIZE, GEMM_SIZE, dtype=dtype) - 0.5 for _ in range(2))
    start = time.perf_counter()
    torch.mm(a, b)
    return 2 * GEMM_SIZE ** 3 / (time.perf_counter() - start)


class MallocInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]


def bytes_in_use():
    """What glibc's malloc has given out, also by mmap; torch's tensors on the CPU are among it."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = MallocInfo
    info = libc.mallinfo2()
    return info.uordblks + info.hblkhd


def adamw(model):
    parameters = list(model.parameters())
    return torch.optim.AdamW(
        [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.1},
         {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}],
        lr=3e-4, betas=(0.9, 0.95), fused=True)


def train(options, rank=0, world=1):
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    layers, heads, channels, vocabulary = options.shape
    model = GPT2(layers, heads, channels, vocabulary, options.tokens, options.loss,
                 options.recompute)
    if options.precision == "bf16-weights":
        model = model.to(torch.bfloat16)
    optimizer, parameters = adamw(model), list(model.parameters())
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if options.mode == "compile":
        model = torch.compile(model)
    stream = torch.from_numpy(token_stream(options, vocabulary))
    share = options.batch // world
    result = {"losses": [], "step_s_all": [], "gemm_all": [], "activations_all": []}
    for step in range(options.warmup + options.steps):
        first = step * options.batch * options.tokens + rank * share * options.tokens
        window = stream[first: first + share * options.tokens + 1]
        ids, targets = (t.view(share, options.tokens) for t in (window[:-1], window[1:]))
        before = bytes_in_use()
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
            loss = model(ids, targets)
        kept = bytes_in_use() - before
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        result["losses"].append(loss.item())
        if step >= options.warmup:
            result["step_s_all"].append(time.perf_counter() - start)
            result["activations_all"].append(kept)
            if not options.no_gemm:
                result["gemm_all"].append(
                    gemm_rate(torch.float32 if options.precision == "fp32" else torch.bfloat16))
    result["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return result


def ddp_process(rank, world, port, options):
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                                         world_size=world)
    results = [None] * world
    torch.distributed.all_gather_object(results, train(options, rank, world))
    if rank == 0:
        # A step is as long as its slowest rank; the loss is the mean; products run side by side.
        per_step = lambda key, f: [f(values) for values in zip(*(r[key] for r in results))]
        report(options, {"losses": per_step("losses", statistics.fmean),
                         "step_s_all": per_step("step_s_all", max),
                         "gemm_all": per_step("gemm_all", sum),
                         "activations_all": per_step("activations_all", sum),
                         "peak_rss_bytes": sum(r["peak_rss_bytes"] for r in results)})
    # All have reported. gloo's threads sometimes abort an orderly shutdown (seen with 2.15), which
    # would turn a good measurement into a failure.
    torch.distributed.barrier()
    os._exit(0)


def report(options, result):
    step_s = statistics.median(result["step_s_all"])
    gemm, activations = result.pop("gemm_all"), result.pop("activations_all")
    result |= {"step_s": step_s, "tokens_per_s": options.batch * options.tokens / step_s,
               "loss": result["losses"][-1],
               "gemm_flops_per_s": statistics.median(gemm) if gemm else None,
               "activation_bytes": statistics.median(activations) if activations else None,
               "versions": {"torch": torch.__version__, "isa": cpu_capability()},
               "options": vars(options)}
    print(json.dumps(result), flush=True)


def cpu_capability():
    amx = torch.cpu.get_capabilities().get("amx_bf16", False)
    return torch.backends.cpu.get_cpu_capability() + (" AMX" if amx else "")


def parser_make(description, threads, steps=5, warmup=1):
    """With what every program takes that trains this model."""
    parser = argparse.ArgumentParser(description=description.split("\n\n")[0])
    add = parser.add_argument
    add("--model", choices=PRESETS, default="gpt2-124m")
    add("--shape", help="LAYERS,HEADS,CHANNELS,VOCABULARY instead of --model")
    add("--batch", type=int, default=4, help="sequences a step, over all processes")
    add("--tokens", type=int, default=1024, help="tokens a sequence")
    add("--threads", type=int, default=threads, help="threads of each process")
    add("--steps", type=int, default=steps, help="timed steps")
    add("--warmup", type=int, default=warmup, help="steps before them")
    add("--data", help="u16 token file of llm.c or nanoGPT; random tokens without")
    add("--seed", type=int, default=1)
    return parser


def parsed(parser):
    options = parser.parse_args()
    options.shape = (tuple(int(n) for n in options.shape.split(",")) if options.shape
                     else PRESETS[options.model] + (VOCABULARY,))
    return options


def parse():
    parser = parser_make(__doc__, threads=2)
    add = parser.add_argument
    add("--precision", choices=("bf16", "fp32", "bf16-weights"), default="bf16")
    add("--mode", choices=("eager", "compile"), default="eager")
    add("--loss", choices=("full", "chunked"), default="full")
    add("--recompute", choices=RECOMPUTE, default="none")
    add("--malloc", choices=("default", "keep"), default="default")
    add("--ddp", type=int, default=1, metavar="N", help="processes")
    add("--no-gemm", action="store_true", help="leave the product between the steps out")
    options = parsed(parser)
    if options.batch % options.ddp:
        parser.error(f"--batch {options.batch} does not divide among --ddp {options.ddp}")
    return options


def malloc_keep(**more):
    """Starts the program again, with more in its environment: glibc reads these at start only."""
    if os.environ.get("MALLOC_MMAP_MAX_") != "0":
        os.environ.update({"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2 ** 62),
                           "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, **more)
        os.execv(sys.executable, [sys.executable] + sys.argv)


def port_find():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    options = parse()
    if options.malloc == "keep":
        malloc_keep()
    if options.ddp == 1:
        report(options, train(options))
        return
    torch.multiprocessing.spawn(ddp_process, (options.ddp, port_find(), options),
                                nprocs=options.ddp)


if __name__ == "__main__":
    main()
