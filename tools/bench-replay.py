#!/usr/bin/env python3
"""What computing steps twice costs (check.replay): bench-replay.py [--write] [STEPS] [KEY=VALUE...]

Trains GPT-2 124M on 2 rank threads (ZeRO 1, 4 sequences of 1024 tokens a step), STEPS steps (4), each
of which other ranks compute again: about two minutes on two idle cores. Tells on stderr what each
step took. Prints over the steps behind the first the medians of a step's seconds and of its
replay's, and of their quotients: what `check.replay=1` adds to the time. With P it is P times as
much. Uses build/lockstep. Keys are set beside those of the run, such as
`model.preset=gpt2-tiny model.vocab=257 data.sequence=64` for a try. --write puts the table into
bench/RESULTS.md.
"""

import datetime
import statistics
import sys

import bench_steps
import pages


def progress_tell(record):
    """On stderr: what a step took, or its replay."""
    for key in ("step_s", "replay_s"):
        if key in record:
            print(f"step {record['step']}: {key} {record[key]:.2f}", file=sys.stderr, flush=True)


def measured(count, keys):
    """(step_s, replay_s) of each of `count` steps behind the first."""
    with bench_steps.corpus_folder() as folder:
        records, _ = bench_steps.records_of(
            folder, [f"train.steps={count}", "check.replay=1", *keys], told=progress_tell)
    steps = {r["step"]: r["step_s"] for r in records if "loss_bits" in r}
    return [(steps[r["step"]], r["replay_s"]) for r in records
            if r.get("event") == "replay" and r["step"] > 1]


def table(pairs):
    step_s, replay_s = (statistics.median(values) for values in zip(*pairs))
    ratio = statistics.median(replay / step for step, replay in pairs)
    return ["| a step | its replay | replay / step | of the time, with `check.replay=0.01` |",
            "|---|---|---|---|",
            f"| {step_s:.2f} s | {replay_s:.2f} s | {ratio:.2f} | {ratio / 100:.1%} |"]


def main():
    words = [word for word in sys.argv[1:] if word != "--write"]
    write = len(words) + 1 < len(sys.argv)
    count = int(words.pop(0)) if words and words[0].isdigit() else 4
    if count < 2:
        sys.exit("STEPS: expected 2 or more, because the first is left out")
    if write and words:
        sys.exit("--write: leave keys out")
    commit = pages.commit_of(write)
    lines = table(measured(count, words))
    print("\n".join(lines))
    if write:
        pages.part_put(pages.RESULTS, "bench-replay", [
            "## Steps computed twice", "",
            f"`tools/bench-replay.py --write`: {datetime.date.today().isoformat()}, commit {commit}. GPT-2 "
            "124M, two rank threads, ZeRO 1; medians over "
            f"{count - 1} steps.", "", *lines])


if __name__ == "__main__":
    main()
