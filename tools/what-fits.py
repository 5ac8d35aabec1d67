#!/usr/bin/env python3
"""The largest model whose plan keeps within so much device memory, with each way to need less of it.

    tools/what-fits.py [--device GIB] [--check FILE | --write FILE] [KEY=VALUE]...

For shapes of GPT-2 from 124M to 175B, asks `lockstep plan memory --json` (LOCKSTEP in the
environment, or build/lockstep) what one rank takes with one setting after the other, and prints a
table in Markdown. --device: 24 GiB unless given. Further keys come behind those of the table.
Nothing is trained, and nothing of it is allocated.

--write puts the table between the lines "<!-- what-fits: begin -->" and "<!-- what-fits: end -->"
of FILE; --check exits with 1 where what stands there is another one.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- what-fits: begin -->\n", "<!-- what-fits: end -->"
GIB = 2**30

# Name, layers, channels, heads: GPT-2 (Radford et al. 2019), GPT-3 (Brown et al. 2020, table 2.1);
# 30B and 66B are OPT's (Zhang et al. 2022, table 1).
SHAPES = [
    ("124M", 12, 768, 12),
    ("350M", 24, 1024, 16),
    ("774M", 36, 1280, 20),
    ("1558M", 48, 1600, 25),
    ("2.7B", 32, 2560, 32),
    ("6.7B", 32, 4096, 32),
    ("13B", 40, 5120, 40),
    ("30B", 48, 7168, 56),
    ("66B", 64, 9216, 72),
    ("175B", 96, 12288, 96),
]
RECIPE = ("model.arch=gpt2 model.vocab=50257 model.context=1024 data.sequence=1024 "
          "numerics.precision=bf16 numerics.leaf_sequences=1 batch.global=16 batch.micro=1").split()
RECOMPUTE = "memory.recompute=full"
OFFLOAD = [f"memory.offload.{what}=host"
           for what in ("optimizer", "gradients", "activations", "parameters")]
# How a row is named, and its keys.
SETTINGS = [
    ("nothing", []),
    (f"`{RECOMPUTE}`", [RECOMPUTE]),
    (f"and `{OFFLOAD[0]}`", [RECOMPUTE, *OFFLOAD[:1]]),
    (f"and `{OFFLOAD[1]}`", [RECOMPUTE, *OFFLOAD[:2]]),
    (f"and `{OFFLOAD[2]}`", [RECOMPUTE, *OFFLOAD[:3]]),
    (f"and `{OFFLOAD[3]}`", [RECOMPUTE, *OFFLOAD]),
    (f"these four without `{RECOMPUTE}`", OFFLOAD),
]


def plan(program, shape, keys):
    """(device bytes, bytes in the host and file tiers) of the one rank."""
    _, layers, channels, heads = shape
    model = [f"model.layers={layers}", f"model.channels={channels}", f"model.heads={heads}"]
    run = subprocess.run([program, "plan", "memory", "--json", *RECIPE, *model, *keys],
                         capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"what-fits.py: {run.stderr.strip()}")
    rank = json.loads(run.stdout)["kinds"][0]
    return rank["allocated"]["all"], rank["host"] + rank["file"]


def row(program, name, keys, device):
    """The largest shape that fits, and what the next one would take."""
    best, beyond = None, None
    for shape in SHAPES:
        bytes_ = plan(program, shape, keys)
        if bytes_[0] > device:
            beyond = (shape[0], bytes_)
            break
        best = (shape[0], bytes_)
    cells = [name]
    cells += [best[0], *(f"{part / GIB:.1f} GiB" for part in best[1])] if best else ["none", "", ""]
    cells += [f"{beyond[0]}: {beyond[1][0] / GIB:.1f} GiB" if beyond else ""]
    return "| " + " | ".join(cells) + " |"


def table(program, device_gib, further):
    lines = [f"| with | largest in {device_gib:g} GiB | device | tier | the next one's device |",
             "|---|---|---|---|---|"]
    lines += [row(program, name, keys + further, device_gib * GIB) for name, keys in SETTINGS]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=float, default=24, metavar="GIB")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--check", metavar="FILE")
    where.add_argument("--write", metavar="FILE")
    parser.add_argument("keys", nargs="*", metavar="KEY=VALUE")
    args = parser.parse_args()
    program = os.environ.get("LOCKSTEP", str(ROOT / "build/lockstep"))
    made = table(program, args.device, args.keys)
    name = args.check or args.write
    if not name:
        print(made, end="")
        return 0
    text = pathlib.Path(name).read_text(encoding="utf-8")
    found = re.search(re.escape(BEGIN) + "(.*?)" + re.escape(END), text, re.DOTALL)
    if not found:
        sys.exit(f"what-fits.py: {name} has no place for the table ({BEGIN.strip()})")
    if args.write:
        text = text[:found.start(1)] + made + text[found.end(1):]
        pathlib.Path(name).write_text(text, encoding="utf-8")
    elif found.group(1) != made:
        print(f"{name}: the table is not that of the plan; --write puts this there:\n{made}",
              end="")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
