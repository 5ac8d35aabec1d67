"""Figures that need no peer and no rounds, for run.py: what is planned, idle and moved.

Each function of PARTS takes the command of the program and the folder to run it in, and returns
(figures, lines of Markdown).
"""
import json
import os
import statistics
import subprocess
import tempfile
import time


def output(lockstep, root, *words):
    done = subprocess.run([*lockstep, *words], capture_output=True, text=True, cwd=root,
                          timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"run.py: {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def limit(title, value, bound, ours, peer=""):
    """A figure that must stay below a bound."""
    return {"title": title, "target": bound, "better": "lower", "ratio": value, "ours": ours,
            "peer": peer}


def gib(size):
    return f"{size / 2**30:.2f}"


# ---- zero ---------------------------------------------------------------------------------------

ZERO_RANKS = 64
ZERO_MODEL = ("model.arch=gpt2 model.layers=72 model.channels=3072 model.heads=24 "
              "model.vocab=50257 model.context=1024 data.sequence=1024 "
              f"batch.global={ZERO_RANKS} batch.micro=1").split()
KEPT = ("parameters", "gradients", "optimizer")


def planned(lockstep, root, layout):
    """Bytes of each kind that the trainer would take: all ranks take the same."""
    text = output(lockstep, root, "plan", "memory", "--json", *ZERO_MODEL, *layout)
    allocated = json.loads(text)["kinds"][0]["allocated"]
    return {kind: allocated[kind] for kind in KEPT}


def zero(lockstep, root):
    lines = [
        f"Memory for the state of a GPT-2 of 72 blocks of 3,072 channels on {ZERO_RANKS} ranks, "
        "GiB a rank by", "`lockstep plan memory`, and how many times less.",
        "",
        "| zero | parameters | gradients | optimizer | in all | reduction | the ZeRO paper's |",
        "|---|---|---|---|---|---|---|"]
    figures, n = [], ZERO_RANKS
    paper = {0: 1.0, 1: 16 / (4 + 12 / n), 2: 16 / (2 + 14 / n), 3: float(n)}
    whole = 0
    for stage in range(4):
        axis = "dp_shard" if stage else "dp_replicate"
        layout = [f"parallel.{axis}={n}", f"parallel.zero={stage}"]
        plan = planned(lockstep, root, layout)
        in_all = sum(plan.values())
        whole = whole or in_all
        lines.append(f"| {stage} | " + " | ".join(gib(plan[kind]) for kind in KEPT)
                     + f" | {gib(in_all)} | {whole / in_all:.2f} | {paper[stage]:.2f} |")
        if stage:
            figures.append({
                "title": f"memory of {n} ranks, zero {stage}: reduction, the paper's less 2 %",
                "target": 0.98 * paper[stage], "better": "higher", "ratio": whole / in_all,
                "ours": f"{gib(in_all)} GiB", "peer": f"{gib(whole)} GiB (zero 0)"})
    lines += [
        "", "The paper counts 2 bytes a parameter in the compute type, 2 of gradient and 12 of "
        "optimizer: 16, and", "4 + 12/N, 2 + 14/N, 16/N by stage: 4x, 8x and Nx less for "
        "many ranks. Here gradients are", "float32, and from stage 1 on a rank keeps those of its "
        "shard alone, as each leaf is reduced when", "it is whole: 2 + 4 + 12 = 18, then 2 + 16/N, "
        "2 + 16/N, 18/N: 9x, 9x and Nx for many ranks. A tied", "table has two gradients, the head's and the embedding's, which", "are added last, so two "
        "ranks of a pipeline may hold them."]
    return figures, lines


# ---- bubble -------------------------------------------------------------------------------------

def theory(name, chunks, p, m):
    """Idle share by the papers' formulas, with F, I and W alike; None where there is no such."""
    if name in ("gpipe", "1f1b"):
        return (p - 1) / (m + p - 1)
    if name == "interleaved":
        return (p - 1) / (chunks * m + p - 1)
    if name == "zb-h1":
        return (p - 1) / (3 * m + p - 1)
    return None


def bubble(lockstep, root):
    figures, lines = [], [
        "Idle share of all ranks, in %. Stages sleep 480 ms a micro-batch and rank, so all ranks "
        "really run at", "the same time. Computed: by simulation from the table. Formula: (p-1)/"
        "(m+p-1) for GPipe and 1F1B, over v", "chunks (p-1)/(v m+p-1), ZB-H1 (p-1)/(3m+p-1).",
        "",
        "| schedule | chunks | ranks | micro-batches | formula | computed | measured | ratio |",
        "|---|---|---|---|---|---|---|---|"]
    for ranks, micro in ((8, 16), (16, 32)):
        words = ("bench", "pipeline", f"ranks={ranks}", f"micro={micro}", "ms=480")
        worst, who = 0.0, ""
        for name, chunks, _, computed, measured in rows_of(output(lockstep, root, *words)):
            closed = theory(name, chunks, ranks, micro)
            off = abs(measured / computed - 1)
            worst, who = (off, name) if off > worst else (worst, who)
            form = "" if closed is None else f"{100 * closed:.2f}"
            lines.append(f"| {name} | {chunks} | {ranks} | {micro} | {form} | {computed:.2f} | "
                         f"{measured:.2f} | {measured / computed:.3f} |")
        figures.append(limit(f"idle share of pipelines on {ranks} ranks: measured to computed, "
                             "largest difference", worst, 0.05, who))
    return figures, lines


def rows_of(text):
    """(schedule, chunks, length of the step, computed, measured) of each line of the table."""
    rows = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 8 and words[1].isdigit():
            rows.append((words[0], int(words[1]), *map(float, words[2:5])))
    return rows


# ---- plan ---------------------------------------------------------------------------------------

def plan(lockstep, root):
    words = ["layout", "--check", "configs/llama-405b-16k.yaml"]
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen([*lockstep, *words], stdout=out, cwd=root)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().strip()
    seconds = time.monotonic() - begin
    if child.returncode:
        raise SystemExit(f"run.py: {' '.join(words)}: exit code {child.returncode}")
    title = "16,384 ranks of Llama 405B: "
    return [limit(title + "seconds to prove a layout, of 10", seconds / 10, 1.0,
                  f"{seconds:.1f} s"),
            limit(title + "memory to prove it, of 1 GiB", usage.ru_maxrss / 2**20, 1.0,
                  f"{usage.ru_maxrss / 2**10:.0f} MiB")], [f"`lockstep {' '.join(words)}`: {text}"]


# ---- moved --------------------------------------------------------------------------------------

L, C, T, B = 4, 64, 256, 8
MOVED_MODEL = ("model.arch=gpt2 model.vocab=256 model.vocab_multiple=16 "
               f"model.channels={C} model.heads=4 model.context={T} data.sequence={T} "
               f"model.tied=false batch.global={B} numerics.seq_tiles=2 parallel.threads=1 "
               "train.steps=4").split()


def gradients(axis):
    """In gradients of the blocks, (d - 1)/d of them a rank; all ranks together d times that."""
    return lambda less, more: (
        (more["axes"][axis]["sent_bytes"] - less["axes"][axis]["sent_bytes"])
        / (less["ranks"] - 1) / (more["gradient_bytes"] - less["gradient_bytes"]))


def all_reduces(less, more):
    """In all-reduces of B T C a block: sums in float32, rounded and gathered in bf16."""
    return ((more["axes"]["tp"]["sent_bytes"] - less["axes"]["tp"]["sent_bytes"])
            / (less["ranks"] - 1) / (B * T * C * (4 + 2)) / L)


def activations(less, _):
    return less["axes"]["pp"]["sent_bytes"] / (B * T * C * 2)


MOVED = (
    ("parallel.dp_replicate=4 numerics.precision=fp32", gradients("dp_replicate"),
     "2 x gradients"),
    ("parallel.dp_shard=4 parallel.zero=1 numerics.precision=fp32", gradients("dp_shard"),
     "2 x gradients"),
    ("parallel.dp_shard=4 parallel.zero=2 numerics.precision=fp32", gradients("dp_shard"),
     "2 x gradients"),
    ("parallel.dp_shard=4 parallel.zero=3 numerics.precision=fp32", gradients("dp_shard"),
     "3 x gradients"),
    ("parallel.dp_shard=4 parallel.zero=3", gradients("dp_shard"),
     "2 x gradients, with matrices gathered in bf16"),
    ("parallel.tp=2 parallel.sp=false", all_reduces, "4 x B T C a block"),
    ("parallel.tp=2 parallel.sp=true", all_reduces,
     "4 x B T C in halves, and 2 inputs gathered again for the weights"),
    ("parallel.pp=2 batch.micro=1", activations, "2 x B T C a boundary"),
    ("parallel.cp=2", None, "keys and values, their gradients; the parameters'"),
    ("parallel.tp=2 parallel.pp=2 parallel.dp_shard=2 parallel.zero=3 batch.micro=1", None,
     "all together"),
)


def moved(lockstep, root):
    lines = [
        f"Bytes that all ranks together send in one step of a GPT-2 of {L} blocks of {C} channels, "
        f"{B} sequences of {T}", "tokens: counted at the transport, and recorded from a trainer "
        "that runs alone", "(`ls_record_bytes`). "
        "`test/train/test_trainer_moves.c` compares them by rank, group and operation.",
        "The unit is that of the literature, (n-1)/n of it a rank. It counts what four more blocks "
        "add, because", "embedding and head have their own part.", "",
        "| layout | axis | measured | recorded | in units | expected |",
        "|---|---|---|---|---|---|"]
    differ = 0
    for layout, units, note in MOVED:
        less, more = (json.loads(output(
            lockstep, root, "bench", "step", *MOVED_MODEL, f"model.layers={layers}",
            *layout.split()).splitlines()[-1]) for layers in (L, 2 * L))
        differ += sum(r["ranks_that_moved_other_bytes"] for r in (less, more))
        for axis, row in less["axes"].items():
            if axis == "other" or not row["sent_bytes"]:
                continue
            lines.append(f"| {layout.replace('parallel.', '')} | {axis} | {row['sent_bytes']} | "
                         f"{row['recorded_bytes']} | "
                         f"{'' if units is None else format(units(less, more), '.3f')} | {note} |")
    return [limit("bytes moved: ranks whose count is not the recorded one", float(differ), 0.0,
                  f"{len(MOVED)} layouts")], lines


# ---- start --------------------------------------------------------------------------------------

def start(lockstep, root):
    """From a fresh clone to the program, and from its start to the end of the first step."""
    # As typed by hand, though a make may have started this.
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")}
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        subprocess.run(["make", f"BUILD={folder}/build", "all"], cwd=root, check=True,
                       stdout=subprocess.DEVNULL, env=environment | {"CCACHE_DISABLE": "1"})
        made = time.monotonic() - begin
    words = ["bench", "step", "configs/gpt2-tiny.yaml", "train.steps=3"]
    first = statistics.median(
        json.loads(output(lockstep, root, *words).splitlines()[-1])["first_step_s"]
        for _ in range(5))
    return [limit(f"seconds of make on {os.cpu_count()} cores, of 30", made / 30, 1.0,
                  f"{made:.1f} s"),
            limit("seconds from the program's start to the end of the first step, of 0.2",
                  first / 0.2, 1.0, f"{first:.2f} s")], [
        f"The first step is that of `lockstep {' '.join(words)}`, the median of five."]


PARTS = {"zero": zero, "bubble": bubble, "plan": plan, "moved": moved, "start": start}
