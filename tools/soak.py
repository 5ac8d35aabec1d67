#!/usr/bin/env python3
"""Disturbs a job for a long time, and checks that nothing came of it but lost seconds.

    tools/soak.py [--minutes M] [--seed S] [--twin NAME] [KEY=VALUE...]
    tools/soak.py --kills N [--seed S] [--twin NAME] [KEY=VALUE...]
    tools/soak.py --self-test      of where the time went

Trains a small model on 4 MPI ranks of this machine by `lockstep launch`. With --minutes (60) there
is a fault in each minute, at a drawn moment of it; with --kills there are N kill -9 one after the
other: most as soon as the job has a new step again and a drawn part of a second has gone by, a
quarter without waiting for that, and so in the recovery from the one before. With --kills every third
step has a snapshot, so that many kills come while one is taken. Faults, shuffled by the seed:

    rank      kill -9 of a rank            mpirun    kill -9 of mpirun
    two       of two ranks at once         launcher  kill -9 of the launcher, then started again
    all       of all ranks (--kills)       pause     SIGSTOP of a rank for less than the timeout,
    host      of all ranks of a host                 then SIGCONT (--minutes, as freeze)
              (--kills)                    freeze    SIGSTOP of a rank for good

With --kills the ranks are on two hosts of network namespaces, if this system lets them be made;
otherwise it says so, and there is no fault "host". Hosts that are cut off or lost are in
test/hosts/test_launch_hosts.c.

Then the job is asked to end, and two ranks compute the same steps undisturbed. Verdicts:

    same state     the losses of all steps and the last hash are those of the undisturbed run
    same records   no step was ever recorded with other bits than before (read while the job runs)
    nothing left   no process of the job is left once the launcher has ended
    goodput        (--minutes) at least 95 %

Goodput is the share of the time that was spent on steps that count: the sum of step_s over
metrics.jsonl, in which each step is once, as it was computed last, over the time from the begin of
the first step to the end of the last one. A step counts for at most twice the median, so that one
during which a rank was stopped does not count for the pause. Where the rest went is printed: of each
fault how long it took until it was seen, until the launcher had started the job again, until the run
began, until it was at a step, and the steps computed again; slow steps, which other programs on the
machine cause too; and snapshots.

The exit code is 1 if a verdict is not met. Twins that must not meet theirs: --twin batches (a
recovery that goes on with other batches), --twin slow (starts take 9 s longer), --twin orphan (a
process of the job stays). Uses build/lockstep, Open MPI's mpirun, and about as long again for the
undisturbed run.
"""

import argparse
import collections
import glob
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from launched import LOCKSTEP, RANKS, Hosts, Job

KEYS = ["data.train=corpus_train", "model.preset=gpt2-tiny", "train.steps=10000000",
        "optim.decay_steps=1000", "parallel.threads=1", "log.progress=off", "log.tensorboard=false", "log.drift_every=0",
        "comm.timeout_s=3", "launch.pause_s=1", "launch.retries=1000"]
LAYOUT = ["parallel.dp=2", "parallel.tp=2"]
SOAK_KEYS = ["batch.global=256", "train.save_every=100", "snapshot.every=5"]
KILLS_KEYS = ["batch.global=64", "train.save_every=20", "snapshot.every=3"]
GOODPUT, STUCK_S, PAUSE_S = 0.95, 120, 0.01
SOAK = ["rank", "two", "mpirun", "launcher", "pause", "freeze"]
KILLS = ["rank", "rank", "rank", "two", "all", "mpirun", "launcher"]
# What an mpirun of a twin does before every start but the first.
TWINS = {"batches": 'set -- "$@" data.train=other/corpus_train', "slow": "sleep 9", "orphan": ""}


# What the time goes to from a fault on, each until the next thing is recorded.
PHASES = {"fault": "until it is seen", "failed": "the launcher, until it starts the job again",
          "start": "mpirun and ranks, until a run begins", "begun": "until its first step begins",
          "again": "steps computed again"}


class Records:
    """metrics.jsonl as it grows, and is cut back and grows again."""

    def __init__(self, path):
        self.path, self.inode, self.offset = path, 0, 0
        self.seen, self.newest, self.other = {}, 0, []
        self.marks = {}  # (time, "begun"): None, and (time, "step"): its record

    def look(self):
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self.inode or status.st_size < self.offset:
                    self.inode, self.offset = status.st_ino, 0
                file.seek(self.offset)
                text = file.read()
        except FileNotFoundError:
            return
        whole = text.rfind(b"\n") + 1
        self.offset += whole
        for line in text[:whole].splitlines():
            if b'"loss_bits"' in line:
                self.step(json.loads(line))
            elif b'"event": "start"' in line or b'"event": "resume"' in line:
                self.marks[json.loads(line)["time"], "begun"] = None

    def step(self, record):
        self.marks[record["time"], "step"] = record
        step, bits = record["step"], {k: record[k] for k in ("loss_bits", "hash") if k in record}
        before = self.seen.setdefault(step, bits)
        if any(before.get(key, value) != value for key, value in bits.items()):
            self.other.append(f"step {step}: {before}, then {bits}")
        before.update(bits)
        self.newest = max(self.newest, step)


class Soak:
    def __init__(self, job, draw):
        self.job, self.draw = job, draw
        self.records = Records(os.path.join(job.out, "metrics.jsonl"))
        self.faults, self.deck, self.marks = collections.Counter(), [], []
        self.hit, self.reached = collections.Counter(), -1  # what was hit; the step of the last fault

    def wait(self, until, what):
        """Watches the job until that is true."""
        begin = time.time()
        while not until():
            self.records.look()
            if self.job.ended() is not None:
                sys.exit(f"soak: the launcher ended with {self.job.ended()}:\n{self.job.said()}")
            if time.time() - begin > STUCK_S:
                sys.exit(f"soak: {what} did not come in {STUCK_S} s:\n{self.job.said()}")
            time.sleep(PAUSE_S)

    def rest(self, seconds):
        end = time.time() + seconds
        while time.time() < end:
            until = min(end, time.time() + 1)
            self.wait(lambda: time.time() >= until, "a second")

    def new_step(self):
        self.records.look()
        at = self.records.newest
        self.wait(lambda: self.records.newest > at, f"a step after {at}")

    def victims(self, kind):
        """Which processes get the signal; [] while they are not there."""
        if kind == "launcher":
            return [self.job.launcher.pid]
        if kind == "mpirun":
            return self.job.mpirun()
        if kind == "host":
            hosts = self.job.hosts()
            return self.draw.choice(sorted(hosts)) if sum(map(len, hosts)) == RANKS else []
        ranks = list(self.job.ranks().values())
        count = {"two": 2, "all": RANKS}.get(kind, 1)
        return self.draw.sample(sorted(ranks), count) if len(ranks) >= count else []

    def under_way(self):
        """What the job is at."""
        self.records.look()
        if self.records.newest <= self.reached:
            return "recovery"
        with open(os.path.join(self.job.out, "start"), encoding="utf-8") as file:
            run = file.read().split()[1][:16]
        folders = [self.job.out, *glob.glob(f"/dev/shm/lockstep-{os.geteuid()}-{run}-*")]
        written = [name for folder in folders for name in glob.glob(f"{folder}/checkpoints/*.tmp")]
        return "step" if not written else \
            "step that writes a checkpoint" if self.job.out in written[0] else "snapshot"

    def fault(self, kinds):
        if not self.deck:
            self.deck = self.draw.sample(kinds, len(kinds))
        kind, found = self.deck.pop(), []
        self.wait(lambda: found.extend(self.victims(kind)) or found, f"processes for {kind}")
        self.hit[self.under_way()] += 1
        self.reached = self.records.newest if kind != "pause" else self.reached
        self.marks.append((time.time(), "fault", kind))
        for pid in found:
            try:
                os.kill(pid, signal.SIGSTOP if kind in ("pause", "freeze") else signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.faults[kind] += 1
        if kind == "launcher":
            self.job.launcher.wait()
            self.job.start()
        elif kind == "pause":
            self.rest(self.draw.uniform(0.3, 1.5))
            os.kill(found[0], signal.SIGCONT)

    def minutes(self, minutes):
        begin = time.time()
        for minute in range(minutes):
            self.rest(begin + 60 * minute + self.draw.uniform(2, 55) - time.time())
            self.fault(SOAK)
            self.new_step()
            print(f"minute {minute + 1}: step {self.records.newest}; {dict(self.faults)}",
                  flush=True)
        self.rest(begin + 60 * minutes - time.time())

    def kills(self, count, kinds):
        begin = time.time()
        for number in range(count):
            waits = self.draw.random() < 0.75
            if waits:
                self.new_step()
            self.rest(self.draw.uniform(0, 0.2 if waits else 0.9))
            self.fault(kinds)
            if (number + 1) % 50 == 0:
                print(f"kill {number + 1}: step {self.records.newest}, "
                      f"{(time.time() - begin) / (number + 1):.2f} s each", flush=True)


def twin_make(folder, twin):
    """The environment of a job that is disturbed otherwise than it should get over."""
    if twin not in TWINS or not TWINS[twin]:
        return {}
    os.mkdir(os.path.join(folder, "bin"))
    script, real = os.path.join(folder, "bin", "mpirun"), shutil.which("mpirun")
    with open(script, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\ncase "$*" in *--version*) exec {real} --version ;; esac\n'
                   f'if [ -e begun ]; then\n{TWINS[twin]}\nfi\ntouch begun\nexec {real} "$@"\n')
    os.chmod(script, 0o755)
    return {"PATH": f"{folder}/bin:{os.environ['PATH']}"}


def other_corpus(folder):
    """The corpus one token later."""
    os.mkdir(os.path.join(folder, "other"))
    for name in ("corpus_train.bin", "corpus_train.idx", "corpus.tokenizer"):
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read()
        with open(os.path.join(folder, "other", name), "wb") as file:
            file.write(data[2:] + data[-2:] if name.endswith(".bin") else data)


def undisturbed(job, keys, last):
    """The steps of two ranks, threads of one process."""
    out = os.path.join(job.folder, "undisturbed")
    subprocess.run([LOCKSTEP, "train", *keys, "parallel.dp=2", f"train.out={out}",
                    f"train.steps={last}"],
                   cwd=job.folder, env=job.environment, check=True, stdout=subprocess.DEVNULL)
    return [r for r in job.records("metrics.jsonl", out) if "loss_bits" in r]


def spent(marks):
    """Seconds of each phase, fault by fault: [(kind, {phase: seconds})]. A fault that comes before
    the one before is got over begins anew."""
    faults, phase, since, furthest = [], None, 0, 0
    for at, what, of in sorted(marks, key=lambda mark: mark[0]):
        first = at - of["step_s"] if what == "step" else at
        if phase:
            took = faults[-1][1]
            took[phase] = took.get(phase, 0) + max(first - since, 0)
            if what == "step" and of["step"] <= furthest:
                took["again"] = took.get("again", 0) + of["step_s"]
        if what == "fault":
            faults.append((of, {}))
        if what == "step":
            furthest, over = max(furthest, of["step"]), of["step"] > furthest
            phase = None if over else phase and "again"
        elif phase or what == "fault":
            phase = what
        since = at
    return faults


def self_test():
    """A rank that dies in step 8, with 7 saved; a launcher that dies before the job is back; and a
    pause, during which the job goes on: steps of one second."""
    def steps(*of):
        return [(at, "step", {"step": step, "step_s": 1.0}) for at, step in of]

    marks = [*steps((1, 7), (2, 8)), (2.5, "fault", "rank"), (3.5, "failed", None),
             (3.75, "start", None), (5.75, "begun", None), *steps((7, 8), (8, 9)),
             (8.5, "fault", "two"), (9, "failed", None), (9.5, "start", None),
             (10, "fault", "launcher"), (12, "start", None), (13, "begun", None),
             *steps((14, 10)), (14.5, "fault", "pause"), *steps((15, 11), (16, 12))]
    assert spent(marks[::-1]) == [
        ("rank", {"fault": 1.0, "failed": 0.25, "start": 2.0, "begun": 0.25, "again": 1.0}),
        ("two", {"fault": 0.5, "failed": 0.5, "start": 0.5}),
        ("launcher", {"fault": 2.0, "start": 1.0, "begun": 0}), ("pause", {"fault": 0})], spent(marks)


def spent_print(faults, wall):
    """Where the time of faults went, and what one of each kind took."""
    for phase, what in PHASES.items():
        took = sorted(of.get(phase, 0) for _, of in faults) or [0]
        print(f"    {sum(took):8.1f} s {100 * sum(took) / wall:5.1f} %  median "
              f"{statistics.median(took):5.2f}  most {took[-1]:6.2f}  {what}")
    for kind in sorted({kind for kind, _ in faults}):
        took = [sum(of.values()) for k, of in faults if k == kind]
        print(f"    {kind}: {len(took)} took {statistics.mean(took):.2f} s each")


def report(soak, records, events, begin):
    """Prints what there was; returns the goodput and a line of it all."""
    steps = [r for r in records if "loss_bits" in r]
    median = statistics.median(r["step_s"] for r in steps)
    wall = steps[-1]["time"] - steps[0]["time"] + steps[0]["step_s"]
    goodput = sum(min(r["step_s"], 2 * median) for r in steps) / wall
    failed = collections.Counter(e["kind"] for e in events if e["event"] == "failed")
    again = [e for e in events if e["event"] == "going_on"]
    took = sorted(e["seconds"] for e in again) or [0]
    print(f"{steps[-1]['step']} steps of {median:.3f} s in {wall:.0f} s, "
          f"{time.time() - begin:.0f} s with the first start and the end")
    print(f"faults {dict(soak.faults)}, in a {dict(soak.hit)}; failures seen {dict(failed)}")
    print(f"from the failure to the first new step: median {statistics.median(took):.2f} s, most "
          f"{took[-1]:.2f} s; {sum(e['again'] for e in again)} steps computed again")
    faults = spent([*soak.marks, *((*mark, of) for mark, of in soak.records.marks.items()),
                    *((e["time"], e["event"], None) for e in events
                      if e["event"] in ("failed", "start"))])
    lost = sum(sum(of.values()) for _, of in faults)
    slow = sum(max(r["step_s"] - 2 * median, 0) for r in steps)
    snapshots = sum(r.get("snapshot_s", 0) for r in steps)
    rest = wall * (1 - goodput) - lost - slow - snapshots
    print(f"of {wall * (1 - goodput):.1f} s that do not count: faults {lost:.1f} s, slow steps above "
          f"twice the median {slow:.1f} s, snapshots {snapshots:.1f} s, records and saves "
          f"{rest:.1f} s; a fault took {lost / max(len(faults), 1):.2f} s:")
    spent_print(faults, wall)
    return goodput, (f"{steps[-1]['step']} steps, {sum(soak.faults.values())} faults, goodput "
                     f"{100 * goodput:.1f} %")


def verdicts(soak, steps, expected, left, goodput):
    same = [r["loss_bits"] for r in steps] == [r["loss_bits"] for r in expected]
    ends = steps[-1].get("hash"), expected[-1].get("hash")
    yield f"same state: {ends[0]}, undisturbed {ends[1]}", same and ends[0] and ends[0] == ends[1]
    yield (f"same records of {len(soak.records.seen)} steps: " + "; ".join(soak.records.other[:3]),
           not soak.records.other)
    yield f"nothing left: {left or ''}", not left
    if goodput is not None:
        yield (f"goodput of {100 * goodput:.1f} %: at least {100 * GOODPUT:.0f} %",
               goodput >= GOODPUT)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"))
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--twin", choices=sorted(TWINS))
    parser.add_argument("keys", nargs="*")
    given = parser.parse_args()
    self_test()
    if given.self_test:
        parser.format_help()
        return
    keys = [*KEYS, *(KILLS_KEYS if given.kills else SOAK_KEYS), *given.keys]
    begin = time.time()
    with tempfile.TemporaryDirectory() as folder:
        hosts = Hosts() if given.kills else None
        kinds = [*KILLS, "host"] if hosts else KILLS
        job = Job(folder, [*keys, *LAYOUT], twin_make(folder, given.twin), hosts)
        other_corpus(folder)
        soak = Soak(job, random.Random(given.seed))
        job.start()
        try:
            soak.new_step()
            soak.kills(given.kills, kinds) if given.kills else soak.minutes(given.minutes)
            soak.new_step()
        finally:
            code = job.stop()
            if given.kills:
                hosts.close()
            if given.twin == "orphan":
                subprocess.Popen(["sh", "-c", "sleep 60; true", job.word])
            left = [words for words, _ in job.processes().values()]
        soak.records.look()
        if code != 21:
            sys.exit(f"soak: the launcher ended with {code}, not 21:\n{job.said()}")
        records = job.records("metrics.jsonl")
        steps = [r for r in records if "loss_bits" in r]
        goodput, line = report(soak, records, job.records("events.jsonl"), begin)
        expected = undisturbed(job, keys, steps[-1]["step"])
        failed = 0
        for text, met in verdicts(soak, steps, expected, left, None if given.kills else goodput):
            print("ok    " if met else "FAILED", text)
            failed += not met
    print(f"soak: {line}: " + (f"{failed} FAILED" if failed else "all verdicts are met"))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
