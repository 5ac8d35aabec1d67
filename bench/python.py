#!/usr/bin/env python3
"""What the Python package costs: importing it, and a step driven from Python beside the program's.

    bench/python.py [--lockstep PATH] [--rounds 7] [--steps 60] [--json FILE]

Both ways train the same run, one after the other, --rounds times; each begins with another order. A
step's time is the median of the differences of the times in metrics.jsonl, so that all that lies
between two steps counts. The table has medians over the rounds; the hashes of both must be equal.
On a busy machine steps differ by more than the two ways: so the table also has what lies between the
end of a step and the beginning of the next, by the same records, and what Python adds to it.
Importing is timed beside a Python that imports nothing.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECIPE = {"model": {"arch": "gpt2", "layers": 4, "channels": 128, "heads": 4, "context": 128},
          "data": {"sequence": 128}, "batch": {"global": 8}, "numerics": {"arithmetic": "fma"},
          "eval": {"every": 0}, "sample": {"every": 0}, "log": {"progress": "off"}}
DRIVEN = """
import sys
import lockstep
with lockstep.Run(sys.argv[1]) as run:
    for m in run:
        pass
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


def run_once(folder, name, command, steps, data):
    """(seconds of a step, of them between two steps, hash at the end)"""
    keys = {**RECIPE, "data": {**RECIPE["data"], "train": data},
            "train": {"steps": steps, "out": str(folder / name)}}
    (folder / f"{name}.yaml").write_text(json.dumps(keys), encoding="utf-8")
    subprocess.run([*command, str(folder / f"{name}.yaml")], check=True, env=environment(),
                   stdout=subprocess.DEVNULL)
    with open(folder / name / "metrics.jsonl", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    steps_made = [record for record in records if "loss" in record]
    at = [record["time"] for record in steps_made]
    whole = [b - a for a, b in zip(at[1:], at[2:])]
    between = [s - record["step_s"] for s, record in zip(whole, steps_made[2:])]
    (saved,) = (folder / name / "checkpoints").glob(f"step-{steps:08d}")
    manifest = json.loads((saved / "manifest.json").read_text(encoding="utf-8"))
    return statistics.median(whole), statistics.median(between), manifest["hash"]


def step_s(program, rounds, steps):
    ways = {"program": [program, "train"], "Python": [sys.executable, "-c", DRIVEN]}
    found, between = {way: [] for way in ways}, {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data = corpus(folder, program)
        hashes = set()
        for i in range(rounds):
            for way in sorted(ways, reverse=i % 2 == 1):
                seconds, gap, digest = run_once(folder, f"{way}{i}", ways[way], steps, data)
                found[way].append(seconds)
                between[way].append(gap)
                hashes.add(digest)
                print(f"round {i}: {way}: {1e3 * seconds:.3f} ms a step", file=sys.stderr)
    if len(hashes) != 1:
        sys.exit(f"the two ways differ: {hashes}")
    return found, between


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--lockstep", default=str(ROOT / "build" / "lockstep"))
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--steps", type=int, default=60)
    options.add_argument("--json")
    asked = options.parse_args()
    package, library = import_s(asked.rounds)
    found, between = step_s(asked.lockstep, asked.rounds, asked.steps)
    program, python = (statistics.median(found[way]) for way in ("program", "Python"))
    ratio = statistics.median(p / q for p, q in zip(found["Python"], found["program"]))
    print("| what | figure |\n|---|---|")
    print(f"| `import lockstep` | {1e3 * package:.0f} ms |")
    print(f"| with the library loaded | {1e3 * library:.0f} ms |")
    print(f"| a step of the program | {1e3 * program:.2f} ms |")
    print(f"| the same step from Python | {1e3 * python:.2f} ms, {ratio:.3f} times the program's |")
    gaps = {way: statistics.median(values) for way, values in between.items()}
    share = (gaps["Python"] - gaps["program"]) / program
    print(f"| between two steps, program and Python | {1e3 * gaps['program']:.3f} and "
          f"{1e3 * gaps['Python']:.3f} ms: {100 * share:+.2f} % of a step |")
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump({"import_s": package, "library_s": library, "step_s": found, "between_s": between,
                       "ratio": ratio, "added_share": share},
                      file)


if __name__ == "__main__":
    main()
