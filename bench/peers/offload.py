"""Part offload, for run.py: what memory tiers cost, beside DeepSpeed's offload and the plain disk.

The programs that move to a file and `lockstep bench tier`, which measures the same disk, take part
in the same rounds.
"""
import shlex
import statistics

from figures import figure, paired
from tables import gib

NONE = "Lockstep bf16, nothing offloaded"
DISK = "the disk itself"
PLAIN = "plain O_DIRECT"  # what `lockstep bench tier` calls it
DEEPSPEED, THEIRS = "DeepSpeed bf16, ZeRO 2", "DeepSpeed bf16, ZeRO 2, offload_optimizer cpu"
WHAT = {"optimizer": ("optimizer",), "all": ("optimizer", "gradients", "activations")}
# name -> (what of WHAT, tier)
OURS = {f"Lockstep bf16, {' + '.join(WHAT[what])} to {tier}": (what, tier)
        for what in WHAT for tier in ("host", "file")}
COST, RATE, HIDDEN = 0.10, 0.80, 0.80  # goals


def programs(o, lockstep):
    """As programs() of run.py."""
    micro, folder = f"batch.micro={o.batch}", f" memory.file={o.folder}"
    runs = {NONE: lockstep(o, layout=micro)}
    for name, (what, tier) in OURS.items():
        keys = "".join(f" memory.offload.{part}={tier}" for part in WHAT[what])
        runs[name] = lockstep(o, layout=micro + keys + folder * (tier == "file"))
    runs[DISK] = [*shlex.split(o.lockstep), "bench", "tier", f"folder={o.folder}", "mib=512"]
    shape = ["--shape", o.shape] if o.shape else ["--model", o.model]
    for name, where in ((DEEPSPEED, "none"), (THEIRS, "cpu")):
        runs[name] = shlex.split(o.deepspeed) + [
            "--stage", "2", "--offload", where, *shape, "--batch", str(o.batch),
            "--tokens", str(o.tokens), "--threads", str(o.threads),
            "--warmup", "2", "--steps", str(max(1, o.steps - 2))]
    return {name: ("offload", "", command) for name, command in runs.items()}


# ---- of one round -------------------------------------------------------------------------------

def rate(result):
    """Bytes a second while some moved."""
    return result["offload_bytes"] / result["offload_busy_s"]


def disk_rate(disk):
    """The plain disk's, half of the bytes out and half back."""
    return 2 / sum(1 / disk[PLAIN][way] for way in ("out", "back"))


def hidden(result):
    """Of the time in which bytes moved, the share that was not waited for."""
    return 1 - result["offload_wait_s"] / result["offload_busy_s"]


def hidden_of_possible(result, none, what):
    """Of the time that can be hidden. The optimizer's bytes move beside the update alone, so one of
    two times can be hidden: moving, or the update without offload. What is lost all the same, also
    because transfers slow the arithmetic down, shows in the update's time. All three move beside
    the whole step, which is so long that its noise hides them: there the waits tell."""
    if what == "all":
        return hidden(result)
    busy, alone = result["offload_busy_s"], none["optimizer_s"]
    return (busy + alone - result["optimizer_s"]) / min(busy, alone)


def median(results, names, function):
    """Of function over the rounds in which all of the programs ran; None where there is none."""
    rounds = [row for row in zip(*(results.get(name, []) for name in names)) if all(row)]
    return statistics.median(function(*row) for row in rounds) if rounds else None


# ---- the figures --------------------------------------------------------------------------------

def cost(results):
    """The goal is of host memory: a disk may be as slow as it likes."""
    name = next(name for name, of in OURS.items() if of == ("optimizer", "host"))
    title = "offload of the optimizer to host: share of time lost"
    slower, theirs = (paired(results, *pair, "step_s") for pair in ((name, NONE),
                                                                   (THEIRS, DEEPSPEED)))
    lost, peer = figure(title, COST, "lower"), figure(
        "offload of the optimizer to host: slowdown to DeepSpeed's slowdown", 1.0, "lower")
    if slower:
        lost |= {"ratio": slower[2] - 1, "ours": f"{slower[0]:.2f} s",
                 "peer": f"{slower[1]:.2f} s ({NONE})"}
    if slower and theirs:
        peer |= {"ratio": slower[2] / theirs[2], "ours": f"{slower[2]:.2f}",
                 "peer": f"{theirs[2]:.2f} ({THEIRS})"}
    return [lost, peer]


def moved(results, name):
    """How fast and how well hidden a file's bytes move."""
    what, tier = OURS[name]
    title = f"offload of {'the optimizer' if what == 'optimizer' else 'all three'} to {tier}: "
    fast = figure(title + "rate while bytes move, to the disk's own", RATE, "higher")
    fast["ratio"] = median(results, (name, DISK), lambda r, disk: rate(r) / disk_rate(disk))
    if fast["ratio"] is not None:
        fast |= {"ours": f"{median(results, (name,), rate) / 1e9:.2f} GB/s",
                 "peer": f"{median(results, (DISK,), disk_rate) / 1e9:.2f} GB/s ({PLAIN})"}
    share = figure(title + "share hidden of what can be", HIDDEN, "higher")
    share["ratio"] = median(results, (name, NONE), lambda r, n: hidden_of_possible(r, n, what))
    if share["ratio"] is not None:
        share["ours"] = f"{100 * share['ratio']:.0f} %"
    return [fast, share]


def figures(results):
    return cost(results) + [f for name, (_, tier) in OURS.items() if tier == "file"
                            for f in moved(results, name)]


def row(results, name):
    """One line of the table, or none."""
    what, tier = OURS.get(name, ("", ""))
    plain = DEEPSPEED if name == THEIRS else NONE
    pair = paired(results, name, plain, "step_s")
    if not pair:
        return []
    cells = [name, f"{pair[0]:.2f}", f"{pair[2]:.2f}"]
    value = lambda key: median(results, (name,), lambda r: r[key])
    cells += [f"{value('optimizer_s'):.2f}"]
    if what:
        cells += [gib(value("offload_bytes")), f"{value('offload_busy_s'):.2f}",
                  f"{value('offload_wait_s'):.2f}", f"{median(results, (name,), hidden):.2f}",
                  "{:.2f}".format(median(results, (name, NONE),
                                         lambda r, n: hidden_of_possible(r, n, what))),
                  f"{median(results, (name,), rate) / 1e9:.2f}"]
        share = median(results, (name, DISK), lambda r, disk: rate(r) / disk_rate(disk))
        cells += [f"{share:.2f}" if tier == "file" and share is not None else ""]
    else:
        cells += [""] * 7
    cells += [gib(value("device_bytes")) if name != THEIRS else ""]
    return [f"| {' | '.join(cells)} |"]


def text(results):
    lines = ["What offload costs. Steps are beside the same program's without offload.", "",
             "| program | step, s | to without | update, s | moved, GiB | busy, s | waited, s | "
             "hidden | of what can be | busy, GB/s | to the disk's | device, GiB |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for name in (NONE, *OURS, THEIRS):
        lines += row(results, name)
    ways = [median(results, (DISK,), lambda disk, way=way: disk[PLAIN][way] / 1e9)
            for way in ("out", "back")]
    if None not in ways:
        lines += ["", f"The disk itself: {ways[0]:.2f} GB/s out and {ways[1]:.2f} GB/s back, by "
                  f"`lockstep bench tier` ({PLAIN}) in the same", "rounds. Beside it stands what "
                  "it moves in a second, if half goes out and half comes back."]
    return lines + [
        "", "Busy is the time in which some bytes move, hidden the share of it that is not waited "
        "for. The", "optimizer's bytes move beside the update alone: of moving and of the update "
        "without offload, the shorter one can", "be hidden. What was of that is busy + update "
        "without offload - update, over the shorter one. It is less than 0", "if transfers slow "
        "the arithmetic down by more than is hidden. All three move beside the whole step: what "
        "can be", "is all. Device is the memory plan without its tiers. DeepSpeed's update is "
        "`engine.step()`, with the norm."]
