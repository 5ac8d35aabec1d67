#!/usr/bin/env python3
"""What the Python package costs: importing it, and a step driven from Python beside the program's.

    bench/python.py [--lockstep PATH] [--rounds 9] [--steps 200] [--slice 0.5] [--late 0] [--json FILE]

Three processes train the same run at the same time: the program, the program again, and Python. Only
one of them goes on, the others are stopped (SIGSTOP); after --slice seconds the next has its turn. So
all meet the same noise of the machine. Counted are the steps that lie whole in a slice, but its
first: from the time in one line of metrics.jsonl to that in the next, so that all that lies between
two steps counts. A turn gives a ratio of medians, a round the median over its turns. A process is
faster or slower for its whole life by where its memory lies, so each round has new ones. The table
has the median of the rounds, and in brackets the interval in which it lies with 95 %, by the order
of the rounds alone. The second program shows what the measurement can tell. Losses and the hashes at
the end must be equal.

What Python adds is in the table in three ways more: what lies between the end of a step and the
beginning of the next; the processor time of the thread that drives, while ranks have threads of
their own, which other programs disturb less; and, with valgrind, the instructions of a step, which
nothing disturbs: the difference of runs of 4 and of 24 steps of a small model. With --late Python
also sleeps so many milliseconds in each step, as a test of the measurement: the table must show them.
Importing is timed beside a Python that imports nothing.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECIPE = {"model": {"arch": "gpt2", "layers": 4, "channels": 128, "heads": 4, "context": 128},
          "data": {"sequence": 128}, "batch": {"global": 8}, "numerics": {"arithmetic": "fma"},
          "eval": {"every": 0}, "sample": {"every": 0}, "log": {"progress": "off"}}
COUNTED = {**RECIPE, "model": {**RECIPE["model"], "layers": 2, "channels": 64, "context": 32},
           "data": {"sequence": 32}, "batch": {"global": 2}, "parallel": {"threads": 1},
           "numerics": {"arithmetic": "fma", "isa": "avx2"}}  # valgrind knows no AVX-512
DRIVEN = """
import sys
import time
import lockstep
with lockstep.Run(sys.argv[1]) as run:
    for m in run:
        time.sleep({late_s})
"""


def environment():
    return dict(os.environ, PYTHONPATH=str(ROOT / "python"), OMP_WAIT_POLICY="passive",
                LOCKSTEP_LIBRARY=str(ROOT / "build" / "liblockstep.so.0"),
                LOCKSTEP_PEAK_FLOPS="1e12")


def timed(script):
    begin_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", script], check=True, env=environment())
    return time.perf_counter() - begin_s


def import_s(rounds):
    """Medians of seconds: the package, and with it the library and what a run needs."""
    pairs = [(timed("pass"), timed("import lockstep"), timed("import lockstep; lockstep.Run; "
                                                              "lockstep.__version__"))
             for _ in range(rounds)]
    nothing, package, library = (statistics.median(values) for values in zip(*pairs))
    return package - nothing, library - nothing


def corpus(folder, program):
    text = " ".join(f"{i} and {i + 1} are {2 * i + 1}." for i in range(20000))
    (folder / "text.txt").write_text(text, encoding="utf-8")
    subprocess.run([program, "data", "prepare", "--input", str(folder / "text.txt"), "--output",
                    str(folder / "text"), "--tokenizer", "byte"], check=True, capture_output=True)
    return str(folder / "text_train")


class Way:
    """One of those that train: its process, and the slices of time in which it went on."""

    def __init__(self, folder, name, command, recipe):
        self.out, self.slices = folder / name, []
        (folder / f"{name}.yaml").write_text(
            json.dumps({**recipe, "train": {**recipe["train"], "out": str(self.out)}}),
            encoding="utf-8")
        self.command = [*command, str(folder / f"{name}.yaml")]

    def start(self):
        self.process = subprocess.Popen(self.command, env=environment(), stdout=subprocess.DEVNULL)
        while not (self.out / "metrics.jsonl").exists() or not self.records():
            if self.process.poll() is not None:
                sys.exit(f"{self.command} ended with {self.process.returncode}")
            time.sleep(0.01)
        self.process.send_signal(signal.SIGSTOP)
        self.begun = self.until = self.spent()

    def spent(self):
        """Processor time of its first thread so far, and steps."""
        pid = self.process.pid
        told = pathlib.Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii")
        return 1e-9 * int(told.split()[0]), len(self.records())

    def go_on(self, seconds):
        """False: it has ended."""
        begin = time.time()
        self.process.send_signal(signal.SIGCONT)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGSTOP)
        self.slices.append((begin, time.time()))
        if self.process.poll() is not None:
            return False
        self.until = self.spent()
        return True

    def finish(self):
        thread_s, steps = (now - then for now, then in zip(self.until, self.begun))
        self.thread_s = thread_s / max(steps, 1)
        self.process.send_signal(signal.SIGCONT)
        if self.process.wait() != 0:
            sys.exit(f"{self.command} ended with {self.process.returncode}")

    def records(self):
        text = (self.out / "metrics.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines(True) if line.endswith("\n")]
        return [line for line in lines if "loss" in line]

    def times(self):
        """Of each slice: [(seconds of a step, of them between two steps)], without the first."""
        steps = self.records()
        whole = [(a["time"], b["time"], b["time"] - a["time"] - b["step_s"])
                 for a, b in zip(steps, steps[1:])]
        return [[(to - at, between) for at, to, between in whole if begin <= at and to <= end][1:]
                for begin, end in self.slices]

    def results(self):
        """What both must have alike."""
        manifest = json.loads(max((self.out / "checkpoints").glob("step-*/manifest.json")).read_text(
            encoding="utf-8"))
        return [record["loss"] for record in self.records()], manifest["hash"]


def in_turns(ways, slice_s):
    """Until one of them has made its steps."""
    for way in ways:
        way.start()
    number, going = 0, True
    while going:
        order = ways[number % len(ways):] + ways[:number % len(ways)]
        going = all([way.go_on(slice_s) for way in order])
        number += 1
    for way in ways:
        way.finish()
    if any(way.results() != ways[0].results() for way in ways):
        sys.exit("the ways have different losses or hashes")


def compared(ways):
    """Of a round and each way: medians of a step and of what lies between two, processor time of
    the first thread in a step; and the ratio to the first way's steps."""
    turns = [turn for turn in zip(*(way.times() for way in ways)) if all(turn)]
    if not turns:
        sys.exit("no slice holds two steps: a larger --slice, or more --steps")
    out = []
    for i, way in enumerate(ways):
        middle = [[statistics.median(step for step, _ in turn[j]) for turn in turns] for j in (0, i)]
        every = [step for turn in turns for step in turn[i]]
        out.append({"step_s": statistics.median(step for step, _ in every),
                    "between_s": statistics.median(between for _, between in every),
                    "thread_s": way.thread_s,
                    "ratio": statistics.median(b / a for a, b in zip(*middle))})
    return out


def interval(values):
    """In which the median lies with 95 %, whatever the distribution: a binomial's deviations."""
    apart, last = 0.98 * len(values) ** 0.5, len(values) - 1
    low, high = int(len(values) / 2 - apart), int(len(values) / 2 + apart)
    return sorted(values)[max(low, 0)], sorted(values)[min(high, last)]


def row(title, values):
    low, high = interval(values)
    print(f"| {title} | {statistics.median(values):.4f} times ({low:.4f} to {high:.4f}) |")


def print_compared(rounds):
    """rounds: of each what compared() gave."""
    names = ("program", "the program again", "Python")
    all_of = {what: [[one[i][what] for one in rounds] for i in range(3)] for what in rounds[0][0]}
    first, _, driven = (1e3 * statistics.median(values) for values in all_of["step_s"])
    print(f"| a step of the program, and from Python | {first:.2f} and {driven:.2f} ms |")
    for i in (1, 2):
        row(f"{names[i]}: a step", all_of["ratio"][i])
    gap, _, gap_driven = (1e3 * statistics.median(values) for values in all_of["between_s"])
    print(f"| between two steps, program and Python | {gap:.3f} and {gap_driven:.3f} ms: "
          f"{100 * (gap_driven - gap) / first:+.2f} % of a step |")
    thread = 1e3 * statistics.median(all_of["thread_s"][2])
    print(f"| processor time of the thread that drives | {thread:.3f} ms: {100 * thread / driven:.2f} % "
          "of a step |", flush=True)


def instructions(folder, command, name, data):
    """Of a step, as callgrind counts them."""
    counts = []
    for steps in (4, 24):
        recipe = {**COUNTED, "data": {**COUNTED["data"], "train": data}, "train": {"steps": steps}}
        way = Way(folder, f"{name}-{steps}", command, recipe)
        done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                               *way.command], env=environment(), capture_output=True, text=True,
                              check=True)
        counts.append(int(re.search(r"Collected : (\d+)", done.stderr).group(1)))
    return (counts[1] - counts[0]) / 20


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--lockstep", default=str(ROOT / "build" / "lockstep"))
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--slice", type=float, default=0.5)
    options.add_argument("--late", type=float, default=0, help="milliseconds")
    options.add_argument("--json")
    asked = options.parse_args()
    commands = {"program": [asked.lockstep, "train"], "Python": [sys.executable, "-c", DRIVEN.format(late_s=asked.late / 1e3)]}
    package, library = import_s(asked.rounds)
    found = {"import_s": package, "library_s": library}
    print("| what | figure |\n|---|---|")
    print(f"| `import lockstep` | {1e3 * package:.0f} ms |")
    print(f"| with the library loaded | {1e3 * library:.0f} ms |", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data = corpus(folder, asked.lockstep)
        recipe = {**RECIPE, "data": {**RECIPE["data"], "train": data}, "train": {"steps": asked.steps}}
        found["rounds"] = []
        for number in range(asked.rounds):
            ways = [Way(folder, f"{number}-{i}", commands[who], recipe)
                    for i, who in enumerate(("program", "program", "Python"))]
            in_turns(ways, asked.slice)
            found["rounds"].append(compared(ways))
            print(f"round {number}:", *(f"{1e3 * one['step_s']:.2f} ms" for one in found["rounds"][-1]),
                  file=sys.stderr, flush=True)
        print_compared(found["rounds"])
        if shutil.which("valgrind"):
            found["instructions"] = {who: instructions(folder, commands[who], f"{who}-counted", data)
                                     for who in commands}
            program, python = (found["instructions"][who] for who in commands)
            print(f"| instructions of a small step | {program / 1e6:.2f} and {python / 1e6:.2f} "
                  f"million: {(python - program) / 1e6:.2f} more |")
    if asked.json:
        pathlib.Path(asked.json).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
