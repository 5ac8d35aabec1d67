#!/usr/bin/env python3
"""How long a job takes to get over the death of a rank: bench-recovery.py [KILLS] [KEY=VALUE...]

Trains the demo's corpus on 4 MPI ranks of this machine with `lockstep launch`, and kills a rank by
SIGKILL, one after the other, KILLS times (10). Prints, over the kills, the median and the most
seconds from the kill to: mpirun's end as the launcher sees it, the new ranks' first record, the
first step after the start, and the first step that was not there before (which has steps computed
again before it). Uses build/lockstep and needs mpirun. Keys are set beside those of the run.
"""

import os
import signal
import statistics
import sys
import tempfile
import time

from launched import RANKS, Job

KEYS = ["data.train=corpus_train", "model.preset=gpt2-tiny", "batch.global=8", "parallel.dp=4",
        "train.steps=1000000", "train.save_every=10", "optim.decay_steps=1000",
        "log.progress=off", "log.tensorboard=false"]


def wait(look, job):
    while True:
        found = look()
        if found:
            return found
        if job.ended() is not None:
            sys.exit(f"bench-recovery: the launcher ended with {job.ended()}:\n{job.said()}")
        time.sleep(0.01)


def one_kill(job, number):
    """Seconds from the kill to each of what follows."""
    at = max((r["step"] for r in job.records("metrics.jsonl")), default=0)
    wait(lambda: any(r["step"] >= at + 15 for r in job.records("metrics.jsonl")), job)
    pid = job.ranks()[number % RANKS]
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    wait(lambda: sum(r["event"] == "going_on" for r in job.records("events.jsonl")) > number, job)
    after = [r for r in job.records("metrics.jsonl") if r["time"] > killed]
    failed = next(r for r in job.records("events.jsonl")
                  if r["event"] == "failed" and r["time"] > killed)
    resumed = next(r for r in after if r.get("event") == "resume")
    steps = [r for r in after if "loss_bits" in r and r["time"] > resumed["time"]]
    new = next(r for r in steps if r["step"] > failed["step"])
    return [r["time"] - killed for r in (failed, resumed, steps[0], new)]


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory() as folder:
        job = Job(folder, [*KEYS, *sys.argv[2:]])
        job.start()
        try:
            took = [one_kill(job, number) for number in range(kills)]
        finally:
            job.stop()
    names = ["mpirun has ended", "the ranks are there", "the first step", "the first new step"]
    print(f"{kills} kills of one of {RANKS} ranks; seconds from the kill, median and most")
    for name, values in zip(names, zip(*took)):
        print(f"{name:20} {statistics.median(values):6.2f} {max(values):6.2f}")


if __name__ == "__main__":
    main()
