#!/usr/bin/env python3
"""What checkpoints and snapshots beside steps cost: bench-snapshots.py [--write] [ROUNDS] [KEY=VALUE...]

Trains GPT-2 124M on 2 rank threads (ZeRO 1, 4 sequences of 1024 tokens a step) with neither, with a
snapshot after each step, with checkpoints too that are written from them, one as soon as the one
before is on the disk, with a checkpoint of each step alone (checkpoint.async), and with one that
steps wait for; ROUNDS times (3) one after the other, 7 steps each. Prints over the steps behind the
third of a run: the median of a step's seconds (with what it waited for snapshots), as a share of the
median without; and the median share of a step that was waiting. The first two snapshots of a run
take new memory, which the system clears; later ones are written over them. The last column is the
CPU time of whole runs beyond that of a run with neither, over their checkpoints: what a copy and its
writing take, in user and system time. Uses build/lockstep.
Keys are set beside those of the runs, such as `model.preset=gpt2-tiny model.vocab=257 data.sequence=64` for a
try; with `data.sequence=64 batch.global=2` steps are short, and the CPU time of checkpoints is clear.
--write puts the table into bench/RESULTS.md.
"""

import datetime
import statistics
import sys

import bench_steps
import pages

STEPS = "train.steps=7"
WARM = 3
RUNS = {"neither": [], "snapshots": ["snapshot.every=1"],
        "snapshots and checkpoints": ["snapshot.every=1", "train.save_every=1"],
        "checkpoints": ["checkpoint.async=true", "train.save_every=1"],
        "checkpoints that steps wait for": ["train.save_every=1"]}
GOALS = {"snapshots": (1.02, 0.005), "snapshots and checkpoints": (1.05, 0.005),
         "checkpoints": (1.05, 0.005)}


def steps_of(folder, keys):
    """(step_s between two updates, snapshot_s) of each step behind WARM, saves but the last, CPU
    seconds."""
    records, used_s = bench_steps.records_of(folder, [STEPS, *keys])
    steps = [r for r in records if "loss_bits" in r][WARM:]
    saves = sum(r.get("event") == "save" for r in records) - 1
    return [(r["step_s"], r.get("snapshot_s", 0)) for r in steps], saves, used_s


def measured(rounds, keys):
    """Of each of RUNS: a step's seconds and waiting, how many checkpoints came before the last one,
    and the CPU seconds of all."""
    steps, saves, cpu = {name: [] for name in RUNS}, dict.fromkeys(RUNS, 0), dict.fromkeys(RUNS, 0)
    with bench_steps.corpus_folder() as folder:
        for _ in range(rounds):
            for name, of_run in RUNS.items():
                more, beside, seconds = steps_of(folder, [*of_run, *keys])
                steps[name] += more
                saves[name] += beside
                cpu[name] += seconds
    return steps, saves, cpu


def table(steps, saves, cpu):
    lines = ["| beside steps | a step | ratio | target | | waits | target | | checkpoints | CPU of one |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    # What the update waits for snapshots is in step_s already; it is never counted less than once.
    whole = {name: statistics.median(s + w for s, w in values) for name, values in steps.items()}
    for name, values in steps.items():
        waits = statistics.median(w / (s + w) for s, w in values)
        beside = name != "checkpoints that steps wait for"  # of which step_s knows nothing
        line = f"| {name} | {whole[name]:.2f} s | " if beside else f"| {name} | | "
        if name in GOALS:
            ratio = whole[name] / whole["neither"]
            for value, most, form in zip((ratio, waits), GOALS[name], ("{:.3f}", "{:.2%}")):
                line += (f"{form.format(value)} | ≤ {form.format(most)} | "
                         f"{'met' if value <= most else 'short'} | ")
        else:
            line += " | | | | | | "
        each = f"{(cpu[name] - cpu['neither']) / saves[name]:.2f} s" if saves[name] else ""
        lines.append(line + f"{saves[name]} | {each} |")
    return lines


def main():
    words = [word for word in sys.argv[1:] if word != "--write"]
    write = len(words) + 1 < len(sys.argv)
    rounds = int(words.pop(0)) if words and words[0].isdigit() else 3
    if write and words:
        sys.exit("--write: leave keys out")
    commit = pages.commit_of(write)
    steps, saves, cpu = measured(rounds, words)
    lines = [f"GPT-2 124M, two rank threads, ZeRO 1; {rounds} rounds, medians over "
             f"{len(steps['snapshots'])} steps.", "", *table(steps, saves, cpu)]
    print("\n".join(lines))
    if write:
        today = datetime.date.today().isoformat()
        pages.part_put(pages.RESULTS, "bench-snapshots", [
            "## Checkpoints and snapshots beside steps", "",
            f"`tools/bench-snapshots.py --write`: {today}, commit {commit}. {lines[0]}",
            *lines[1:]])


if __name__ == "__main__":
    main()
