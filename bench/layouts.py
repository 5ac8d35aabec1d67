#!/usr/bin/env python3
"""Holds the planner against steps that run here: 71 layouts, forecast and measured.

    bench/layouts.py [--lockstep PATH] [--hosts PATH] [--only TEXT] [--rounds N] [--steps N] [--write]

For each recipe the machine is measured (`lockstep bench machine`), then each of its layouts is
forecast and run (`lockstep bench plan`): on one and two ranks as training runs them, on 4, 8 and 16
as ranks rehearse them asleep; at last on two hosts with a slow cable between them, which
build/test/hosts/test_measure_hosts makes where the system lets it. Machines drift, so the machine
is measured again before each layout that runs, and before every few that are rehearsed; and all
layouts of a recipe take turns for some rounds, of which the medians count: what other programs
disturb is seldom disturbed twice. --write puts the table into bench/RESULTS.md, between two marks,
and the numbers into bench/results.json, where recipes that were not measured now keep theirs. Needs
an idle machine. Prints one line a layout, the median and the worst error, and for each recipe how
far the layout that the planner would take is from the best that was measured.
"""
import argparse
import dataclasses
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
NARROW = "model.arch=gpt2 model.layers=4 model.channels=128 model.heads=8 model.context=256 " \
         "model.vocab=1024 data.sequence=256 batch.global=16 numerics.leaf_sequences=4 " \
         "numerics.tp_tiles=4 batch.micro=4 parallel.threads=1"
BETWEEN = ["parallel.dp=2", "parallel.dp=2 parallel.zero=1", "parallel.dp=2 parallel.zero=3",
           "parallel.tp=2", "parallel.pp=2 parallel.schedule=1f1b"]
ACROSS = ["parallel.dp=4", "parallel.dp=4 parallel.zero=1",
          "parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=3",
          "parallel.tp=2 parallel.dp=2", "parallel.tp=2 parallel.pp=2",
          "parallel.pp=4 parallel.schedule=1f1b"]


@dataclasses.dataclass
class Recipe:
    name: str
    keys: str
    layouts: list
    slower: float = 0  # rehearsed: by how much the cores are slower
    each: int = 0  # ranks on each of two hosts; 0: no hosts


RECIPES = [Recipe("GPT fp32", GPT + " numerics.precision=fp32", ONE + TWO),
           Recipe("GPT bf16", GPT + " numerics.precision=bf16", ONE + TWO),
           Recipe("Llama fp32", LLAMA + " numerics.precision=fp32", ONE + TWO),
           Recipe("Llama bf16", LLAMA + " numerics.precision=bf16", ONE + TWO),
           Recipe("deep GPT, rehearsed", DEEP + " numerics.precision=fp32", MORE, 8.0),
           Recipe("two hosts", NARROW + " numerics.precision=fp32", BETWEEN, 0, 1),
           Recipe("two hosts, rehearsed", NARROW + " numerics.precision=fp32", ACROSS, 8.0, 2)]
EVERY = 5  # rehearsed layouts between measurements of the machine
MBIT = 200  # a second, of the cable between the hosts
ROOT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT.parent / "tools"))
import pages  # noqa: E402


def run(options, recipe, words):
    """What `lockstep WORDS` prints, here or on two hosts."""
    command = [options.lockstep]
    if recipe.each:
        command = [options.hosts, "--run", str(MBIT), str(recipe.each)]
    done = subprocess.run([*command, *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join([*command, *words])}: {done.stdout.strip()} {done.stderr.strip()}")
    return done.stdout


def measure(options, recipe, path):
    bound = ["--bound"] if recipe.each else []
    run(options, recipe, ["bench", "machine", "--quick", *bound, "--out", path,
                          *recipe.keys.split()])


def one(options, recipe, layout, machine):
    words = ["bench", "plan", "--cluster", machine, "--steps", str(options.steps),
             *recipe.keys.split(), *layout.split()]
    if recipe.slower:
        words += ["--rehearse", str(recipe.slower)]
    for line in run(options, recipe, words).splitlines():
        if line.startswith("{"):
            return json.loads(line)
    sys.exit(f"{' '.join(words)}: no figures")


def row_of(recipe, layout, commit, found):
    """The medians over rounds."""
    planned = statistics.median(f["planned_s"] for f in found)
    measured = statistics.median(f["measured_s"] for f in found)
    return found[0] | {"recipe": recipe.name, "keys": layout, "rehearsed": bool(recipe.slower),
                       "planned_s": planned, "measured_s": measured,
                       "error": planned / measured - 1, "rounds": len(found), "lockstep": commit}


def layouts(options, recipe, commit):
    found = {layout: [] for layout in recipe.layouts}
    with tempfile.TemporaryDirectory() as folder:
        machine = os.path.join(folder, "machine.yaml")
        for _ in range(options.rounds):
            for i, layout in enumerate(recipe.layouts):
                if not recipe.slower or i % EVERY == 0:
                    measure(options, recipe, machine)
                found[layout].append(one(options, recipe, layout, machine))
    rows = [row_of(recipe, layout, commit, found[layout]) for layout in recipe.layouts]
    for row in rows:
        print(f"{row['recipe']:20} {row['ranks']:3} ranks  planned {row['planned_s']:8.4f} s  "
              f"measured {row['measured_s']:8.4f} s  {100 * row['error']:+6.1f} %  {row['keys']}",
              flush=True)
    return rows


def choice(rows):
    """How much slower the layout is that the planner takes than the best that ran."""
    taken = min(rows, key=lambda row: row["planned_s"])
    best = min(rows, key=lambda row: row["measured_s"])
    return taken["measured_s"] / best["measured_s"] - 1, taken["keys"], best["keys"]


def summary(rows):
    def of(some):
        errors = [abs(row["error"]) for row in some]
        return (f"median error {100 * statistics.median(errors):.1f} %, "
                f"worst {100 * max(errors):.1f} %") if errors else "none"
    ran = [row for row in rows if not row["rehearsed"]]
    rehearsed = [row for row in rows if row["rehearsed"]]
    lines = [f"{len(rows)} layouts: {of(rows)} (goals: 5 % and 15 %). Of the {len(ran)} that ran: "
             f"{of(ran)}. Of the {len(rehearsed)} that were rehearsed: {of(rehearsed)}.", ""]
    for name in dict.fromkeys(row["recipe"] for row in rows):
        own = [row for row in rows if row["recipe"] == name]
        slower_by, taken, best = choice(own)
        rounds = f"{own[0]['rounds']} round{'s' if own[0]['rounds'] > 1 else ''}"
        lines.append(f"- {name} (commit {own[0]['lockstep']}, {own[0]['date']}, {rounds}): the "
                     f"planner takes `{taken}`, "
                     f"{100 * slower_by:.1f} % slower than the best that was measured, `{best}` "
                     "(goal: 5 %).")
    return lines


def kept_rows(store, measured):
    """Rows of recipes that were not measured now."""
    old = store.get("layouts", {})
    setting = old.get("setting", {})
    return [{"lockstep": setting.get("lockstep"), "date": setting.get("date"), "rounds": 1} | row
            for row in old.get("rows", []) if row["recipe"] not in measured]


def write(rows):
    kept = ROOT / "results.json"
    store = json.loads(kept.read_text())
    order = [recipe.name for recipe in RECIPES]
    rows = kept_rows(store, {row["recipe"] for row in rows}) + rows
    rows.sort(key=lambda row: order.index(row["recipe"]))
    store["layouts"] = {"rows": rows}
    kept.write_text(json.dumps(store, indent=1, ensure_ascii=False) + "\n")
    lines = ["## Layouts that ran, beside the planner", "",
             "`bench/layouts.py --write` measures the machine, forecasts each layout and runs it; "
             "those that are rehearsed have ranks that sleep for as long as their ops would take, "
             "and move their bytes. The two hosts are network namespaces with a cable that carries "
             f"{MBIT} Mbit/s, which is measured like all else.", "", *summary(rows), "",
             "| recipe | layout | ranks | planned | measured | error |", "|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['recipe']} | `{row['keys']}` | {row['ranks']} | "
                     f"{row['planned_s']:.4f} s | {row['measured_s']:.4f} s | "
                     f"{100 * row['error']:+.1f} % |")
    pages.part_put(pages.RESULTS, "layouts", lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default="build/lockstep")
    parser.add_argument("--hosts", default="build/test/hosts/test_measure_hosts")
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
    parser.add_argument("--only", default="", help="recipes whose name has this text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    commit, rows = pages.commit_of(options.write), []
    for recipe in RECIPES:
        if options.only in recipe.name:
            rows += layouts(options, recipe, commit)
    for row in rows:
        row["date"] = datetime.date.today().isoformat()
    if not rows:
        sys.exit(f"--only {options.only}: no recipe has that name")
    print("\n" + "\n".join(summary(rows)))
    if options.write:
        write(rows)


if __name__ == "__main__":
    main()
