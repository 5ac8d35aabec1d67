#!/usr/bin/env python3
"""Forecasts every published run of bench/published.json, and prints it beside the source's figure.

    tools/bench-plan.py [--only WORDS] [--lockstep build/lockstep] [--check] [--write]

Each is forecast in the mode that adds as the published systems do (numerics.mode=fast), which is what
stands beside the source's figure. What order costs is forecast beside it, as Lockstep runs it: in both
modes, with its own overlap (a table's "overlap": 0 is of its source), with the leaves of the recipe's
default, or those of the row's "ordered" where the default does not admit its layout.

--only takes tables whose name has the words. --check runs the first and the last row of each table:
whether the recipes are admitted. --presets prints what order costs each preset of configs/ alone, and fails above ORDER_LIMIT or where
doc/determinism.md has another table.
--write puts the tables into bench/RESULTS.md and doc/determinism.md, between two marks, and the numbers
into bench/results.json. Nothing is fitted to these runs: what a row changes of a
cluster file is what its source says of the machine.
"""
import argparse
import datetime
import json
import re
import statistics
import subprocess
import sys

import pages
from pages import ROOT

LISTED = ROOT / "bench" / "published.json"
DETERMINISM = ROOT / "doc" / "determinism.md"
ORDER_LIMIT = 1.05  # of a preset at its published layout


# ---- what a row asks ----------------------------------------------------------------------------

def split(keys):
    """Blocks on stages as Megatron has them: alike, or with the embedding and the head as one."""
    layers = keys.get("model.layers", 126)
    stages = keys.get("parallel.pp", 1) * keys.get("parallel.chunks", 1)
    if stages == 1:
        return ""
    if layers % stages == 0:
        each, ends = layers // stages, [layers // stages + 1] * 2
    elif (layers + 2) % stages == 0:
        each = (layers + 2) // stages
        ends = [each, each]
    else:
        raise SystemExit(f"bench-plan.py: {layers} blocks do not lie on {stages} stages")
    sizes = [ends[0]] + [each] * (stages - 2) + [ends[1]]
    at, parts = 0, []
    for size in sizes:
        parts.append(f"{at}-{at + size - 1}" if size > 1 else str(at))
        at += size
    return ",".join(parts)


def unfused_share(figures, head_dim):
    """The share of peak that attention reaches without a fused kernel: a roofline of its passes.

    The whole T x T matrix of scores is computed (a causal kernel needs half of it) and lies in
    memory in 16 bits. Bytes an element: forward 13 (scores written 2, scaled, masked and made
    probabilities 4, dropped 4 and the mask 1, read for the values 2); backward 19 (probabilities
    for dV 2, dP written 2, dropout 4 and the mask 1, softmax 6, read for dQ and dK 4). Operations:
    4 d forward and 8 d backward in products; the flops that are counted are 4 d and 10 d of half
    of the elements.
    """
    memory = (13 + 19) / (figures["bandwidth"] * figures["pass_share"])
    products = 12 * head_dim / (figures["peak"] * figures["product_share"])
    return 14 * head_dim / (2 * (memory + products)) / figures["peak"]


UNITS = {"G": 1e9, "T": 1e12}


def accelerator(table):
    """What the table's cluster file has of its accelerator, or the table itself has in its place."""
    text = (ROOT / table["cluster"]).read_text()
    figures = {}
    for key, name in (("bandwidth", "bandwidth"), ("pass_share", "pass_share"), ("bf16", "peak"),
                      ("product_share", "product_share")):
        found = table.get("figures", {}).get(f"accelerator.{key}") \
            or re.search(rf"^ +{key}: ([^#\n]*)", text, re.MULTILINE)[1]
        number, *unit = str(found).split()
        figures[name] = float(number) * (UNITS[unit[0][0]] if unit else 1)
    return figures


BYTES_OF_STATE = 12  # of a parameter in a checkpoint: itself and two moments in fp32


def passes(table, row, f):
    """Adds to a forecast the passes over memory that the system makes and ours does not, so many
    bytes a parameter: with each micro-batch's gradients (a table's "accumulate": ours are added in
    the product that makes them), for which a pipeline's fill and drain wait too, and once a step over
    a rank's share ("update": an optimizer whose operations are kernels of their own)."""
    keys, figures = {**table["keys"], **row["keys"]}, accelerator(table)
    rate = figures["bandwidth"] * figures["pass_share"]
    pp, parameters = keys.get("parallel.pp", 1), f["checkpoint_bytes"] / BYTES_OF_STATE
    each_s = table.get("accumulate", 0) * parameters / (keys.get("parallel.tp", 1) * pp) / rate
    update_s = table.get("update", 0) * parameters / row["gpus"] / rate
    waits = (pp - 1) / keys.get("parallel.chunks", 1) * each_s
    spent_s = (f["micro_batches"] - table.get("first_is_kept", False)) * each_s + update_s
    bubble_s = f["bubble"] * f["step_s"] + waits
    step_s = f["step_s"] + spent_s + waits
    longer = f["step_s"] / step_s
    return {**f, "compute_s": f["compute_s"] + spent_s, "step_s": step_s, "mfu": f["mfu"] * longer,
            "tokens_per_s": f["tokens_per_s"] * longer, "bubble": bubble_s / step_s}


def command(table, row, mode, lockstep, own=False):
    keys = {**table["keys"], **row["keys"], "numerics.mode": mode}
    figures = {**table.get("figures", {}), **row.get("figures", {}),
               "hosts": max(-(-row["gpus"] // 8), 2)}
    if own:
        figures.pop("overlap", None)
    if table.get("attention") == "unfused":
        head_dim = keys["model.channels"] // keys["model.heads"]
        share = unfused_share(accelerator(table), head_dim)
        figures |= {"accelerator.attention_share": f"{share:.4f}",
                    "accelerator.attention_backward_share": 0, "accelerator.attention_edge": 0}
    stages = split(keys)
    if stages:
        keys["parallel.split"] = stages
    if mode == "fast":  # which has no leaves: any number of micro-batches is admitted
        keys["numerics.leaf_sequences"] = keys["batch.micro"]
    else:
        keys |= row.get("ordered", {})
    return [lockstep, "plan", "--layout", "--json", "--cluster", table["cluster"], "--what-if",
            ",".join(f"{k}={v}" for k, v in figures.items()),
            *(f"{k}={v}" for k, v in keys.items())]


def run(name, words):
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=600,
                          check=False)
    if done.returncode:
        raise SystemExit(f"bench-plan.py: {name}: {done.stderr.strip()}\n" + " ".join(words))
    return json.loads(done.stdout)


def forecast(table, row, mode, lockstep, own=False):
    return run(f"{table['name']}, {row['row']}", command(table, row, mode, lockstep, own))


SUMS = ("dp_shard", "dp_replicate")


def summed_last(table, row, lockstep):
    """The forecast of a system that sums gradients when all stages are done: a step of one replica,
    and behind it the sums of all of them. Ours, which nothing hides, stop each stage's last backward,
    and so every stage before it."""
    whole = forecast(table, row, "fast", lockstep)
    keys = row["keys"]
    dp = keys["parallel.dp"]
    alone = {"gpus": row["gpus"] // dp, "row": row["row"],
             "keys": {**keys, "parallel.dp": 1, "batch.global": keys["batch.global"] // dp}}
    f = forecast(table, alone, "fast", lockstep)
    for name in SUMS:
        f["exposed_s"][name] = whole["exposed_s"][name] if row.get("sums") != "hidden" else 0
    pace = whole["slowest"] / f["slowest"]  # of all accelerators, not of the replica's alone
    bubble_s = f["bubble"] * f["step_s"] * pace
    f["step_s"] += (pace - 1) * (f["compute_s"] + f["bubble"] * f["step_s"])
    f["compute_s"] *= pace
    f["step_s"] += sum(f["exposed_s"][name] for name in SUMS)
    return {**f, "bubble": bubble_s / f["step_s"], "fits": whole["fits"]}


# ---- figures as their sources count them --------------------------------------------------------

def megatron_flops(keys, factor):
    """Narayanan equation 3: 96 with full recomputation, 72 without."""
    batch, layers, width = (keys[k] for k in ("batch.global", "model.layers", "model.channels"))
    tokens = keys.get("data.sequence", keys["model.context"])
    head = keys["model.vocab"] / ((factor / 6) * layers * width)
    return factor * batch * tokens * layers * width**2 * (1 + tokens / (6 * width) + head)


REPORTS = {
    "tflops_with_recompute": ("TFLOP/s a GPU, recomputation counted (Narayanan, equation 3)",
                              "{:.0f}"),
    "tflops": ("TFLOP/s a GPU, of the model", "{:.0f}"),
    "step_s": ("seconds a step", "{:.2f}"),
    "mfu": ("MFU", "{:.1%}"),
    "tokens_per_s_gpu": ("tokens/s a GPU", "{:.0f}"),
    "samples_per_s_gpu": ("sequences/s a GPU", "{:.2f}"),
}


def predicted(table, row, f):
    keys, gpus = {**table["keys"], **row["keys"]}, row["gpus"]
    kind = table["reports"]
    if kind == "tflops_with_recompute":
        return megatron_flops(keys, 96) / f["step_s"] / gpus / 1e12
    if kind == "tflops":
        return megatron_flops(keys, 72) / f["step_s"] / gpus / 1e12
    if kind == "tokens_per_s_gpu":
        return f["tokens_per_s"] / gpus
    if kind == "samples_per_s_gpu":
        return keys["batch.global"] / f["step_s"] / gpus
    return f[kind]


def rows_of(table, lockstep, check):
    """`check` rows of a table, the first and the last, or all."""
    rows = [*table["rows"][:1], *table["rows"][1:][-1:]][:check] if check else table["rows"]
    for row in rows:
        last = table.get("sums") == "last" and row["keys"]["parallel.dp"] > 1
        f = summed_last(table, row, lockstep) if last else forecast(table, row, "fast", lockstep)
        f = passes(table, row, f)
        order = [forecast(table, row, mode, lockstep, own=True)["step_s"]
                 for mode in ("ordered", "fast")]
        value = predicted(table, row, f)
        spent = {name: f["exposed_s"][name] / f["step_s"] for name in f["exposed_s"]}
        yield {"row": row["row"], "published": row["published"], "predicted": value,
               "error": value / row["published"] - 1, "bubble": f["bubble"], "tp": spent["tp"],
               "cp": spent["cp"], "dp": sum(spent[name] for name in SUMS),
               "compute": f["compute_s"] / f["step_s"], "fits": f["fits"],
               "order": order[0] / order[1],
               "order_keys": " ".join(f"{k}={v}" for k, v in row.get("ordered", {}).items())}


# ---- what order costs presets -------------------------------------------------------------------

def preset_forecast(row, mode, lockstep):
    return run(row["preset"], [
        lockstep, "plan", f"configs/{row['preset']}.yaml", "--layout", "--json", "--cluster",
        row["cluster"], "--what-if", f"hosts={max(row['gpus'] // 8, 2)}", *row["keys"].split(),
        f"numerics.mode={mode}"])


def presets(listed, lockstep):
    lines = ["| preset | layout of | accelerators | leaves | `fast`, s | in order, s | ratio |",
             "|---|---|---|---|---|---|---|"]
    ratios = []
    for row in listed["presets"]:
        fast, ordered = (preset_forecast(row, mode, lockstep) for mode in ("fast", "ordered"))
        ratios.append(ordered["step_s"] / fast["step_s"])
        lines.append(f"| {row['preset']} | {row['source']} | {row['gpus']} | {ordered['leaves']} | "
                     f"{fast['step_s']:.3g} | {ordered['step_s']:.3g} | {ratios[-1]:.3f} |")
    return lines, ratios


# ---- the page -----------------------------------------------------------------------------------

def summary(rows):
    errors = [abs(r["error"]) for r in rows]
    worst = max(rows, key=lambda r: abs(r["error"]))
    return (f"median error {statistics.median(errors):.1%}, "
            f"worst {worst['error']:+.1%} ({worst['row']})")


def order_summary(rows):
    ratios = [r["order"] for r in rows]
    within = sum(ratio <= 1.05 for ratio in ratios)
    worst = max(rows, key=lambda r: r["order"])
    return (f"{within} of {len(rows)} at most 1.05, median {statistics.median(ratios):.3f}, worst "
            f"{worst['order']:.2f} ({worst['row']})")


def section(table, rows):
    what, form = REPORTS[table["reports"]]
    lines = [f"### {table['name']}", "", f"{what}. {summary(rows)}.", "",
             f"Source: {table['source']}. {table['checked'][:1].upper()}{table['checked'][1:]}.",
             "", f"As forecast: {table['mapped']}.", "",
             "| row | published | predicted | error | computing | bubble | waits for tp | for cp |"
             " for dp | in order |", "|---|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(f"| {r['row']} | {form.format(r['published'])} | "
                     f"{form.format(r['predicted'])} | {r['error']:+.1%} | {r['compute']:.0%} | "
                     f"{r['bubble']:.0%} | {r['tp']:.0%} | {r['cp']:.0%} | {r['dp']:.0%} | "
                     f"{r['order']:.2f}{r['order_keys'] and ', ' + r['order_keys']} |"
                     + ("" if r["fits"] else " (does not fit into memory here)"))
    return lines + [""]


def page(made, explained):
    every = [{**r, "row": f"{table['name']}: {r['row']}"} for table, rows in made for r in rows]
    small = sum(abs(r["error"]) <= 0.1 for r in every)
    middle = statistics.median(statistics.median(abs(r["error"]) for r in rows)
                               for _, rows in made)
    lines = ["## Published runs, beside the planner", "",
             f"{len(every)} runs of {len(made)} tables: {summary(every)}; {small} within 10 %; the "
             f"median of the tables' medians is {middle:.1%}. Goal: a median of at most 10 %.", "",
             "`make bench-plan` forecasts each with `lockstep plan --layout` from "
             "[published.json](published.json) and the files of clusters/, and nothing there was "
             "set by what these runs took. A share of time is of the step, mean over ranks. "
             "\"In order\" is the time of numerics.mode=ordered, with the leaves of the default, over "
             "that of fast, both with the overlap that Lockstep has, which \"predicted\" lacks where "
             "the source's system lacked it: "
             f"{order_summary(every)}. \"Unfused\" attention is a roofline of the passes that Megatron-LM made before fused "
             "kernels (tools/bench-plan.py has it).", "", *explained, ""]
    for table, rows in made:
        lines += section(table, rows)
    return lines


def write(made, explained):
    kept = ROOT / "bench" / "results.json"
    store = json.loads(kept.read_text())
    store["published"] = {
        "setting": {"date": datetime.date.today().isoformat(), "lockstep": pages.commit_of(False)},
        "tables": [{"name": t["name"], "reports": t["reports"],
                    "rows": rows}
                   for t, rows in made]}
    kept.write_text(json.dumps(store, indent=1, ensure_ascii=False) + "\n")
    pages.part_put(pages.RESULTS, "published", page(made, explained))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--only", default="", help="tables whose name has these words")
    parser.add_argument("--lockstep", default="build/lockstep")
    parser.add_argument("--check", type=int, nargs="?", const=2, default=0, metavar="ROWS",
                        help="one or two rows of each table")
    parser.add_argument("--presets", action="store_true", help="what order costs presets alone")
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
    o = parser.parse_args()
    listed = json.loads(LISTED.read_text())
    if o.presets:
        lines, ratios = presets(listed, o.lockstep)
        print("\n".join(lines))
        if "\n".join(lines) not in DETERMINISM.read_text():
            sys.exit("doc/determinism.md has another table: tools/bench-plan.py --write")
        sys.exit(max(ratios) > ORDER_LIMIT)
    tables = [t for t in listed["tables"] if o.only.lower() in t["name"].lower()]
    if not tables:
        sys.exit(f"bench-plan.py: no table has {o.only} in its name")
    if o.write and (o.only or o.check):
        sys.exit("bench-plan.py: --write needs all rows: leave --only and --check out")
    made = [(table, list(rows_of(table, o.lockstep, o.check))) for table in tables]
    for table, rows in made:
        print("\n".join(section(table, rows)))
    every = [{**r, "row": f"{t['name']}: {r['row']}"} for t, rows in made for r in rows]
    print(f"in order, over fast: {order_summary(every)}")
    print(f"in all {len(every)} runs: {summary(every)}")
    if o.write:
        write(made, listed["explained"])
        pages.part_put(DETERMINISM, "presets", presets(listed, o.lockstep)[0])


if __name__ == "__main__":
    main()
