#!/usr/bin/env python3
"""The order of a blend's samples, computed from its definition in doc/data.md alone, and compared
with what `lockstep data order` prints.

usage: blend_order.py ENTRIES < OUTPUT      ENTRIES: JSON, [[source, weight, epochs, samples,
                                            first], ...]: first is the sample from which on the
                                            weight holds; weights are texts
"""
import json
import sys
from fractions import Fraction
from math import ceil


def order(entries):
    """Yields (source, epoch, sample) of number 0, 1, ... of a run whose samples are not shuffled."""
    samples = {source: n for source, _, _, n, _ in entries}
    limits = {}
    for source, _, epochs, n, _ in entries:
        limits[source] = max(limits.get(source, 0), int(Fraction(epochs) * n))
    had = dict.fromkeys(samples, 0)  # in the order in which sources are named first
    shares, first, before = None, 0, {}
    number = 0
    while True:
        now = {}
        for source, weight, _, _, begin in sorted(entries, key=lambda e: e[4]):
            if begin <= number:
                now[source] = Fraction(weight)
        now = {s: w for s, w in now.items() if w and not 0 < limits[s] <= had[s]}
        if not now:
            return
        share = {s: w / sum(now.values()) for s, w in now.items()}
        if share != shares:  # a stage begins
            shares, first, before = share, number, dict(had)
        at = number - first
        due = []
        for place, source in enumerate(had):
            if source in share:
                mine = had[source] - before[source]
                if mine < (at + 1) * share[source]:  # its next sample may come
                    due.append((ceil((mine + 1) / share[source]), place, source))
        source = min(due)[2]
        yield source, had[source] // samples[source], had[source] % samples[source]
        had[source] += 1
        number += 1


def main():
    printed = [line.split() for line in sys.stdin if line[0].isdigit()]
    expected = order(json.loads(sys.argv[1]))
    for number, ((_, n, *place), wanted) in enumerate(zip(printed, expected)):
        if int(n) != number or place != [str(value) for value in wanted]:
            sys.exit(f"sample {number}: printed {' '.join(place)}, expected {wanted}")
    print(f"{len(printed)} samples agree")


if __name__ == "__main__":
    main()
