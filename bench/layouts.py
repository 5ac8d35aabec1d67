#!/usr/bin/env python3
"""Holds the planner against steps that run here: 60 layouts, forecast and measured.

    bench/layouts.py [--lockstep PATH] [--only TEXT] [--steps N] [--write]

For each recipe the machine is measured (`lockstep bench machine`), then each of its layouts is
forecast and run (`lockstep bench plan`): on one and two ranks as training runs them, on 4, 8 and 16
as ranks rehearse them asleep. Machines drift, so the machine is measured again before each layout
that runs, and before every few that are rehearsed. --write puts the table into bench/RESULTS.md,
between two marks, and the numbers into bench/results.json. Needs an idle machine. Prints one line a layout, the median and the worst error, and for each recipe how far the
layout that the planner would take is from the best that was measured.
"""
import argparse
import datetime
import json
import os
import pathlib
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
EVERY = 5  # rehearsed layouts between measurements of the machine
ROOT = pathlib.Path(__file__).resolve().parent
BEGIN, END = "<!-- layouts: begin -->", "<!-- layouts: end -->"


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
            if not slower or i % EVERY == 0:
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


def summary(rows, choices):
    def of(some):
        errors = [abs(row["error"]) for row in some]
        return (f"median error {100 * statistics.median(errors):.1f} %, "
                f"worst {100 * max(errors):.1f} %") if errors else "none"
    ran = [row for row in rows if not row["rehearsed"]]
    rehearsed = [row for row in rows if row["rehearsed"]]
    lines = [f"{len(rows)} layouts: {of(rows)} (goals: 5 % and 15 %). Of the {len(ran)} that ran: "
             f"{of(ran)}. Of the {len(rehearsed)} that were rehearsed: {of(rehearsed)}.", ""]
    for name, slower_by, taken, best in choices:
        lines.append(f"- {name}: the planner takes `{taken}`, {100 * slower_by:.1f} % slower than "
                     f"the best that was measured, `{best}` (goal: 5 %).")
    return lines


def write(rows, choices):
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True,
                            capture_output=True, check=False).stdout.strip()
    kept = ROOT / "results.json"
    store = json.loads(kept.read_text())
    store["layouts"] = {"setting": {"date": datetime.date.today().isoformat(), "lockstep": commit},
                        "rows": rows, "choices": choices}
    kept.write_text(json.dumps(store, indent=1, ensure_ascii=False) + "\n")
    lines = ["## Layouts that ran, beside the planner", "",
             "`bench/layouts.py --write` measures the machine, forecasts each layout and runs it; "
             "those of 4, 8 and 16 ranks are rehearsed: ranks sleep for as long as their ops would "
             f"take, and move their bytes. Commit {commit}.", "", *summary(rows, choices), "",
             "| recipe | layout | ranks | planned | measured | error |", "|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['recipe']} | `{row['keys']}` | {row['ranks']} | "
                     f"{row['planned_s']:.4f} s | {row['measured_s']:.4f} s | "
                     f"{100 * row['error']:+.1f} % |")
    path = ROOT / "RESULTS.md"
    text = path.read_text()
    if BEGIN not in text:
        text += f"\n{BEGIN}\n{END}\n"
    before, rest = text.split(BEGIN, 1)
    path.write_text(before + BEGIN + "\n\n" + "\n".join(lines) + "\n\n" + END +
                    rest.split(END, 1)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default="build/lockstep")
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
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
    print("\n" + "\n".join(summary(rows, choices)))
    if options.write:
        write(rows, choices)


if __name__ == "__main__":
    main()
