#!/usr/bin/env python3
"""Loading of shuffled samples from a server that sends so many bytes a second and no more: `lockstep
bench data` and Mosaic's StreamingDataset, which read the same tokens by S3's protocol from the same
server, each with a cache on the same disk.

    bench/peers/elsewhere.py [--megabytes 64] [--limit 40] [--sequence 1024] [--batch 32] [--rounds 3]
                             [--uncached-batches 8] [--workers 2] [--lockstep build/lockstep]

The server is on loopback; its limit, in MB/s, holds over all connections. The text is made by this script. A
pass reads each sample once, in a random order, in a process of its own; it is timed from the first
sample's request to the last batch. The first pass of a cache begins with an empty folder, the second reads
what the first has kept. Figures are medians over rounds, which go in turns. Without a cache a sample of a
store with digests fetches a block of 4 MiB unless the 64 MiB of memory have it, so a whole pass takes minutes:
these rows read the first --uncached-batches alone, with a memory that is empty at first. Each pass is told on stderr when it begins and
ends; one that takes longer than PASS_S ends the bench. Mosaic has its default shards
of 64 MiB, and runs with no worker and with --workers of them. Needs numpy, torch, mosaicml-streaming and
boto3 for the rows of Mosaic, which are left out without them."""
import argparse
import http.server
import importlib.util
import json
import os
import random
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BUCKET = "bucket"
PASS_S = 600


class Limit:
    """Bytes are let through at a rate, in pieces, over all threads."""

    def __init__(self, rate):
        self.rate, self.lock, self.next, self.sent = rate, threading.Lock(), 0.0, 0

    def take(self, count):
        with self.lock:
            now = time.monotonic()
            begin = max(now, self.next)
            self.next = begin + count / self.rate
            self.sent += count
        if begin > now:
            time.sleep(begin - now)


def serve(folder, limit):
    """An S3 that gives out files to whoever asks."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def head(self, code, count, extra=()):
            self.send_response(code)
            self.send_header("Content-Length", str(count))
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Sun, 01 Nov 2026 00:00:00 GMT")
            for name, value in extra:
                self.send_header(name, value)
            self.end_headers()

        def file(self):
            """The path of what is asked for, and its bytes; None where it is not there."""
            path = os.path.join(folder, self.path.split("?")[0].removeprefix(f"/{BUCKET}/"))
            if os.path.isfile(path):
                return path, os.path.getsize(path)
            self.head(404, 0)
            return None

        def do_HEAD(self):
            found = self.file()
            if found:
                self.head(200, found[1])

        def do_GET(self):
            found = self.file()
            if not found:
                return
            path, size = found
            first, last, whole = 0, size - 1, "Range" not in self.headers
            if not whole:
                first, last = (int(x or size - 1) for x in self.headers["Range"].split("=")[1].split("-"))
                last = min(last, size - 1)
            self.head(200 if whole else 206, last - first + 1,
                      () if whole else [("Content-Range", f"bytes {first}-{last}/{size}")])
            try:
                self.send(path, first, last - first + 1)
            except ConnectionError:  # a pass has ended, and wants no more
                self.close_connection = True

        def send(self, path, first, left):
            with open(path, "rb") as file:
                file.seek(first)
                while left:
                    piece = file.read(min(left, 1 << 16))
                    limit.take(len(piece))
                    self.wfile.write(piece)
                    left -= len(piece)

    class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True
        request_queue_size = 64

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def figures_of(output):
    """The last line of a pass."""
    return json.loads(output.splitlines()[-1])


# ---- Lockstep -----------------------------------------------------------------------------------


def store_make(folder, o):
    """folder/corpus_train: two bytes a token, with digests of its blocks."""
    draw = random.Random(1)
    letters = bytes(b"abcdefghijklmnopqrstuvwxyz "[i % 27] for i in range(256))
    text = os.path.join(folder, "text.jsonl")
    with open(text, "wb") as file:
        for _ in range(o.megabytes << 9):
            file.write(b'{"text": "' + draw.randbytes(1023).translate(letters) + b'"}\n')
    subprocess.run([o.lockstep, "data", "prepare", "--input", text, "--output", os.path.join(folder, "corpus"),
                    "--tokenizer", "byte", "--validation", "0"], check=True, capture_output=True)
    os.remove(text)


def ours(name, o, cache):
    batches = o.batches if cache else min(o.batches, o.uncached_batches)
    words = [o.lockstep, "bench", "data", f"data={name}", f"sequence={o.sequence}", f"batch={o.batch}",
             f"batches={batches}", "rounds=1"]
    done = subprocess.run(words + ([f"cache={cache}"] if cache else []), capture_output=True, text=True,
                          timeout=PASS_S)
    if done.returncode:
        sys.exit(done.stderr)
    return figures_of(done.stdout)


# ---- Mosaic -------------------------------------------------------------------------------------


def mosaic_write(folder, o):
    import numpy
    from streaming import MDSWriter
    tokens = numpy.fromfile(os.path.join(folder, "corpus_train.bin"), numpy.uint16)
    with MDSWriter(out=os.path.join(folder, "mds"), columns={"tokens": "bytes"}, compression=None) as out:
        for i in range((len(tokens) - 1) // o.sequence):
            out.write({"tokens": tokens[i * o.sequence:(i + 1) * o.sequence + 1].tobytes()})


def mosaic_pass(o):
    """In a process of its own, whose last line is the figure."""
    import numpy
    import torch
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    class Tokens(StreamingDataset):
        def __getitem__(self, i):
            row = torch.from_numpy(numpy.frombuffer(super().__getitem__(i)["tokens"], numpy.uint16).astype(
                numpy.int64))
            return row[:-1], row[1:]

    clean_stale_shared_memory()
    data = Tokens(remote=f"s3://{BUCKET}/mds", local=o.mosaic, shuffle=True, batch_size=o.batch)
    begin, count = time.perf_counter(), 0
    for inputs, _ in DataLoader(data, o.batch, num_workers=o.workers):
        count += len(inputs)
    rate = count / (time.perf_counter() - begin)
    assert count >= o.batches * o.batch, count
    print(json.dumps({"samples_per_s": rate}), flush=True)
    os._exit(0)  # its threads may still wait


def mosaic(o, local, workers):
    words = [sys.executable, __file__, "--mosaic", local, "--sequence", str(o.sequence), "--batch", str(o.batch),
             "--batches", str(o.batches), "--workers", str(workers)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PASS_S)
    if done.returncode:
        sys.exit(done.stderr)
    return figures_of(done.stdout)


# ---- both ---------------------------------------------------------------------------------------


def tell(text, end="\n"):
    print(text, end=end, file=sys.stderr, flush=True)


def passes(o, folder, round_number, peer):
    """Of each row of the table what runs it; a second pass comes after its first."""
    def fresh(name):
        return os.path.join(folder, f"cache-{name}-{round_number}")

    store = f"s3://{BUCKET}/corpus_train"
    rows = [("lockstep, no cache", lambda: ours(store, o, None)),
            ("lockstep, no cache, no .sums", lambda: ours(f"u16:{store}.bin", o, None)),
            ("lockstep, first pass", lambda: ours(store, o, fresh("ours"))),
            ("lockstep, second pass", lambda: ours(store, o, fresh("ours")))]
    for workers in (0, o.workers) if peer else ():
        for which in ("first", "second"):
            rows.append((f"mosaic, {workers} workers, {which} pass",
                         lambda workers=workers: mosaic(o, fresh(f"mosaic{workers}"), workers)))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--limit", type=float, default=40)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--uncached-batches", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lockstep", default="build/lockstep")
    parser.add_argument("--mosaic", help=argparse.SUPPRESS)
    parser.add_argument("--batches", type=int, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.mosaic:
        mosaic_pass(o)
    peer = all(importlib.util.find_spec(name) for name in ("numpy", "torch", "streaming", "boto3"))
    found, moved = {}, {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        tell(f"a store of {o.megabytes} MB of text")
        store_make(folder, o)
        samples = (os.path.getsize(os.path.join(folder, "corpus_train.bin")) // 2 - 1) // o.sequence
        o.batches = samples // o.batch
        if peer:
            mosaic_write(folder, o)
        else:
            print("mosaicml-streaming, torch, numpy or boto3 is not installed: Lockstep alone")
        limit = Limit(o.limit * 1e6)
        url = f"http://127.0.0.1:{serve(folder, limit).server_port}"
        os.environ.update(AWS_ENDPOINT_URL=url, S3_ENDPOINT_URL=url, AWS_ACCESS_KEY_ID="none",
                          AWS_SECRET_ACCESS_KEY="none", AWS_REGION="us-east-1", no_proxy="127.0.0.1")
        for i in range(o.rounds):
            for name, run in passes(o, folder, i, peer):
                tell(f"round {i + 1} of {o.rounds}: {name}", end=" ... ")
                begin, before, figures = time.monotonic(), limit.sent, run()
                tell(f"{time.monotonic() - begin:.1f} s")
                found.setdefault(name, []).append(figures["samples_per_s"])
                moved.setdefault(name, []).append(figures.get("fetched_bytes", limit.sent - before) / 1e6)
    print(f"{o.batches * o.batch} samples of {2 * o.sequence} bytes, {o.limit:g} MB/s, {o.rounds} rounds\n"
          f"{'':32} {'samples/s':>10} {'MB/s':>8} {'MB sent':>8}")
    for name, rates in found.items():
        rate = statistics.median(rates)
        print(f"{name:32} {rate:10.0f} {rate * 2 * o.sequence / 1e6:8.1f} {statistics.median(moved[name]):8.1f}")


if __name__ == "__main__":
    main()
