"""The three figures in README.md, made from the same numbers as RESULTS.md, for run.py."""

import pages

# What README shows, in this order: (part, how the titles begin).
SHOWN = (("fsdp2", ""), ("bf16", "bf16, one rank"), ("fast", "what order costs"))


def row(part, begin, store):
    """Speed, and memory if it was measured, beside one peer."""
    figures = [f for f in store.get(part, {}).get("figures", ())
               if f["title"].startswith(begin) and f["ratio"] is not None]
    small = next((f"{f['ratio']:.2f}" for f in figures if "peak memory" in f["title"]), "")
    return [f"| {f['title']} | {f['ratio']:.2f} | {small} |" for f in figures[:1]]


def table(store):
    settings = [store[part]["setting"] for part, _ in SHOWN if part in store]
    machines = "; ".join(sorted({s["machine"] for s in settings}))
    dates = sorted({s["date"] for s in settings})
    lines = ["| GPT-2 124M, one training step | speed, ratio | peak memory, ratio |", "|---|---|---|"]
    for part, begin in SHOWN:
        lines += row(part, begin, store)
    return lines + [
        "", f"{machines}; {' to '.join(dict.fromkeys((dates[0], dates[-1])))}.", "",
        "Programs alternate, and ratios are medians. A peer is the fastest of several ways to run",
        "PyTorch. [All figures](bench/RESULTS.md) stand with their goals, commits and commands, and",
        "missed goals are marked *short*; `make bench-peers` measures again ([how](bench/README.md))."]


def write(path, store):
    pages.part_put(path, "figures", table(store))
