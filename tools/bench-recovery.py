#!/usr/bin/env python3
"""How long a job takes to get over the death of a rank: bench-recovery.py [KILLS] [KEY=VALUE...]

Trains the demo's corpus on 4 MPI ranks of this machine with `lockstep launch`, and kills a rank by
SIGKILL, one after the other, KILLS times (10). Prints, over the kills, the median and the most
seconds from the kill to: mpirun's end as the launcher sees it, the new ranks' first record, the
first step after the start, and the first step that was not there before (which has steps computed
again before it). Uses build/lockstep and needs mpirun. Keys are set beside those of the run.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

RANKS = 4
KEYS = ["data.train=corpus_train", "model.preset=gpt2-tiny", "batch.global=8", "parallel.dp=4",
        "train.steps=1000000", "train.save_every=10", "optim.decay_steps=1000",
        "log.progress=off", "log.tensorboard=false", "train.out=run"]


def records(folder, name):
    try:
        with open(os.path.join(folder, "run", name), encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


def wait(look, launcher):
    while True:
        found = look()
        if found:
            return found
        if launcher.poll() is not None:
            sys.exit(f"bench-recovery: the launcher ended with {launcher.returncode}")
        time.sleep(0.01)


def rank_pid(rank):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environ = file.read().split(b"\0")
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"train.out=run" in words and b"OMPI_COMM_WORLD_RANK=%d" % rank in environ:
            return int(pid)
    return None


def one_kill(folder, launcher, number):
    """Seconds from the kill to each of what follows."""
    at = max((r["step"] for r in records(folder, "metrics.jsonl")), default=0)
    wait(lambda: any(r["step"] >= at + 15 for r in records(folder, "metrics.jsonl")), launcher)
    pid = rank_pid(number % RANKS)
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    wait(lambda: sum(r["event"] == "going_on" for r in records(folder, "events.jsonl")) > number,
         launcher)
    after = [r for r in records(folder, "metrics.jsonl") if r["time"] > killed]
    failed = next(r for r in records(folder, "events.jsonl")
                  if r["event"] == "failed" and r["time"] > killed)
    resumed = next(r for r in after if r.get("event") == "resume")
    steps = [r for r in after if "loss_bits" in r and r["time"] > resumed["time"]]
    new = next(r for r in steps if r["step"] > failed["step"])
    return [r["time"] - killed for r in (failed, resumed, steps[0], new)]


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    lockstep = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/lockstep")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"{i % 100} bottles of beer on the wall,\n" for i in range(1200))
        subprocess.run([lockstep, "data", "prepare", "--input", "text.txt", "--output", "corpus",
                        "--tokenizer", "byte"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
            launcher = subprocess.Popen([lockstep, "launch", *KEYS, *sys.argv[2:]], cwd=folder,
                                        stdout=log, stderr=log)
        try:
            took = [one_kill(folder, launcher, number) for number in range(kills)]
        finally:
            launcher.terminate()
            launcher.wait()
    names = ["mpirun has ended", "the ranks are there", "the first step", "the first new step"]
    print(f"{kills} kills of one of {RANKS} ranks; seconds from the kill, median and most")
    for name, values in zip(names, zip(*took)):
        print(f"{name:20} {statistics.median(values):6.2f} {max(values):6.2f}")


if __name__ == "__main__":
    main()
