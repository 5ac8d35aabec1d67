#!/usr/bin/env python3
"""Saving and loading a state beside plain files and PyTorch DCP, on one disk.

    tools/bench-checkpoint.py [--pairs N] [--folder DIR] [--torch PYTHON] [--write] [KEY=VALUE...]

Each pair is one `lockstep bench checkpoint` (its page says what it measures: GPT-2 124M on two
ranks, 1.49 GB) and one save and load by torch.distributed.checkpoint, of two processes over gloo:
GPT-2's matrices with two moments each, as DTensors that are cut by rows. Both sync what they write,
and both read what is not in memory. DCP has no digests; Lockstep's load verifies every byte, and save
and load compute the hash of the state too, from what they write and read. Beside both, two processes
read plain files of as many bytes past the page cache (O_DIRECT), 8 MiB at a time, and do nothing with
them: nobody reads faster from this disk. Prints medians of seconds, and ratios within a pair. --torch is a Python that has PyTorch; without one that part is left out.
Keys go to `lockstep bench checkpoint`.

--write puts the table into bench/RESULTS.md, between two marks, and the numbers into
bench/results.json: on an idle machine, in a tree without changes.
"""

import argparse
import datetime
import json
import mmap
import multiprocessing
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import pages
from pages import ROOT

# What is measured, what it is divided by, what the quotient of their seconds is at most; None: any.
ROWS = [("save", "write", "2 ranks write plain files and sync them", 1 / 0.9),
        ("resume", "read", "2 ranks read plain files and digest them (XXH3)", 1 / 0.9),
        ("save", "dcp_save", "dcp.save, 2 processes", 1 / 1.5),
        ("resume", "dcp_load", "dcp.load, 2 processes, no digests", 1 / 1.5),
        ("resume", "disk", "2 processes read plain files (O_DIRECT), no digests: what the disk gives", None),
        ("dcp_load", "disk", "the same", None),
        ("reshard", "copy", "2 ranks copy plain files and sync them", 1.2)]

# ---- PyTorch, in processes of their own ----------------------------------------------------------

LAYERS, CHANNELS, VOCABULARY, CONTEXT = 12, 768, 50304, 1024
SHAPES = ([(VOCABULARY, CHANNELS), (CONTEXT, CHANNELS)] +
          LAYERS * [(3 * CHANNELS, CHANNELS), (CHANNELS, CHANNELS),
                    (4 * CHANNELS, CHANNELS), (CHANNELS, 4 * CHANNELS)])


def evict(folder):
    for place, _, names in os.walk(folder):
        for name in names:
            file = os.open(os.path.join(place, name), os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def torch_rank(rank, ranks, port, folder):
    """One of the processes; rank 0 prints the seconds."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    state = {f"{part}.{i}": DTensor.from_local(torch.randn(rows // ranks, cols), mesh, [Shard(0)])
             for part in ("model", "exp_avg", "exp_avg_sq")
             for i, (rows, cols) in enumerate(SHAPES)}
    seconds = {"bytes": sum(4 * tensor.numel() for tensor in state.values())}

    def timed(name, act):
        dist.barrier()
        begin = time.perf_counter()
        act()
        dist.barrier()
        seconds[name] = time.perf_counter() - begin

    target = os.path.join(folder, "dcp")
    timed("dcp_save", lambda: dcp.save(state, checkpoint_id=target))
    evict(target)
    timed("dcp_load", lambda: dcp.load(state, checkpoint_id=target))
    if rank == 0:
        print(json.dumps(seconds))
    dist.destroy_process_group()


def torch_run(python, folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(dir=folder) as own:
        ranks = [subprocess.Popen([python, __file__, "--torch-rank", str(rank), str(port), own],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                 for rank in range(2)]
        printed = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit(f"bench-checkpoint: PyTorch's ranks ended with {[r.returncode for r in ranks]}")
    return json.loads(printed[0].splitlines()[-1])


def has_torch(python):
    tried = subprocess.run([python, "-c", "import torch.distributed.checkpoint"], check=False,
                           capture_output=True)
    return tried.returncode == 0


# ---- what the disk gives -------------------------------------------------------------------------

BLOCK = 8 << 20


def block_reads(name):
    """Reads a file to its end past the page cache, as large blocks into the same memory."""
    with mmap.mmap(-1, BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        block.madvise(mmap.MADV_HUGEPAGE)
        file = os.open(name, os.O_RDONLY | os.O_DIRECT)
        while os.readv(file, [block]):
            pass
        os.close(file)


def disk_seconds(folder, size):
    """Of two processes that read `size` bytes together, none of them in memory."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        names = [os.path.join(own, str(rank)) for rank in range(2)]
        for name in names:
            with open(name, "wb", buffering=0) as file:
                for _ in range(size // 2 // BLOCK):
                    file.write(os.urandom(BLOCK))
                os.fsync(file.fileno())
        evict(own)
        ranks = [multiprocessing.Process(target=block_reads, args=(name,)) for name in names]
        begin = time.perf_counter()
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        read = size // 2 // BLOCK * BLOCK * 2
        return (time.perf_counter() - begin) * size / read


# ---- pairs ---------------------------------------------------------------------------------------


def lockstep_run(lockstep, folder, keys):
    with tempfile.TemporaryDirectory(dir=folder) as own:  # removed, however this ends
        printed = subprocess.run([lockstep, "bench", "checkpoint", f"train.out={own}",
                                  "train.steps=1", *keys], check=True, text=True,
                                 stdout=subprocess.PIPE).stdout
    found = json.loads(printed.splitlines()[-1])
    return {"bytes": found.pop("bytes")} | {name.removesuffix("_s"): values[0]
                                            for name, values in found.items()}


def pairs_run(o):
    pairs = []
    for i in range(o.pairs):
        its = torch_run(o.torch, o.folder) if o.torch and i % 2 else None
        own = lockstep_run(o.lockstep, o.folder, o.keys)
        if o.torch and not its:
            its = torch_run(o.torch, o.folder)
        for name in ("dcp_save", "dcp_load"):
            if its:
                own[name] = its[name] * own["bytes"] / its["bytes"]
        own["disk"] = disk_seconds(o.folder, own["bytes"])
        pairs.append(own)
    return pairs


def table(pairs):
    lines = ["| | seconds | beside | its seconds | ratio | target | |",
             "|---|---|---|---|---|---|---|"]
    for name, peer, words, most in ROWS:
        if name not in pairs[0] or peer not in pairs[0]:
            continue
        ratio = statistics.median(pair[name] / pair[peer] for pair in pairs)
        own, its = (statistics.median(pair[key] for pair in pairs) for key in (name, peer))
        target = "| |" if most is None else f"≤ {most:.2f} | {'met' if ratio <= most else 'short'} |"
        lines.append(f"| {name.replace('dcp_', 'dcp.')} | {own:.2f} | {words} | {its:.2f} | {ratio:.2f} | "
                     f"{target}")
    return lines


def write(pairs, lines, commit):
    kept = ROOT / "bench" / "results.json"
    store = json.loads(kept.read_text())
    today = datetime.date.today().isoformat()
    store["checkpoint"] = {"setting": {"date": today, "lockstep": commit}, "pairs": pairs}
    kept.write_text(json.dumps(store, indent=1, ensure_ascii=False) + "\n")
    new = ["## Checkpoints", "", "`tools/bench-checkpoint.py --write`: the state of GPT-2 124M, "
           f"{pairs[0]['bytes'] / 1e9:.2f} GB, medians of {len(pairs)} pairs; {today}, commit "
           f"{commit}. DCP's seconds are for as many bytes.", "", *lines]
    pages.part_put(pages.RESULTS, "bench-checkpoint", new)


def main():
    if sys.argv[1:2] == ["--torch-rank"]:
        torch_rank(int(sys.argv[2]), 2, sys.argv[3], sys.argv[4])
        return
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default=str(ROOT / "build" / "lockstep"))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--folder", default=str(ROOT / "build"), help="on the disk to measure")
    parser.add_argument("--torch", default="/tmp/peers/bin/python", help="a Python with PyTorch")
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
    parser.add_argument("keys", nargs="*")
    o = parser.parse_args()
    if not os.access(o.torch, os.X_OK) or not has_torch(o.torch):
        print(f"{o.torch} has no PyTorch: without DCP (--torch PYTHON)", file=sys.stderr)
        o.torch = None
    if o.write and o.keys:
        sys.exit("--write: leave keys out")
    commit = pages.commit_of(o.write)
    pairs = pairs_run(o)
    lines = table(pairs)
    print(f"{pairs[0]['bytes'] / 1e9:.2f} GB, medians of {len(pairs)} pairs")
    print("\n".join(lines))
    if o.write:
        write(pairs, lines, commit)


if __name__ == "__main__":
    main()
