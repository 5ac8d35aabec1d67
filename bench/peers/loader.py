#!/usr/bin/env python3
"""Loading of shuffled samples from one store in the page cache: `lockstep bench data` beside PyTorch's
DataLoader over numpy.memmap and Mosaic's StreamingDataset, each as its documentation has it.

    bench/peers/loader.py [--megabytes 256] [--sequence 1024] [--batch 32] [--rounds 5]
                          [--workers N] [--lockstep build/lockstep]

The same uint16 tokens for all, written to a temporary folder ($TMPDIR). The programs run in turns; a figure is
the median over rounds of samples/s, a ratio the median of the rounds' ratios. DataLoader runs with no
worker and with --workers of them (2); the faster is the peer. Needs torch, numpy, mosaicml-streaming."""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class Memmap(Dataset):
    def __init__(self, path, sequence):
        self.tokens, self.sequence = numpy.memmap(path, numpy.uint16, "r"), sequence

    def __len__(self):
        return (len(self.tokens) - 1) // self.sequence

    def __getitem__(self, i):
        row = torch.from_numpy(self.tokens[i * self.sequence:(i + 1) * self.sequence + 1].astype(numpy.int64))
        return row[:-1], row[1:]


def torch_rate(path, o, batches, workers):
    loader = DataLoader(Memmap(path, o.sequence), o.batch, shuffle=True, num_workers=workers)
    begin, count = None, 0
    for _ in loader:
        if begin is None:  # workers have started
            begin = time.perf_counter()
            continue
        count += 1
        if count == batches:
            break
    return count * o.batch / (time.perf_counter() - begin)


def mosaic_write(folder, path, o):
    from streaming import MDSWriter
    tokens = numpy.memmap(path, numpy.uint16, "r")
    with MDSWriter(out=folder, columns={"tokens": "bytes"}, compression=None) as out:
        for i in range((len(tokens) - 1) // o.sequence):
            out.write({"tokens": tokens[i * o.sequence:(i + 1) * o.sequence + 1].tobytes()})


def mosaic_rate(folder, o, batches):
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    class Tokens(StreamingDataset):
        def __getitem__(self, i):
            row = torch.from_numpy(numpy.frombuffer(super().__getitem__(i)["tokens"], numpy.uint16).astype(
                numpy.int64))
            return row[:-1], row[1:]

    clean_stale_shared_memory()  # of the round before
    data = Tokens(local=folder, shuffle=True, batch_size=o.batch)
    begin, count = None, 0
    for _ in DataLoader(data, o.batch):
        if begin is None:
            begin = time.perf_counter()
            continue
        count += 1
        if count == batches:
            break
    return count * o.batch / (time.perf_counter() - begin)


def ours(path, o, batches):
    output = subprocess.run([o.lockstep, "bench", "data", f"data=u16:{path}", f"sequence={o.sequence}",
                             f"batch={o.batch}", f"batches={batches}"], check=True, capture_output=True,
                            text=True).stdout
    return json.loads(output.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lockstep", default="build/lockstep")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokens.bin")
        numpy.random.default_rng(1).integers(0, 50000, o.megabytes << 19, numpy.uint16).tofile(path)
        batches = (o.megabytes << 19) // o.sequence // o.batch * 3 // 4
        mosaic_write(os.path.join(folder, "mds"), path, o)
        rates = {"lockstep": [], "plain read": [], "torch, no worker": [],
                 f"torch, {o.workers} workers": [], "mosaic streaming": []}
        for _ in range(o.rounds):
            found = ours(path, o, batches)
            rates["lockstep"].append(found["samples_per_s"])
            rates["plain read"].append(found["samples_per_s"] * found["to_plain_read"])
            rates["torch, no worker"].append(torch_rate(path, o, batches, 0))
            rates[f"torch, {o.workers} workers"].append(torch_rate(path, o, batches, o.workers))
            rates["mosaic streaming"].append(mosaic_rate(os.path.join(folder, "mds"), o, batches))
        for name, rate in rates.items():
            ratio = statistics.median(a / b for a, b in zip(rates["lockstep"], rate))
            print(f"{name:18} {statistics.median(rate):10.0f} samples/s; lockstep {ratio:.2f} times", flush=True)
    os._exit(0)  # StreamingDataset's threads still look for the folder


if __name__ == "__main__":
    main()
