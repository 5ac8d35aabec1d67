#!/usr/bin/env python3
"""How long a job takes to get over the death of a rank:

    bench-recovery.py [--torch PYTHON] [KILLS] [KEY=VALUE...]

Trains the demo's corpus on 4 MPI ranks of this machine with `lockstep launch`, and kills a rank by
SIGKILL, one after the other, KILLS times (10). Prints, over the kills, the median and the most
seconds from the kill to: mpirun's end as the launcher sees it, the new ranks' first record, the
first step after the start, and the first step that was not there before (which has steps computed
again before it). Uses build/lockstep and needs mpirun. Keys are set beside those of the run.

With a Python that has PyTorch, as many ranks are then killed of another job on this machine:
torchrun with 4 processes over gloo, which train a small network and save it by
torch.distributed.checkpoint as often. torchrun starts all of them again; they load the newest
checkpoint.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
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


# ---- PyTorch -------------------------------------------------------------------------------------


def torch_rank(folder):
    """One of torchrun's processes, until it is ended; rank 0 writes the records."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    torch.set_num_threads(1)
    rank, started = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
    # Of its own in each start: PyTorch 2.15 finds the addresses of the start before, and waits.
    store = dist.PrefixStore(started, dist.TCPStore(os.environ["MASTER_ADDR"],
                                                    int(os.environ["MASTER_PORT"]), RANKS, False))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    with open(os.path.join(folder, f"pid-{rank}"), "w", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)))
    optimizer = torch.optim.AdamW(model.parameters())
    saved = sorted(name for name in os.listdir(folder)
                   if os.path.exists(os.path.join(folder, name, ".metadata")))
    step = 0
    if saved:
        state = {"model": model.state_dict(), "step": 0}
        dcp.load(state, checkpoint_id=os.path.join(folder, saved[-1]))
        model.load_state_dict(state["model"])
        step = state["step"]
    with open(os.path.join(folder, "records.jsonl"), "a", encoding="utf-8") as records:
        while True:
            if rank == 0:
                print(json.dumps({"time": time.time(), "step": step, "pid": os.getpid()}),
                      file=records, flush=True)
            step += 1
            model(torch.randn(8, 64)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 10 == 0:
                dcp.save({"model": model.state_dict(), "step": step},
                         checkpoint_id=os.path.join(folder, f"step-{step:08d}"))
                if rank == 0 and len(saved) > 1:
                    shutil.rmtree(os.path.join(folder, saved.pop(0)))
                saved.append(f"step-{step:08d}")


class TorchJob:
    """torchrun, with the records of a Job: the first of a start has the step that was loaded."""

    def __init__(self, python, folder):
        self.python, self.folder = python, folder
        self.torchrun = None

    def start(self):
        with open(os.path.join(self.folder, "log"), "w", encoding="utf-8") as log:
            self.torchrun = subprocess.Popen(
                [self.python, "-m", "torch.distributed.run", "--standalone", "--max-restarts=1000",
                 f"--nproc-per-node={RANKS}", __file__, "--torch-rank", self.folder],
                stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def ended(self):
        return self.torchrun.poll()

    def stop(self):
        self.torchrun.terminate()
        self.torchrun.wait()

    def said(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as file:
            return file.read()[-4000:]

    def records(self):
        try:
            with open(os.path.join(self.folder, "records.jsonl"), encoding="utf-8") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def one_kill(self, number):
        """Seconds from the kill to the loaded state, the end of a step, that of a new one."""
        begun = len(self.records())
        wait(lambda: len(self.records()) > begun + 15, self)
        with open(os.path.join(self.folder, f"pid-{number % RANKS}"), encoding="utf-8") as file:
            pid = int(file.read())
        os.kill(pid, signal.SIGKILL)
        killed = time.time()
        before = max(r["step"] for r in self.records())
        wait(lambda: any(r["step"] > before + 1 for r in self.records()), self)
        newest = self.records()[-1]["pid"]
        after = [r for r in self.records() if r["pid"] == newest]
        new = next(r for r in after if r["step"] > before)
        return [r["time"] - killed for r in (after[0], after[1], new)]


def kills(job, one, count):
    job.start()
    try:
        return [one(job, number) for number in range(count)]
    finally:
        job.stop()


def took_print(whose, names, took):
    print(f"{len(took)} kills of one of {RANKS} ranks {whose}: seconds from the kill, median and most",
          flush=True)
    for name, values in zip(names, zip(*took)):
        print(f"{name:20} {statistics.median(values):6.2f} {max(values):6.2f}")


def main():
    if sys.argv[1:2] == ["--torch-rank"]:
        torch_rank(sys.argv[2])
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--torch", help="a Python that has PyTorch")
    parser.add_argument("kills", nargs="?", type=int, default=10)
    parser.add_argument("keys", nargs="*")
    given = parser.parse_args()
    names = ["the ranks are there", "the first step", "the first new step"]
    with tempfile.TemporaryDirectory() as folder:
        job = Job(folder, [*KEYS, *given.keys])
        took_print("of lockstep launch", ["mpirun has ended", *names],
                   kills(job, one_kill, given.kills))
    if given.torch:
        with tempfile.TemporaryDirectory() as folder:
            job = TorchJob(given.torch, folder)
            took_print("of torchrun with DCP", names, kills(job, TorchJob.one_kill, given.kills))


if __name__ == "__main__":
    main()
