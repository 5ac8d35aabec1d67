#!/usr/bin/env python3
"""Loading of shuffled samples from a web server that sends so many bytes a second and no more:
`lockstep bench data` beside that limit, with and without a cache.

    bench/peers/elsewhere.py [--megabytes 64] [--limit 40] [--sequence 1024] [--batch 32] [--rounds 3]
                             [--lockstep build/lockstep]

The server is on loopback; its limit, in MB/s, holds over all connections. A store of random tokens is
made by this script. The first pass reads from the server, one sample after the other in a random order; with
a cache a second pass reads what the first has kept."""
import argparse
import http.server
import json
import os
import random
import socketserver
import statistics
import subprocess
import tempfile
import threading
import time


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


def serve(path, limit):
    size = os.path.getsize(path)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def head(self, code, count, extra=()):
            self.send_response(code)
            self.send_header("Content-Length", str(count))
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", '"1"')
            for name, value in extra:
                self.send_header(name, value)
            self.end_headers()

        def known(self):
            if self.path == "/tokens.bin":
                return True
            self.head(404, 0)
            return False

        def do_HEAD(self):
            if self.known():
                self.head(200, size)

        def do_GET(self):
            if not self.known():
                return
            first, last = 0, size - 1
            if "Range" in self.headers:
                first, last = (int(x) for x in self.headers["Range"].split("=")[1].split("-"))
                last = min(last, size - 1)
            self.head(206, last - first + 1, [("Content-Range", f"bytes {first}-{last}/{size}")])
            with open(path, "rb") as file:
                file.seek(first)
                left = last - first + 1
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


def ours(o, url, cache, batches):
    words = [o.lockstep, "bench", "data", f"data=u16:{url}", f"sequence={o.sequence}", f"batch={o.batch}",
             f"batches={batches}", "rounds=1"]
    output = subprocess.run(words + ([f"cache={cache}"] if cache else []), check=True, capture_output=True,
                            text=True).stdout
    return json.loads(output.splitlines()[-1])["samples_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--limit", type=float, default=40)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lockstep", default="build/lockstep")
    o = parser.parse_args()
    found = {"without a cache": [], "with a cache, first pass": [], "with a cache, second pass": []}
    moved = {"without a cache": [], "with a cache, first pass": [], "with a cache, second pass": []}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokens.bin")
        with open(path, "wb") as file:
            random.seed(1)
            for _ in range(o.megabytes):
                file.write(bytes(random.randrange(0, 100) if i % 2 else 1 for i in range(2)) * (1 << 19))
        batches = (o.megabytes << 19) // o.sequence // o.batch
        limit = Limit(o.limit * 1e6)
        server = serve(path, limit)
        url = f"http://127.0.0.1:{server.server_port}/tokens.bin"
        for i in range(o.rounds):
            cache = os.path.join(folder, f"cache{i}")
            for name, where in zip(found, (None, cache, cache)):
                before, begin = limit.sent, time.monotonic()
                found[name].append(ours(o, url, where, batches))
                moved[name].append((limit.sent - before) / 1e6 / (time.monotonic() - begin))
    for name in found:
        rate = statistics.median(found[name])
        need = rate * 2 * o.sequence / 1e6
        print(f"{name:26} {rate:10.0f} samples/s, {need:8.1f} MB/s of tokens; "
              f"the server sent {statistics.median(moved[name]):.1f} of {o.limit:g} MB/s")


if __name__ == "__main__":
    main()
