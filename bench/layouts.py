#!/usr/bin/env python3
"""Holds the planner against steps that run here: 60 layouts, forecast and measured.

    bench/layouts.py [--lockstep PATH] [--out bench/layouts.json] [--only TEXT] [--steps N]

For each recipe the machine is measured (`lockstep bench machine`), then each of its layouts is
forecast and run (`lockstep bench plan`): on one and two ranks as training runs them, on 4, 8 and 16
as ranks rehearse them asleep. Machines drift, so the machine is measured again after every few
layouts. Prints one line a layout, the median and the worst error, and for each recipe how far the
layout that the planner would take is from the best that was measured.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

GPT = "model.arch=gpt2 model.layers=4 model.channels=256 model.heads=8 model.context=512 " \
      "model.vocab=4096 data.sequence=512 batch.global=16 numerics.leaf_sequences=1 " \
      "numerics.tp_tiles=4 numerics.seq_tiles=2 batch.micro=1"
LLAMA = "model.arch=llama model.layers=4 model.channels=256 model.heads=8 model.kv_heads=4 " \
        "model.context=512 model.vocab=4096 data.sequence=512 batch.global=16 " \
        "numerics.leaf_sequences=1 numerics.tp_tiles=4 numerics.seq_tiles=2 batch.micro=1"
DEEP = "model.arch=gpt2 model.layers=16 model.channels=128 model.heads=8 model.context=256 " \
       "model.vocab=1024 data.sequence=256 batch.global=32 numerics.leaf_sequences=1 " \
       "numerics.tp_tiles=4 batch.micro=1"

ONE = ["parallel.threads=1", "parallel.threads=2", "parallel.threads=2 memory.recompute=full"]
TWO = ["parallel.dp=2", "parallel.dp=2 parallel.zero=1", "parallel.dp=2 parallel.zero=3",
       "parallel.tp=2", "parallel.cp=2", "parallel.pp=2 parallel.schedule=1f1b",
       "parallel.pp=2 parallel.schedule=zb-h1"]
MORE = ["parallel.pp=4 parallel.schedule=gpipe", "parallel.pp=4 parallel.schedule=1f1b",
        "parallel.pp=4 parallel.schedule=interleaved parallel.chunks=2",
        "parallel.pp=4 parallel.schedule=zbv", "parallel.pp=8 parallel.schedule=1f1b",
        "parallel.pp=8 parallel.schedule=zb-h1",
        "parallel.pp=8 parallel.schedule=interleaved parallel.chunks=2",
        "parallel.dp=8", "parallel.dp=8 parallel.zero=1", "parallel.dp=8 parallel.zero=2",
        "parallel.dp=8 parallel.zero=3", "parallel.tp=4 parallel.dp=2",
        "parallel.tp=2 parallel.pp=4", "parallel.tp=2 parallel.pp=4 parallel.schedule=zb-h1",
        "parallel.dp_replicate=2 parallel.dp_shard=4 parallel.zero=2",
        "parallel.tp=4 parallel.pp=4", "parallel.dp=16 parallel.zero=1",
        "parallel.dp=4 parallel.pp=4 parallel.zero=1",
        "parallel.dp=4 parallel.tp=4 parallel.zero=3",
        "parallel.dp=2 parallel.tp=2 parallel.pp=4"]
RECIPES = [("GPT fp32", GPT + " numerics.precision=fp32", ONE + TWO, None),
           ("GPT bf16", GPT + " numerics.precision=bf16", ONE + TWO, None),
           ("Llama fp32", LLAMA + " numerics.precision=fp32", ONE + TWO, None),
           ("Llama bf16", LLAMA + " numerics.precision=bf16", ONE + TWO, None),
           ("deep GPT, rehearsed", DEEP + " numerics.precision=fp32", MORE, 8.0)]
EVERY = 5  # layouts between measurements of the machine


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def measure(lockstep, path, recipe):
    run([lockstep, "bench", "machine", "--quick", "--out", path, *recipe.split()])


def layouts(options, name, recipe, keys, slower):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        machine = os.path.join(folder, "machine.yaml")
        for i, layout in enumerate(keys):
            if i % EVERY == 0:
                measure(options.lockstep, machine, recipe)
            command = [options.lockstep, "bench", "plan", "--cluster", machine, "--steps",
                       str(options.steps), *recipe.split(), *layout.split()]
            if slower:
                command += ["--rehearse", str(slower)]
            row = json.loads(run(command))
            row |= {"recipe": name, "keys": layout, "rehearsed": bool(slower)}
            rows.append(row)
            print(f"{name:20} {row['ranks']:3} ranks  planned {row['planned_s']:8.4f} s  measured "
                  f"{row['measured_s']:8.4f} s  {100 * row['error']:+6.1f} %  {layout}", flush=True)
    return rows


def choice(rows):
    """How much slower the layout is that the planner takes than the best that ran."""
    taken = min(rows, key=lambda row: row["planned_s"])
    best = min(rows, key=lambda row: row["measured_s"])
    return taken["measured_s"] / best["measured_s"] - 1, taken["keys"], best["keys"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default="build/lockstep")
    parser.add_argument("--out")
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=7)
    options = parser.parse_args()
    rows, choices = [], []
    for name, recipe, keys, slower in RECIPES:
        if options.only not in name:
            continue
        own = layouts(options, name, recipe, keys, slower)
        rows += own
        choices.append((name, *choice(own)))
    errors = [abs(row["error"]) for row in rows]
    print(f"\n{len(rows)} layouts: median error {100 * statistics.median(errors):.1f} % (goal 5), "
          f"worst {100 * max(errors):.1f} % (goal 15)")
    for name, slower_by, taken, best in choices:
        print(f"{name}: the planner takes {taken}, {100 * slower_by:.1f} % slower than the best, "
              f"{best} (goal 5)")
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump({"layouts": rows, "choices": choices}, file, indent=1)


if __name__ == "__main__":
    main()
