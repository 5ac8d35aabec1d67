#!/usr/bin/env python3
"""What snapshots cost a step: bench-snapshots.py [ROUNDS] [KEY=VALUE...]

Trains GPT-2 124M on 2 rank threads (ZeRO 1, 4 sequences of 1024 tokens a step) without snapshots,
with one after each step, and with checkpoints too that are written from them, one as soon as the
one before is on the disk; ROUNDS times (3) one after the other, 7 steps each. Prints over the steps
behind the third of a run: the median of a step's seconds (with what it waited for snapshots), as a
share of the median without; and the median share of a step that was waiting. The first two
snapshots of a run take new memory, which the system clears; later ones are written over them. Uses
build/lockstep.
Keys are set beside those of the runs, such as model.preset=gpt2-tiny for a try.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

KEYS = ["data.train=corpus_train", "model.preset=gpt2-124m", "data.sequence=1024",
        "batch.global=4", "parallel.dp=2", "parallel.zero=1", "train.steps=7",
        "optim.decay_steps=1000", "train.keep=2", "log.progress=off", "log.tensorboard=false"]
WARM = 3
RUNS = {"no snapshots": [], "snapshots": ["snapshot.every=1"],
        "and checkpoints": ["snapshot.every=1", "train.save_every=1"]}


def steps_of(lockstep, folder, keys):
    """(step_s between two updates, snapshot_s) of each step behind WARM, and saves beside."""
    subprocess.run([lockstep, "train", *KEYS, *keys, *sys.argv[2:], "train.out=run"], cwd=folder,
                   check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "run", "metrics.jsonl"), encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    shutil.rmtree(os.path.join(folder, "run"))
    steps = [r for r in records if "loss_bits" in r][WARM:]
    saves = sum(r.get("event") == "save" for r in records) - 1
    return [(r["step_s"], r.get("snapshot_s", 0)) for r in steps], saves


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    lockstep = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/lockstep")
    steps, saves = {name: [] for name in RUNS}, dict.fromkeys(RUNS, 0)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"{i % 100} bottles of beer on the wall,\n" for i in range(3000))
        subprocess.run([lockstep, "data", "prepare", "--input", "text.txt", "--output", "corpus",
                        "--tokenizer", "byte"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for _ in range(rounds):
            for name, keys in RUNS.items():
                more, beside = steps_of(lockstep, folder, keys)
                steps[name] += more
                saves[name] += beside
    # What the update waits for snapshots is in step_s already; it is never counted less than once.
    whole = {name: statistics.median(s + w for s, w in values) for name, values in steps.items()}
    print(f"{rounds} rounds of {len(RUNS)} runs; medians over {len(steps['snapshots'])} steps")
    print(f"{'':16} {'step':>8} {'ratio':>7} {'waits':>7}  checkpoints beside steps")
    for name, values in steps.items():
        waits = statistics.median(w / (s + w) for s, w in values)
        print(f"{name:16} {whole[name]:6.2f} s {whole[name] / whole['no snapshots']:6.3f}x "
              f"{100 * waits:6.2f}%  {saves[name]}")


if __name__ == "__main__":
    main()
