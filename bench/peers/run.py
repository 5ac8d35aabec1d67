#!/usr/bin/env python3
"""Measures Lockstep beside PyTorch and llm.c, and writes bench/RESULTS.md.

    bench/peers/run.py [--only bf16,fp32,dp2,llmc,fast,kinds,...] [--rounds 5]

The programs run one after the other, round by round, in turning order, so that whatever else the
machine does meets all of them alike. A ratio is taken within each round; figures are medians over
the rounds. PyTorch is run in several ways (eager, torch.compile; freed memory kept or not); after
the first round only those within --margin of the fastest go on, and the fastest of them is the
peer, for speed and for memory alike; a table has every way with both. llm.c runs where LLMC_DIR
names a checkout. Everything that ran is listed below the figures. Part before runs the program that
--before names, built from another commit, beside this one's.

README.md has three figures of the same numbers; --pages writes both again and measures nothing.
Figures name a commit, so a tree with changes is refused (--allow-changes tries it, and marks them).

Parts of tables.py (zero, bubble, plan, moved, start) are not races: they are measured once.

The page is written after each round, so a run that is cut short leaves what it has. Figures of
parts that are not measured now stay as they were: bench/results.json keeps the numbers.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import offload
import pages
import readme
import tables
from figures import best_of, figure, memory, paired, share, speed

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECTIONS = (("Beside its peers", ("bf16", "fp32", "dp2", "llmc", "fast", "recompute",
                                   "offload")),
            ("Cut over ranks", ("kinds", "fsdp2", "tp", "pp", "order", "zero", "bubble", "plan",
                                "moved")),
            ("From commit to commit", ("before", "start")))
PARTS = tuple(part for _, parts in SECTIONS for part in parts)


# ---- what runs ----------------------------------------------------------------------------------

def model_words(o):
    if not o.shape:
        return [f"model.preset={o.model}"]
    keys = ("layers", "heads", "channels", "vocab")
    return ["model.arch=gpt2", f"model.context={o.tokens}"] + [
        f"model.{key}={number}" for key, number in zip(keys, o.shape.split(","))]


def shape_words(o):
    return ["--shape", o.shape] if o.shape else ["--model", o.model]


def lockstep(o, precision="bf16", dp=1, threads=None, mode="ordered", batch=None, layout=""):
    return shlex.split(o.lockstep) + [
        "bench", "step", *model_words(o), f"batch.global={batch or o.batch}",
        f"data.sequence={o.tokens}", f"numerics.precision={precision}", f"numerics.mode={mode}",
        f"parallel.dp={dp}", f"parallel.threads={threads or o.threads}", f"train.steps={o.steps}",
        *layout.split()]


def two_ranks(o, layout, batch=None, dp=1, precision="bf16"):
    if dp == 2 or "dp_shard=2" in layout:  # a recipe for two ranks: a leaf for each
        layout += f" numerics.leaf_sequences={max(1, (batch or o.batch) // 2)}"
    return lockstep(o, precision, dp, max(1, o.threads // 2), batch=batch, layout=layout)


def pytorch(o, precision="bf16", mode="eager", malloc="keep", ddp=1, steps=None, words=""):
    # Two warm-up steps: compilation in the first, and memory first touched in both.
    return shlex.split(o.pytorch) + [
        *shape_words(o), "--batch", str(o.batch), "--tokens", str(o.tokens),
        "--threads", str(max(1, o.threads // ddp)), "--precision", precision, "--mode", mode,
        "--malloc", malloc, "--ddp", str(ddp), "--warmup", "2",
        "--steps", str(steps or max(1, o.steps - 2)), *words.split()]


def pytorch_parallel(o, kind, mode):
    batch = 2 * o.batch if kind == "pp" else o.batch
    return shlex.split(o.pytorch_parallel) + [
        "--kind", kind, "--world", "2", *shape_words(o), "--batch", str(batch),
        "--micro-batches", str(2 * o.batch), "--tokens", str(o.tokens),
        "--threads", str(max(1, o.threads // 2)), "--mode", mode, "--malloc", "keep",
        "--warmup", "2", "--steps", str(max(1, o.steps - 2))]


# Ways to cut a step over two ranks: name -> (parts, family, micro-batches apart, keys). Within a
# family the fastest stands for its kind.
TWO = {
    "tp 2": ("kinds tp", "ours tp", False, "parallel.tp=2 parallel.sp=true"),
    "tp 2, sp off": ("kinds tp", "ours tp", False, "parallel.tp=2 parallel.sp=false"),
    "tp 2, overlap 2": ("kinds tp", "ours tp", False,
                        "parallel.tp=2 parallel.sp=true parallel.tp_overlap=2"),
    "tp 2, sp off, overlap 4": ("kinds tp", "ours tp", False,
                                "parallel.tp=2 parallel.sp=false parallel.tp_overlap=4"),
    "zero 3": ("kinds fsdp2", "", False, "parallel.dp_shard=2 parallel.zero=3"),
    "pp 2, 1f1b": ("kinds pp", "ours pp", True, "parallel.schedule=1f1b"),
    "pp 2, zb-h1": ("kinds pp", "ours pp", True, "parallel.schedule=zb-h1"),
    "pp 2, interleaved": ("kinds pp", "ours pp", True, "parallel.schedule=interleaved"),
    "pp 2, zbv": ("kinds pp", "ours pp", True, "parallel.schedule=zbv"),
}


def cut(o, name, precision="bf16"):
    """The command of one of TWO."""
    _, _, micro, layout = TWO[name]
    return two_ranks(o, layout + " parallel.pp=2 batch.micro=1" * micro,
                     2 * o.batch if micro else None, 0 if "dp_shard" in layout else 1, precision)


# Order costs data parallel a reduction for each leaf of a rank: their number -> sequences of one.
DP_LEAVES = {"one leaf": lambda o: max(1, o.batch // 2), "two leaves": lambda o: 1}


def cut_programs(o):
    """What the parts under "Cut over ranks" run, as programs()."""
    runs = {"Lockstep bf16, one rank, twice the batch":
            ("kinds", "", lockstep(o, batch=2 * o.batch))}
    runs |= {f"Lockstep bf16, {name}": (parts, family, cut(o, name))
             for name, (parts, family, _, _) in TWO.items()}
    for kind in ("fsdp2", "tp", "pp"):
        for mode in ("eager", "compile"):
            runs[f"PyTorch bf16, {kind}, two ranks, {mode}"] = (
                kind, f"torch {kind}", pytorch_parallel(o, kind, mode))
    for tp in (1, 2, 4):
        for mode in ("ordered", "fast"):
            batch = o.batch if tp < 4 else max(1, o.batch // 2)
            runs[f"Lockstep bf16, tp {tp}, {mode}"] = ("order", "", lockstep(
                o, threads=max(1, o.threads // tp), mode=mode, batch=batch,
                layout=f"parallel.tp={tp}"))
    for leaves in DP_LEAVES:
        for mode in ("ordered", "fast"):
            runs[f"Lockstep bf16, dp 2, {leaves} a rank, {mode}"] = ("order", "", lockstep(
                o, threads=max(1, o.threads // 2), mode=mode, dp=2,
                layout="batch.micro={0} numerics.leaf_sequences={0}".format(DP_LEAVES[leaves](o))))
    return runs


PLAIN = "Lockstep bf16, one rank"
# What recomputation should give: policy -> (least share of activation memory, largest of time).
RECOMPUTE = {"selective": (0.40, 0.08), "full": (0.60, 0.33)}


def recompute_programs(o):
    """PyTorch's that recompute; what they are compared with is of part bf16 too."""
    runs = {}
    for policy in RECOMPUTE:
        for title, mode in (("eager", "eager"), ("compiled", "compile")):
            for suffix, malloc in (("", "keep"), (", as installed", "default")):
                runs[f"PyTorch bf16, {title}{suffix}, recompute {policy}"] = (
                    "recompute", f"torch bf16 {policy}",
                    pytorch(o, mode=mode, malloc=malloc, words=f"--recompute {policy}"))
    return runs


def before_programs(o):
    """Pairs of this commit's program and the older one, one after the other."""
    older = argparse.Namespace(**vars(o) | {"lockstep": o.before})
    runs = {}
    for precision in ("bf16", "fp32"):
        for name in ("one rank", "dp 2", "tp 2", "pp 2, 1f1b", "zero 3"):
            for who, of in (("this commit", o), (f"commit {o.before_commit}", older)):
                runs[f"{precision}, {name}: {who}"] = ("before", "", (
                    lockstep(of, precision) if name == "one rank" else
                    two_ranks(of, "", dp=2, precision=precision) if name == "dp 2" else
                    cut(of, name, precision)))
    return runs


def programs(o):
    """name -> (parts that need it, family, command). Within a family the fastest is the peer."""
    one, two = "one rank", "two ranks"
    runs = {
        PLAIN: ("bf16 dp2 llmc fast kinds recompute", "", lockstep(o)),
        **{f"{PLAIN}, recompute {policy}": (
            "recompute", "", lockstep(o, layout=f"memory.recompute={policy}"))
           for policy in RECOMPUTE},
        f"Lockstep fp32, {one}": ("fp32 llmc", "", lockstep(o, "fp32")),
        f"Lockstep bf16, {two}": ("dp2 kinds", "", two_ranks(o, "", dp=2)),
        f"Lockstep bf16, {one}, fast": ("fast", "", lockstep(o, mode="fast")),
        "PyTorch bf16, eager, as installed": (
            "bf16 recompute", "torch bf16", pytorch(o, malloc="default")),
        "PyTorch bf16, eager": ("bf16 recompute", "torch bf16", pytorch(o)),
        "PyTorch bf16, compiled, as installed": (
            "bf16 recompute", "torch bf16", pytorch(o, mode="compile", malloc="default")),
        "PyTorch bf16, compiled": ("bf16 recompute", "torch bf16", pytorch(o, mode="compile")),
        "PyTorch fp32, eager": ("fp32", "torch fp32", pytorch(o, "fp32")),
        "PyTorch fp32, compiled": ("fp32", "torch fp32", pytorch(o, "fp32", "compile")),
        f"PyTorch bf16, DDP, {two}, eager": ("dp2", "torch ddp", pytorch(o, ddp=2)),
        f"PyTorch bf16, DDP, {two}, compiled": ("dp2", "torch ddp",
                                                pytorch(o, mode="compile", ddp=2)),
        # Slow, so one round and one timed step: it is here for its memory.
        "PyTorch bf16, eager, chunked loss": ("bf16", "torch bf16",
                                              pytorch(o, malloc="default", steps=1,
                                                      words="--loss chunked")),
    }
    if os.environ.get("LLMC_DIR"):
        runs["llm.c fp32"] = ("llmc", "", ["bench/peers/llmc.sh"])
    runs |= recompute_programs(o) | cut_programs(o) | (before_programs(o) if o.before else {})
    runs |= offload.programs(o, lockstep)
    return {name: (set(parts.split()), family, command)
            for name, (parts, family, command) in runs.items()}


def call(o, name, command):
    """One run: the JSON object on its last line, or None with the reason on stderr."""
    environment = dict(os.environ, THREADS=str(o.threads), PYTHON=o.python)
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment,
                              cwd=ROOT, timeout=o.timeout_s, check=True)
        result = json.loads(done.stdout.strip().splitlines()[-1])
        if "workspace_bytes" in result:
            result["working_bytes"] = result["activation_bytes"] + result["workspace_bytes"]
        print(f"  {name}" + (f": {result['tokens_per_s']:.0f} tokens/s"
                            if "tokens_per_s" in result else ""), file=sys.stderr, flush=True)
        return result
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or ["no message"])[-1]
        reason = f"exit code {error.returncode}: {reason}"
    except (subprocess.TimeoutExpired, OSError) as error:
        reason = str(error)
    except (ValueError, IndexError, KeyError) as error:
        reason = f"its last line is not the JSON object that was expected ({error!r})"
    print(f"  {name}: no figure: {reason}\n    {shlex.join(command)}", file=sys.stderr, flush=True)
    return None


def measure(o, runs):
    """After each round: name -> list over rounds of result or None (not run, or failed)."""
    results = {name: [] for name in runs}
    dropped = set()
    for number in range(o.rounds):
        print(f"round {number + 1} of {o.rounds}", file=sys.stderr, flush=True)
        order = list(runs) if number % 2 == 0 else list(reversed(runs))
        for name in order:
            results[name].append(None if name in dropped else call(o, name, runs[name][2]))
        if number == 0:
            dropped = slow_ones(o, runs, results)
        yield results


def slow_ones(o, runs, results):
    """Variants that failed, or are slower than the best of their family by more than the margin."""
    rate = {name: rows[0].get("tokens_per_s", 0.0) if rows[0] else 0.0
            for name, rows in results.items()}
    best = {}
    for name, (_, family, _) in runs.items():
        best[family] = max(best.get(family, 0.0), rate[name])
    return {name for name, (_, family, _) in runs.items()
            if family and rate[name] * (1 + o.margin) < best[family]}


# ---- the figures --------------------------------------------------------------------------------

# Kinds of two ranks: title, program or family, what it is compared with.
KINDS = (("data parallel", "Lockstep bf16, two ranks", "Lockstep bf16, one rank"),
         ("tensor parallel", "ours tp", "Lockstep bf16, one rank"),
         ("ZeRO 3", "Lockstep bf16, zero 3", "Lockstep bf16, one rank"),
         ("pipeline, 8 micro-batches", "ours pp", "Lockstep bf16, one rank, twice the batch"))


def modes(runs, results, ours, family):
    """Every way in which the peer ran, with speed and memory side by side."""
    lines = ["| peer | its tokens/s | Lockstep's to it | its peak, GiB | Lockstep's to it |",
             "|---|---|---|---|---|"]
    for name, (_, of, _) in runs.items():
        rate, peak = (paired(results, ours, name, key) if ours and of == family else None
                      for key in ("tokens_per_s", "peak_rss_bytes"))
        if rate and peak:
            lines.append(f"| {name} | {rate[1]:.0f} | {rate[2]:.2f} | {peak[1] / 2**30:.2f} | "
                         f"{peak[2]:.2f} |")
    return [f"{ours} beside each way to run its peer, speed and memory of the same runs:", "",
            *lines] if len(lines) > 2 else []


# Parts with a PyTorch peer, which runs in several ways: part -> (title, peer, our program or family,
# the peer's family, target for the speed).
RACES = {"bf16": ("bf16, one rank", "PyTorch", "Lockstep bf16, one rank", "torch bf16", 1.5),
         "fp32": ("fp32, one rank", "PyTorch", "Lockstep fp32, one rank", "torch fp32", 1.3),
         "dp2": ("bf16, two ranks", "PyTorch DDP", "Lockstep bf16, two ranks", "torch ddp", 1.5),
         "fsdp2": ("two ranks, ZeRO 3", "PyTorch FSDP2", "Lockstep bf16, zero 3", "torch fsdp2", 1.5),
         "tp": ("two ranks, tensor parallel", "PyTorch", "ours tp", "torch tp", 1.5),
         "pp": ("two ranks, pipeline, 8 micro-batches", "PyTorch", "ours pp", "torch pp", 1.5)}


def raced(runs, results, part):
    """Speed and memory beside the same peer, the fastest of its family."""
    title, peer, name, family, target = RACES[part]
    ours, theirs = kind_program(runs, results, name), best_of(runs, results, family)
    return [speed(results, f"{title}: to {peer}", ours, theirs, target),
            memory(results, f"{title}: peak memory to the same {peer}", ours, theirs)]


def recomputed(runs, results, policy):
    """A policy beside keeping everything, ours and PyTorch's: each its fastest way."""
    less, slower = RECOMPUTE[policy]
    title, ours = f"recompute {policy}: ", f"{PLAIN}, recompute {policy}"
    torch, theirs = (best_of(runs, results, family)
                     for family in ("torch bf16", f"torch bf16 {policy}"))
    kept = memory(results, title + "share of activation memory given up", ours, PLAIN,
                  "activation_bytes") | {"target": less, "better": "higher"}
    lost = speed(results, title + "share of time lost", ours, PLAIN, slower, "lower")
    time = figure(title + "slowdown to PyTorch's slowdown", 1.0, "lower")
    mine, other = (paired(results, plain, name) if plain and name else None
                   for plain, name in ((PLAIN, ours), (torch, theirs)))
    if mine:
        kept["ratio"], lost["ratio"] = 1 - kept["ratio"], mine[2] - 1
    if mine and other:
        time |= {"ratio": mine[2] / other[2], "ours": f"{mine[2]:.2f}",
                 "peer": f"{other[2]:.2f} ({theirs})"}
    return [kept, lost, time,
            memory(results, title + "activation memory to the same PyTorch", ours, theirs,
                   "activation_bytes"),
            memory(results, title + "peak memory to the same PyTorch", ours, theirs)]


def given_up(results):
    """Every way to recompute, beside the same program without it."""
    lines = ["What is given up is in shares of the same program without recomputation.", "",
             "| program | share of time lost | activations, MiB | given up | with the work area, "
             "MiB | given up | peak, MiB | given up |", "|---|---|---|---|---|---|---|---|"]
    for name in results:
        plain, _, policy = name.partition(", recompute ")
        rate = paired(results, plain, name) if policy in RECOMPUTE else None
        if not rate:
            continue
        row = [f"{name} | {rate[2] - 1:.2f}"]
        for key in ("activation_bytes", "working_bytes", "peak_rss_bytes"):
            pair = paired(results, name, plain, key)
            row += [f"{pair[0] / 2**20:.0f}", f"{1 - pair[2]:.2f}"] if pair else ["", ""]
        lines.append(f"| {' | '.join(row)} |")
    return lines + [
        "",
        "Activations are what stays from a forward to its backward. For Lockstep it is the bytes "
        "of its memory",
        "plan, which it allocates; for PyTorch what the forward leaves in use in malloc: with the "
        "logits, and with",
        "the copies of weights that autocast makes. The work area is what one layer needs while it "
        "computes; what",
        "is made again is there. PyTorch has no such figure, but its peak resident memory has "
        "both."]


def to_before(runs, results):
    """Neighbours are pairs."""
    names = [name for name, (parts, _, _) in runs.items() if "before" in parts]
    pairs = list(zip(names[::2], names[1::2]))
    made = [speed(results, ours.partition(":")[0] + ": to the older commit", ours, older, 0.98)
            for ours, older in pairs]
    differ = [ours for ours, older in pairs for a, b in zip(results[ours], results[older])
              if a and b and a["loss"] != b["loss"]]
    return made + [tables.limit("losses of the last step that differ from the older commit's",
                                float(len(differ)), 0.0, "; ".join(sorted(set(differ))))]


def texts(part, runs, results):
    """What stands above the list of runs."""
    if part == "recompute":
        return given_up(results)
    if part == "offload":
        return offload.text(results)
    if part in RACES:
        _, _, name, family, _ = RACES[part]
        return modes(runs, results, kind_program(runs, results, name), family)
    return losses(runs, results) if part == "kinds" else []


def kind_program(runs, results, name):
    return name if name in runs else best_of(runs, results, name)


def waited(result, axes):
    return sum(result["axes"][axis]["wait_s"] for axis in axes) / result["mean_step_s"]


def losses(runs, results):
    """What two ranks lose to one with their threads, as shares of their step: the waits that they
    tell of, mean over ranks, and the rest, which is arithmetic that takes longer."""
    lines = ["What is lost, as shares of a step of two ranks (each the median over rounds):", "",
             "| two ranks | fastest | to one rank | communication | bubble | arithmetic |",
             "|---|---|---|---|---|---|"]
    for title, name, one in KINDS:
        ours = kind_program(runs, results, name)
        pair = paired(results, ours, one) if ours else None
        if not pair:
            continue
        rows = [r for r in results[ours] if r]
        bubble = statistics.median(waited(r, ("pp",)) for r in rows)
        moved = statistics.median(
            waited(r, ("tp", "cp", "dp_shard", "dp_replicate", "other")) for r in rows)
        lines.append(f"| {title} | {ours.removeprefix('Lockstep bf16, ')} | {pair[2]:.2f} | "
                     f"{moved:.2f} | {bubble:.2f} | {1 - pair[2] - moved - bubble:.2f} |")
    return lines + ["", "Communication is the time to wait for the other rank and to move bytes. "
                    "For the pipeline all of it", "counts as bubble. If arithmetic is negative, two "
                    "ranks of one thread compute faster than two", "threads of one rank."]


def figures(part, runs, results):
    one, two = PLAIN, "Lockstep bf16, two ranks"
    fp32 = "Lockstep fp32, one rank"
    peak = lambda r: r.get("peak_share")
    if part in ("bf16", "fp32"):
        return raced(runs, results, part) + [
            share(results, f"{part}, one rank: share of one large product's rate",
                  one if part == "bf16" else fp32, peak, 0.65)]
    if part == "dp2":
        waits = lambda r: r["comm_wait_s"] / r["step_s"] if "comm_wait_s" in r else None
        return raced(runs, results, part) + [
            speed(results, "bf16, two ranks: to our one rank", two, one, 0.9),
            share(results, "bf16, two ranks: share of the step spent waiting for the other",
                  two, waits, 0.10, "lower")]
    if part == "llmc":
        return [speed(results, "bf16, one rank: to llm.c", one, "llm.c fp32", 10.0),
                speed(results, "fp32, one rank: to llm.c", fp32, "llm.c fp32", 10.0)]
    if part == "fast":
        return [speed(results, "what order costs: numerics.mode fast to ordered",
                      "Lockstep bf16, one rank, fast", one, 1.10, "lower")]
    if part == "kinds":
        return [speed(results, f"two ranks, {title}: to one rank",
                      kind_program(runs, results, name), other, 0.8)
                for title, name, other in KINDS]
    if part in RACES:
        return raced(runs, results, part)
    if part == "order":
        return [speed(results, f"what order costs, tp {tp}: numerics.mode fast to ordered",
                      f"Lockstep bf16, tp {tp}, fast", f"Lockstep bf16, tp {tp}, ordered", 1.10,
                      "lower") for tp in (1, 2, 4)] + [
                    speed(results, f"what order costs, dp 2, {leaves} a rank: numerics.mode fast to "
                          "ordered", f"Lockstep bf16, dp 2, {leaves} a rank, fast",
                          f"Lockstep bf16, dp 2, {leaves} a rank, ordered", 1.10, "lower")
                    for leaves in DP_LEAVES]
    if part == "recompute":
        return [f for policy in RECOMPUTE for f in recomputed(runs, results, policy)]
    if part == "offload":
        return offload.figures(results)
    if part == "before":
        return to_before(runs, results)
    raise ValueError(part)


def summary(command, rows):
    """What the list of runs shows of one program that trains."""
    rows = [r for r in rows if r and "tokens_per_s" in r]
    if not rows:
        return None

    def median(key):
        values = [r[key] for r in rows if r.get(key) is not None]
        return statistics.median(values) if values else None
    rates = [r["tokens_per_s"] for r in rows]
    return {"command": command, "rounds": len(rows), "tokens_per_s": median("tokens_per_s"),
            "tokens_per_s_min": min(rates), "tokens_per_s_max": max(rates),
            "step_s": median("step_s"), "gemm_flops_per_s": median("gemm_flops_per_s"),
            "peak_rss_bytes": median("peak_rss_bytes"), "loss": rows[-1].get("loss"),
            "versions": rows[-1].get("versions", {})}


def run_rows(o, part, runs, results):
    rows = {name: summary(readable(o, command), results[name])
            for name, (parts, _, command) in runs.items() if part in parts}
    return {name: row for name, row in rows.items() if row}


# ---- the page -----------------------------------------------------------------------------------

INTRODUCTIONS = {
    "Beside its peers": [
        "GPT-2, one training step: forward, backward, clipping, AdamW.",
        "[README.md](README.md) says how it is measured. Ratios are taken within a round, so they "
        "need not be", "the quotient of the medians beside them. Speed and memory are of the same "
        "runs.", ""],
    "Cut over ranks": [
        "The same step on two ranks of one thread each, beside one rank with two threads and beside "
        "PyTorch", "on two processes over gloo; what is planned, idle and moved at any size.", ""],
    "From commit to commit": [
        "This commit's program and an older commit's, built by the same compiler, in turns: on one "
        "rank of two", "threads, and on two ranks of one thread. And what building and starting "
        "take.", ""]}


def machine():
    """The processor as a stranger needs to know it: no names of machines."""
    fields = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    wanted = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    flags = fields.get("flags", "").split()
    memory_kib = int(pathlib.Path("/proc/meminfo").read_text().split()[1])
    return (f"{fields.get('model name', 'unknown CPU')}, {os.cpu_count()} cores, "
            f"{' '.join(f for f in wanted if f in flags) or 'no AVX2'}, "
            f"{memory_kib / 2**20:.0f} GiB")


def readable(o, command):
    """The command as anyone may type it in a clone."""
    names = {o.python: "python3", o.before: "older/build/lockstep"}
    return shlex.join(names.get(word, word) for word in command)


def commit():
    """The commit that is measured, and whether the tree holds changes that it does not have (the
    pages that this program writes aside)."""
    name = output_of("git", "describe", "--always")
    changed = subprocess.run(
        ["git", "diff", "--quiet", "HEAD", "--", ".", ":!bench/RESULTS.md", ":!bench/results.json",
         ":!README.md"],
        cwd=ROOT, check=False).returncode != 0
    return name, changed


def commit_of(program):
    """The commit that a program was built from, as it tells."""
    found = re.search(r"\(commit ([\w-]+)", output_of(program, "--version"))
    if not found:
        sys.exit(f"run.py: --before {program}: --version tells no commit")
    return found[1]


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT,
                              check=True).stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def shown(number, form, scale=1.0):
    return "" if number is None else form.format(number / scale)


def verdict(f):
    if f["ratio"] is None:
        return "not measured"
    good = f["ratio"] >= f["target"] if f["better"] == "higher" else f["ratio"] <= f["target"]
    return "met" if good else "short"


def page(store):
    lines = []
    for title, parts in SECTIONS:
        parts = [p for p in parts if p in store]
        if not parts:
            continue
        lines += [f"## {title}", "", *INTRODUCTIONS[title],
                  "| figure | Lockstep | peer | ratio | target | |", "|---|---|---|---|---|---|"]
        lines += [figure_row(f) for part in parts for f in store[part]["figures"]]
        groups = {}  # parts measured together share one list of runs
        for part in parts:
            groups.setdefault(json.dumps(store[part]["setting"], sort_keys=True), []).append(part)
        for key, together in groups.items():
            lines += run_table(json.loads(key), together, store)
        lines.append("")
    return lines[:-1]


def figure_row(f):
    sign = "≥" if f["better"] == "higher" else "≤"
    return (f"| {f['title']} | {f['ours']} | {f['peer']} | {shown(f['ratio'], '{:.2f}')} | "
            f"{sign} {f['target']:.2f} | {verdict(f)} |")


def run_table(setting, parts, store):
    runs = {name: row for part in parts for name, row in store[part]["runs"].items()}
    versions = {k: v for row in runs.values() for k, v in row["versions"].items()}
    made_of = [setting["date"], setting["machine"], "Lockstep " + setting["lockstep"],
               setting["compiler"], *map(" ".join, sorted(versions.items()))]
    ran = ": every program that ran" if runs else ""
    lines = ["", f"### {', '.join(parts)}{ran}", "", "; ".join(made_of), "",
             f"    {setting['command']}", ""]
    for part in parts:
        text = store[part].get("text", [])
        lines += text + [""] if text else []
    if not runs:
        return lines[:-1]
    lines += [
             "| program | tokens/s (least - most) | step, s | large product, Tflop/s | peak memory,"
             " GiB | loss | rounds |", "|---|---|---|---|---|---|---|"]
    for name, r in runs.items():
        lines.append(
            f"| {name} | {r['tokens_per_s']:.0f} ({r['tokens_per_s_min']:.0f} - "
            f"{r['tokens_per_s_max']:.0f}) | {shown(r['step_s'], '{:.3f}')} | "
            f"{shown(r['gemm_flops_per_s'], '{:.2f}', 1e12)} | "
            f"{shown(r['peak_rss_bytes'], '{:.2f}', 2**30)} | {shown(r['loss'], '{:.3f}')} | "
            f"{r['rounds']} |")
    lines += ["", "Commands:", ""]
    return lines + [f"    {r['command']}" for r in runs.values()]


def write(out, store):
    """Our part of the page lies between two marks; what others write around it stays."""
    (out / "results.json").write_text(json.dumps(store, indent=1, ensure_ascii=False) + "\n")
    pages.part_put(out / "RESULTS.md", "bench-peers", page(store))
    if out == ROOT / "bench":
        readme.write(ROOT / "README.md", store)


# ---- the command line ---------------------------------------------------------------------------

def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--only", default=",".join(PARTS), help="parts to measure: " + ",".join(PARTS))
    add("--rounds", type=int, default=5)
    add("--model", default="gpt2-124m")
    add("--shape", help="LAYERS,HEADS,CHANNELS,VOCABULARY instead of --model, for a try")
    add("--batch", type=int, default=4, help="sequences a step")
    add("--tokens", type=int, default=1024, help="tokens a sequence")
    add("--threads", type=int, default=2, help="threads in all")
    add("--steps", type=int, default=5, help="steps a run")
    add("--margin", type=float, default=0.15, help="slower variants are left out after round 1")
    add("--timeout-s", type=float, default=1200, help="for one run")
    add("--python", default=os.environ.get("PYTHON", sys.executable), help="one that has torch")
    add("--lockstep", default="build/lockstep", help="program to measure")
    add("--before", help="lockstep of another commit, for part before")
    add("--pytorch", help="program instead of PYTHON bench/peers/pytorch_gpt2.py")
    add("--pytorch-parallel", help="and instead of PYTHON bench/peers/pytorch_parallel.py")
    add("--deepspeed", help="and instead of PYTHON bench/peers/deepspeed_gpt2.py")
    add("--folder", default="build", help="of part offload's files, on the disk to measure")
    add("--pages", action="store_true",
        help="write RESULTS.md and README.md from results.json again, and measure nothing")
    add("--allow-changes", action="store_true",
        help="measure a tree with changes that are not committed, and mark the figures")
    add("--out", type=pathlib.Path, default=ROOT / "bench", help="folder of RESULTS.md")
    o = parser.parse_args()
    o.parts = o.only.split(",")
    unknown = [p for p in o.parts if p not in PARTS]
    if unknown or o.rounds < 1:
        parser.error(f"--only {','.join(unknown)}: want some of {', '.join(PARTS)}" if unknown
                     else "--rounds: want at least 1")
    o.pytorch = o.pytorch or shlex.join([o.python, "bench/peers/pytorch_gpt2.py"])
    o.pytorch_parallel = o.pytorch_parallel or shlex.join(
        [o.python, "bench/peers/pytorch_parallel.py"])
    o.deepspeed = o.deepspeed or shlex.join([o.python, "bench/peers/deepspeed_gpt2.py"])
    return o


def main():
    o = parse()
    o.out.mkdir(parents=True, exist_ok=True)
    kept = o.out / "results.json"
    store = json.loads(kept.read_text()) if kept.exists() else {}
    if o.pages:
        write(o.out, store)
        return
    if shutil.which(shlex.split(o.lockstep)[0], path=f"{ROOT}:{os.environ['PATH']}") is None:
        sys.exit(f"run.py: {o.lockstep}: no such program; build it with make, or name it with "
                 "--lockstep")
    name, changed = commit()
    if changed and not o.allow_changes:
        sys.exit("run.py: the tree has changes that are not committed, so figures would name no "
                 "version: commit them, or try with --allow-changes --out FOLDER")
    if o.before:
        o.before_commit = commit_of(o.before)
    runs = {n: r for n, r in programs(o).items() if r[0] & set(o.parts)}
    for part, given, why in (("llmc", os.environ.get("LLMC_DIR"), "LLMC_DIR is not set"),
                             ("before", o.before, "--before names no program")):
        if part in o.parts and not given:
            print(f"run.py: {why}: part {part} is left out", file=sys.stderr)
            o.parts.remove(part)
    setting = {"date": datetime.date.today().isoformat(), "machine": machine(),
               "lockstep": name + (" with changes" if changed else ""),
               "compiler": output_of("gcc", "--version"),
               "command": readable(o, ["bench/peers/run.py"] + sys.argv[1:])}
    for part in (p for p in o.parts if p in tables.PARTS):
        print(part, file=sys.stderr, flush=True)
        made, text = tables.PARTS[part](shlex.split(o.lockstep), ROOT)
        store[part] = {"setting": setting, "figures": made, "runs": {}, "text": text}
        write(o.out, store)
    o.parts = [p for p in o.parts if p not in tables.PARTS]
    for results in measure(o, runs) if runs else ():
        for part in o.parts:
            store[part] = {"setting": setting, "figures": figures(part, runs, results),
                           "runs": run_rows(o, part, runs, results),
                           "text": texts(part, runs, results)}
        write(o.out, store)
    print(f"wrote {o.out / 'RESULTS.md'}")


if __name__ == "__main__":
    main()
