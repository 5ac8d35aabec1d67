#!/usr/bin/env python3
"""torchft's DiLoCo, as one of several workers: the peer of async.mode=diloco in bench/async.py.

    diloco.py --rank R --workers N --address IP --lighthouse URL --text FILE --go FILE --out FILE

Trains GPT-2 of bench/peers/pytorch_gpt2.py on bytes, one thread, fp32; the outer optimizer is SGD
with Nesterov momentum. Rank 0 serves the lighthouse too. Prints "ready",
begins when --go is there, and writes seconds, tokens, losses and the validation loss as JSON. Then
it prints "done", and ends when FILE.over of --go is there. Needs torch and torchft.
"""
import argparse
import datetime
import json
import os
import time

import numpy
import torch
from pytorch_gpt2 import GPT2
from torch.distributed import TCPStore
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo

LIMIT = datetime.timedelta(seconds=120)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("rank", "workers", "steps", "every", "batch", "tokens", "layers", "heads",
                 "channels"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    for name in ("address", "lighthouse", "text", "go", "out"):
        parser.add_argument(f"--{name}", required=True)
    return parser.parse_args()


def manager_of(o):
    store = TCPStore(o.address, 0, is_master=True, wait_for_workers=False)
    manager = Manager(pg=ProcessGroupGloo(timeout=LIMIT), load_state_dict=None, state_dict=None,
                      min_replica_size=o.workers, use_async_quorum=False, timeout=LIMIT,
                      quorum_timeout=LIMIT, connect_timeout=LIMIT, rank=0, world_size=1,
                      store_addr=o.address, store_port=store.port, lighthouse_addr=o.lighthouse,
                      replica_id=f"worker{o.rank}", hostname=o.address, init_sync=False)
    return manager, store


def main():
    o = parse()
    torch.set_num_threads(1)
    torch.manual_seed(1)  # the same weights on all
    server = None  # lives as long as this
    if o.rank == 0:
        server = LighthouseServer(bind=o.lighthouse.partition("//")[2], min_replicas=o.workers,
                                  join_timeout_ms=60000)
    data = numpy.fromfile(o.text, dtype=numpy.uint8).astype(numpy.int64)
    rows = data[:len(data) // o.tokens * o.tokens - o.tokens + 1]
    count = len(rows) // o.tokens
    cut = count * 9 // 10
    order = numpy.random.default_rng(1).permutation(cut)

    def batch(indices):
        starts = numpy.asarray(indices) * o.tokens
        take = torch.from_numpy(numpy.stack([data[s:s + o.tokens + 1] for s in starts]))
        return take[:, :-1], take[:, 1:]

    model = GPT2(o.layers, o.heads, o.channels, 257, o.tokens, "plain")
    inner = torch.optim.AdamW(model.parameters(), lr=o.lr, betas=(0.9, 0.95), weight_decay=0.1)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    manager, store = manager_of(o)
    print("ready", flush=True)
    while not os.path.exists(o.go):
        time.sleep(0.01)
    losses, start = [], time.monotonic()
    with DiLoCo(manager, [model], inner, outer, sync_every=o.every, pin_memory=False):
        for step in range(o.steps):
            first = (step * o.workers + o.rank) * o.batch
            ids, targets = batch(order[numpy.arange(first, first + o.batch) % cut])
            inner.zero_grad()
            loss = model(ids, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            inner.step()
            losses.append(loss.item())
    seconds = time.monotonic() - start
    with torch.no_grad():
        valid = [model(*batch(range(i, i + 4))).item()
                 for i in range(cut, min(cut + 256, count - 4), 4)]
    with open(o.out, "w", encoding="utf-8") as file:
        json.dump({"seconds": seconds, "tokens": o.steps * o.workers * o.batch * o.tokens,
                   "losses": losses, "validation_loss": sum(valid) / len(valid),
                   "steps": manager.current_step()}, file)
    print("done", flush=True)
    while not os.path.exists(o.go + ".over"):  # others may still need the lighthouse
        time.sleep(0.01)
    del server, store
    os._exit(0)  # threads of the manager do not end by themselves


if __name__ == "__main__":
    main()
