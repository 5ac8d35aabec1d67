"""The table of figures in README.md, made from the same numbers as RESULTS.md, for run.py."""

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"

# What README shows beside the races, in this order: (part, how the title begins, what to call it).
SHOWN = (
    ("llmc", "fp32, one rank: to llm.c", "fp32, one rank, 4 x 64 tokens for llm.c"),
    ("bf16", "bf16, one rank: share", "bf16, one rank: share of the rate of one large oneDNN product"),
    ("fp32", "fp32, one rank: share", "fp32, one rank: the same share"),
    ("kinds", "two ranks, data parallel", "two ranks to one rank with two threads: data parallel"),
    ("kinds", "two ranks, tensor parallel", "the same: tensor parallel"),
    ("kinds", "two ranks, ZeRO 3", "the same: ZeRO 3"),
    ("kinds", "two ranks, pipeline", "the same: pipeline, 8 micro-batches"),
    ("fast", "what order costs", "what the promise costs in time: `fast` to `ordered`"),
    ("order", "what order costs, tp 2", "the same on two tensor-parallel ranks"),
    ("recompute", "recompute selective: share of activation", "selective recomputation: share of activation memory given up"),
    ("recompute", "recompute selective: share of time", "the same: share of time lost"),
    ("recompute", "recompute selective: slowdown", "the same: slowdown to PyTorch's slowdown"),
    ("recompute", "recompute selective: activation memory", "the same: activation memory to that PyTorch's"),
    ("recompute", "recompute full: share of activation", "full recomputation: share of activation memory given up"),
    ("recompute", "recompute full: share of time", "the same: share of time lost"),
    ("recompute", "recompute full: slowdown", "the same: slowdown to PyTorch's slowdown"),
    ("recompute", "recompute full: activation memory", "the same: activation memory to that PyTorch's"),
    ("offload", "offload of the optimizer to host: share of time", "the optimizer offloaded to host memory: share of time lost"),
    ("offload", "offload of the optimizer to file: rate", "the same to a file: rate while bytes move, to the disk's own"),
    ("offload", "offload of the optimizer to file: share hidden", "the same: share hidden of what can be"),
    ("zero", "memory of 64 ranks, zero 1: reduction", "training state with ZeRO 1 on 64 ranks: times less"),
    ("zero", "memory of 64 ranks, zero 3: reduction", "training state with ZeRO 3 on 64 ranks: times less"),
    ("bubble", "idle share of pipelines on 8", "idle share of 8 pipeline ranks: largest error of the computed one"),
    ("bubble", "idle share of pipelines on 16", "idle share of 16 pipeline ranks: the same"),
    ("plan", "16,384 ranks of Llama 405B: seconds", "16,384 ranks of Llama 405B: seconds to prove a layout, of 10"),
)


def goal(f):
    return ("≥ " if f["better"] == "higher" else "≤ ") + f"{f['target']:.2f}"


def named(f):
    """A figure's peer: (what it measured, who it is)."""
    number, _, who = f["peer"].partition(" (")
    return number, who.removesuffix(")")


def race(title, figures, verdict):
    """One row for the speed and the memory beside one peer."""
    fast = figures[0]
    small = next((f for f in figures if "peak memory" in f["title"]), None)
    if fast["ratio"] is None or small is None or small["ratio"] is None:
        return []
    rate, who = named(fast)
    return [f"| {title} | {fast['ours']}, {small['ours']} | {who}: {rate}, {named(small)[0]} | "
            f"{fast['ratio']:.2f} | {small['ratio']:.2f} | {goal(fast)} | {verdict(fast)} |"]


def single(name, f, verdict):
    if f["ratio"] is None:
        return []
    number, who = named(f)
    peer = f"{who}: {number}" if who else number
    return [f"| {name} | {f['ours']} | {peer} | {f['ratio']:.2f} | | {goal(f)} | {verdict(f)} |"]


def table(store, races, verdict):
    parts = [p for p in races if p in store] + [p for p, _, _ in SHOWN if p in store]
    settings = [store[p]["setting"] for p in parts]
    machines = sorted({s["machine"] for s in settings})
    dates = sorted({s["date"] for s in settings})
    lines = [f"{'; '.join(machines)}; measured {dates[0]}" + (
        f" to {dates[-1]}" if len(dates) > 1 else "") + ".", "",
        "| one training step | Lockstep | peer | ratio | peak memory, ratio | goal | |",
        "|---|---|---|---|---|---|---|"]
    for part, (title, *_) in races.items():
        if part in store:
            lines += race(title, store[part]["figures"], verdict)
    for part, begin, name in SHOWN:
        found = [f for f in store.get(part, {}).get("figures", ()) if f["title"].startswith(begin)]
        lines += [row for f in found[:1] for row in single(name, f, verdict)]
    return "\n".join(lines)


def write(path, store, races, verdict):
    """Our part of README.md lies between two marks; the rest stays."""
    text = path.read_text() if path.exists() else ""
    if BEGIN not in text or END not in text:
        return
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    path.write_text(f"{before}{BEGIN}\n\n{table(store, races, verdict)}\n\n{END}{after}")
