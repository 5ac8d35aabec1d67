#!/usr/bin/env python3
"""Draws README's first picture from README's own commands: the layouts of "One recipe, any layout,
one hash" and the hash that each of them prints.

    tools/picture-one-hash.py          writes doc/one-hash.svg
    tools/picture-one-hash.py --check  fails if doc/one-hash.svg is not what it would write
"""

import html
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PICTURE = ROOT / "doc/one-hash.svg"
SECTION = "### One recipe, any layout, one hash"
STAGES = ["#3b6fb6", "#d98032", "#4f9d69"]  # of a pipeline, in order
NAMES = {"pp": "pipeline stages", "dp": "data parallel", "dp_shard": "shards", "tp": "tensor parallel"}
WIDTH, PANEL, TOP, CELL = 960, 240, 66, 26


def layouts(text):
    """[({key: value}, whether over MPI, hash)] of the section's commands."""
    section = text.split(SECTION, 1)[1].split("\n### ", 1)[0]
    found = re.findall(r"\$ ((?:.+\\\n)*.+)\n    hash ([0-9a-f]{32})", section)
    return [(dict(re.findall(r"parallel\.(\w+)=(\w+)", command)), "mpirun" in command, digest)
            for command, digest in found]


def size(keys, name):
    return int(keys.get(name, 1))


def caption(keys, mpi):
    """Two lines: how many ranks, and how they divide the work."""
    ranks = 1
    for name in NAMES:
        ranks *= size(keys, name)
    kind = "MPI processes" if mpi else "threads" if ranks > 1 else "thread"
    parts = [f"{keys[name]} {words}" for name, words in NAMES.items() if name in keys]
    if "zero" in keys:
        parts.append(f"ZeRO {keys['zero']}")
    if "schedule" in keys:
        parts.append(keys["schedule"])
    return f"{ranks} rank{'s' * (ranks > 1)} ({kind})", parts or ["nothing is cut"]


def ranks(keys, left):
    """The ranks as squares: a column for each rank of a stage, a row for each copy or shard, one
    colour for each stage."""
    stages, across = size(keys, "pp"), size(keys, "tp")
    down = size(keys, "dp") * size(keys, "dp_shard")
    wide = stages * across * (CELL + 4) + (stages - 1) * 8
    x0, y0 = left + (PANEL - wide) / 2, TOP + 28 - down * (CELL + 4) / 2
    for stage in range(stages):
        for column in range(across):
            for row in range(down):
                x = x0 + (stage * across + column) * (CELL + 4) + stage * 8
                yield (f'<rect x="{x:g}" y="{y0 + row * (CELL + 4):g}" width="{CELL}" '
                       f'height="{CELL}" rx="3" fill="{STAGES[stage]}"/>')


def text(x, y, words, more=""):
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle"{more}>{html.escape(words)}</text>'


def picture(found):
    digest = found[0][2]
    if len(found) != WIDTH // PANEL or any(other != digest for _, _, other in found):
        sys.exit(f"{sys.argv[0]}: README.md: {SECTION}: expected four commands with one hash")
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 268" role="img" '
             f'aria-label="One recipe trained in four layouts gives one hash" '
             'font-family="sans-serif" font-size="13" fill="#222">',
             f'<rect width="{WIDTH}" height="268" rx="8" fill="#fff"/>',
             text(WIDTH / 2, 28, "one recipe, four layouts, ten steps", ' font-size="16"')]
    for index, (keys, mpi, _) in enumerate(found):
        left, middle = index * PANEL, index * PANEL + PANEL / 2
        head, parts = caption(keys, mpi)
        lines += ranks(keys, left)
        lines.append(text(middle, 164, head, ' font-weight="bold"'))
        lines.append(text(middle, 182, ", ".join(parts[:2]), ' font-size="12"'))
        if parts[2:]:
            lines.append(text(middle, 198, ", ".join(parts[2:]), ' font-size="12"'))
        lines.append(f'<path d="M{middle:g} 206 L{WIDTH / 2 + (index - 1.5) * 60:g} 226" '
                     'stroke="#888" fill="none"/>')
    lines.append(f'<rect x="{WIDTH / 2 - 190}" y="227" width="380" height="30" rx="6" '
                 'fill="#eef2f7" stroke="#888"/>')
    lines.append(text(WIDTH / 2, 247, f"hash {digest}", ' font-family="monospace" font-size="14"'))
    return "\n".join(lines + ["</svg>"]) + "\n"


def main():
    drawn = picture(layouts((ROOT / "README.md").read_text()))
    if sys.argv[1:] == ["--check"]:
        if not PICTURE.exists() or PICTURE.read_text() != drawn:
            sys.exit("doc/one-hash.svg is not of README.md's commands: run tools/picture-one-hash.py")
    else:
        PICTURE.write_text(drawn)


main()
