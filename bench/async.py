#!/usr/bin/env python3
"""Workers that do not wait for each other, beside workers that do: tokens a second, and loss.

    bench/async.py [--lockstep PATH] [--only slow|links] [--json FILE] [--torchft PYTHON]

Four workers, one rank each, train one small model on five books of the Bible (Debian:
bible-kjv); in each mode on the same number of tokens, with the same learning rate. Part `slow` runs
them over MPI on this machine, without and with one worker that is four times slower. Part `links`
puts each on a host of its own (network namespaces), joined by links of --mbit each way, and counts
the bytes that hosts send. With --torchft, a Python that has torch and torchft, its DiLoCo trains a
model of the same shape on the same text there (bench/peers/diloco.py; other first weights, another
order, its own split).

A worker of part `slow` has a share of a core (--share), as if by itself on a machine of that speed;
the slow one a fourth of it. The bench stops a worker (SIGSTOP) whose CPU time is ahead of its
share, and lets it go on (SIGCONT). Ranks that wait poll, and yield: here yielding sleeps (a
library of this bench is loaded before libc), so that who waits uses hardly any CPU time, and is not
stopped.
So four workers need 4 x --share of the machine's cores, and the server's rank some more. The table
has what workers used: on a busy machine they get less than their shares, and figures are worth
little. In part `links` nobody is held back, and ranks share the cores.

A step of the server is an update with one worker's gradient, of a fourth of the tokens of a
synchronous step. One worker alone makes the same number of updates, none of which is stale: what
its loss is better by is the price of staleness.

Prints Markdown; --json writes the numbers. Loss by time is that of the last 16,384 tokens trained
on. With diloco it is that of the workers, not of the parameters that they share; the validation
loss is of these. Records of workers are written when they meet; between two meetings their time is
interpolated by tokens. Runs of a parameter server are computed again from their logs by `lockstep
audit`, in another layout, and must be equal. A run whose audit differs, or that fails, ends the
bench. --self-test shows that shares are held, and that the audit finds a log of another order.
"""
import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

WORKERS, BATCH, SEQUENCE = 4, 4, 64
MODEL = f"model.arch=gpt2 model.vocab=257 model.layers=3 model.channels=64 model.heads=4 " \
        f"model.context={SEQUENCE} data.sequence={SEQUENCE} numerics.leaf_sequences={BATCH} " \
        "optim.lr=2e-3 optim.schedule=constant parallel.threads=1 log.progress=off"
WINDOW = 16384  # tokens that a training loss is the mean of
TICK_S = 0.002
YIELD = """#include <time.h>
int sched_yield(void) { return nanosleep(&(struct timespec){.tv_nsec = 50000}, 0); }
"""
SLOWER = 4
COMPENSATION = 1e4  # lambda of DC-ASGD: the best of 2, 1e3, ... 1e6 for the loss of the free server


class Mode:
    """One way to train: a step takes so many sequences, of which a worker's batch is BATCH."""

    def __init__(self, name, keys, rounds, sequences=WORKERS * BATCH, batch=BATCH, ranks=WORKERS):
        self.name, self.ranks = name, ranks
        self.server = ranks > WORKERS
        self.steps = rounds * WORKERS * BATCH // sequences
        self.keys = f"{MODEL} batch.global={batch} train.steps={self.steps} {keys} " \
                    f"eval.every={self.steps} eval.samples=256 train.save_every=0"


def sync(rounds):
    return Mode("synchronous, dp 4", f"parallel.dp={WORKERS}", rounds, batch=WORKERS * BATCH)


def alone(rounds):
    """As many updates as of a parameter server, of as many tokens each, but none is stale."""
    return Mode("one worker alone", "", rounds, sequences=BATCH, ranks=1)


def diloco(rounds, every, name="", keys=""):
    return Mode(f"DiLoCo, every {every}{name}",
                f"async.mode=diloco async.workers={WORKERS} async.sync_every={every} "
                f"parallel.workers={WORKERS} {keys}", rounds)


def server(rounds, staleness, name="", keys=""):
    bound = "free" if staleness == "free" else f"staleness {staleness}"
    return Mode(f"server, {bound}{name}",
                f"async.mode=server async.order=clock async.workers={WORKERS} "
                f"async.sync_every={rounds} async.staleness={staleness} "
                f"parallel.workers={WORKERS} parallel.servers=1 {keys}", rounds, sequences=BATCH,
                ranks=WORKERS + 1)


# ---- ranks that are held back --------------------------------------------------------------------


def cpu_s(pid):
    """CPU time of all threads of a process; 0 if it has ended."""
    total = 0
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError, IndexError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
    return total / 1e9


class Brake(threading.Thread):
    """Holds processes to shares of a core. The budget of one that waits grows to BURST_S."""
    BURST_S = 0.02

    def __init__(self, shares):
        super().__init__(daemon=True)
        self.shares = shares  # pid: share of a core
        self.over = threading.Event()
        self.used = {pid: 0.0 for pid in shares}
        self.seconds = 0.0

    def signal(self, pid, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def run(self):
        last = {pid: cpu_s(pid) for pid in self.shares}
        budget = {pid: 0.0 for pid in self.shares}
        stopped = set()
        began = before = time.monotonic()
        while not self.over.wait(TICK_S):
            now = time.monotonic()
            for pid, share in self.shares.items():
                used = max(cpu_s(pid) - last[pid], 0)
                last[pid] += used
                self.used[pid] += used
                budget[pid] = min(budget[pid] + (now - before) * share - used, self.BURST_S)
                if budget[pid] < 0 and pid not in stopped:
                    self.signal(pid, signal.SIGSTOP)
                    stopped.add(pid)
                elif budget[pid] >= 0 and pid in stopped:
                    self.signal(pid, signal.SIGCONT)
                    stopped.discard(pid)
            before = now
            self.seconds = now - began
        for pid in stopped:
            self.signal(pid, signal.SIGCONT)


# ---- hosts ---------------------------------------------------------------------------------------


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Hosts:
    """Network namespaces with names of their own, joined by a switch; each one's link is shaped.
    They end with their holders, and those with this program."""
    NETWORK = "10.79.0"

    def __init__(self, folder, count, mbit):
        self.folder, self.holders = folder, []
        self.names = [f"lsasync{i}-{os.getpid()}" for i in range(count)]
        switch = self.hold("switch")
        self.on(switch, "ip link add sw type bridge && ip link set sw up")
        shape = f"root tbf rate {mbit}mbit burst 32kb latency 200ms"
        for i, name in enumerate(self.names):
            pid = self.hold(name)
            self.on(pid, "ip link set lo up && "
                    f"ip link add cable type veth peer name port{i} netns {switch} && "
                    f"ip addr add {self.NETWORK}.{i + 1}/24 dev cable && "
                    f"ip link set cable up && tc qdisc replace dev cable {shape}")
            self.on(switch, f"ip link set port{i} master sw up && "
                    f"tc qdisc replace dev port{i} {shape}")
        self.agent = folder / "agent"
        cases = "".join(f"{name}) holder={pid} ;;\n"
                        for name, pid in zip(self.names, self.pids[1:]))
        self.agent.write_text(f"#!/bin/sh\ncase $1 in\n{cases}*) exit 255 ;;\nesac\nshift\n"
                              "exec nsenter -t $holder -n -u sh -c \"$*\"\n")
        self.agent.chmod(0o755)

    @property
    def pids(self):
        return [holder.pid for holder in self.holders]

    def hold(self, name):
        holder = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c",
                                   f"hostname {name} && echo ready && exec sleep infinity"],
                                  stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        self.holders.append(holder)
        if holder.stdout.readline() != b"ready\n":
            raise OSError("this process may not make network namespaces (root may)")
        return holder.pid

    def on(self, pid, command):
        return subprocess.run(["nsenter", "-t", str(pid), "-n", "-u", "sh", "-c", command],
                              check=True, capture_output=True, text=True).stdout

    def mpirun(self, ranks):
        network = f"{self.NETWORK}.0/24"
        return ["nsenter", "-t", str(self.pids[1]), "-n", "-u", "mpirun", "--mca", "plm_rsh_agent",
                str(self.agent), "--mca", "oob_tcp_if_include", network, "--mca",
                "btl_tcp_if_include", network, "--host",
                ",".join(f"{name}:1" for name in self.names[:ranks])]

    def sent(self):
        """Bytes that the hosts have sent."""
        total = 0
        for pid in self.pids[1:]:
            lines = pathlib.Path(f"/proc/{pid}/net/dev").read_text().splitlines()
            total += sum(int(line.split()[9]) for line in lines if line.split()[0] == "cable:")
        return total

    def close(self):
        """Ends what runs on the hosts, as launchers of a job that failed, and then the hosts."""
        networks = {os.readlink(f"/proc/{pid}/ns/net") for pid in self.pids}
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with contextlib.suppress(OSError):
                if pid not in self.pids and os.readlink(f"/proc/{pid}/ns/net") in networks:
                    os.kill(pid, signal.SIGKILL)
        for holder in self.holders:
            holder.kill()
            holder.wait()


# ---- runs ----------------------------------------------------------------------------------------


def records(run):
    with contextlib.suppress(FileNotFoundError):
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines(True)
                if line.endswith("\n")]
    return []


def curve(found):
    """(seconds, tokens, loss) of each step, since the start was recorded."""
    began = next(r["time"] for r in found if r.get("event") == "start")
    points, waiting, last = [], [], began
    asynchronous = any(r.get("event") == "meeting" for r in found)
    for record in found:
        if "loss" in record and "event" not in record:
            waiting.append(record)
        if not waiting or (asynchronous and record.get("event") != "meeting"):
            continue
        for i, r in enumerate(waiting):
            at = last + (record["time"] - last) * (i + 1) / len(waiting)
            points.append((at - began, r["tokens"], r["loss"]))
        last, waiting = record["time"], []
    return points


def smooth(points):
    """The same, each loss the mean over the last WINDOW tokens; without the first ones."""
    out, step = [], points[0][1]
    width = max(WINDOW // step, 1)
    for i in range(width - 1, len(points)):
        loss = statistics.fmean(p[2] for p in points[i - width + 1:i + 1])
        out.append((points[i][0], points[i][1], loss))
    return out


class Bench:
    def __init__(self, options, folder):
        self.o, self.folder, self.hosts, self.count = options, folder, None, 0
        with open(folder / "text.txt", "wb") as file:
            subprocess.run(["bible", "-f", "gen1:1-deu34:12"], check=True, stdout=file)
        (folder / "yield.c").write_text(YIELD)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", "yield.so", "yield.c"], cwd=folder,
                       check=True)
        subprocess.run([options.lockstep, "data", "prepare", "--input", "text.txt", "--output",
                        "corpus", "--tokenizer", "byte", "--validation", "0.1"], cwd=folder,
                       check=True, stdout=subprocess.DEVNULL)

    def command(self, mode, out):
        words = mode.keys.split() + ["data.train=corpus_train", "data.valid=corpus_valid",
                                     f"train.out={out}"]
        launcher = self.hosts.mpirun(mode.ranks) if self.hosts else ["mpirun"]
        return launcher + ["--oversubscribe", "--bind-to", "none", "-n", str(mode.ranks),
                           "sh", "-c", f"echo $$ > {out}.$OMPI_COMM_WORLD_RANK; "
                           f"LD_PRELOAD={self.folder}/yield.so exec \"$0\" train \"$@\"",
                           self.o.lockstep, *words]

    def start_await(self, job, run):
        while not records(run):
            if job.poll() is not None:
                sys.exit(f"{run.name} failed:\n{(self.folder / (run.name + '.log')).read_text()}")
            time.sleep(TICK_S)

    def train(self, mode, shares=None):
        """The records of a run, what it used, and what hosts sent."""
        self.count += 1
        run = self.folder / f"run{self.count}"
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMP_WAIT_POLICY": "passive",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "LOCKSTEP_PEAK_FLOPS": "1e12",
                       "OMPI_MCA_mpi_yield_when_idle": "1"}
        with open(self.folder / f"{run.name}.log", "w", encoding="utf-8") as log:
            job = subprocess.Popen(self.command(mode, run.name), cwd=self.folder, env=environment,
                                   stdout=log, stderr=log, preexec_fn=die_with_parent)
        brake = None
        try:
            self.start_await(job, run)
            sent = self.hosts.sent() if self.hosts else 0
            if shares:
                pids = [int((self.folder / f"{run.name}.{i}").read_text())
                        for i in range(min(mode.ranks, WORKERS))]
                brake = Brake(dict(zip(pids, shares)))
                brake.start()
            job.wait()
        finally:
            if brake:
                brake.over.set()
                brake.join()
            if job.poll() is None:
                job.terminate()  # and so its ranks
                job.wait()
        found = records(run)
        if job.returncode or not found or found[-1].get("how") != "done":
            sys.exit(f"{run.name} ({mode.name}) failed:\n"
                     f"{(self.folder / (run.name + '.log')).read_text()}")
        sent = self.hosts.sent() - sent if self.hosts else 0
        return run, found, [u / brake.seconds for u in brake.used.values()] if brake else [], sent

    def audit(self, mode, run):
        """A server's run is its log: any layout computes it again."""
        if not mode.server:
            return ""
        done = subprocess.run([self.o.lockstep, "audit", run.name, "parallel.workers=1",
                               "parallel.servers=0", "parallel.threads=1"],
                              cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{run.name} ({mode.name}): the audit differs:\n{done.stdout}{done.stderr}")
        return "equal"

    def measure(self, mode, slow, shares=None):
        run, found, used, sent = self.train(mode, shares)
        points = curve(found)
        meetings = [r for r in found if r.get("event") == "meeting"]
        stale = [r["staleness"] for r in found if "staleness" in r]
        result = {"mode": mode.name, "slow": slow, "tokens": points[-1][1],
                  "seconds": points[-1][0],
                  "tokens_per_s": points[-1][1] / points[-1][0],
                  "validation_loss": [r["validation_loss"] for r in found
                                      if "validation_loss" in r][-1],
                  "staleness_mean": statistics.fmean(stale) if stale else None,
                  "staleness_max": max(stale, default=None),
                  "wait_s": [sum(m.get(f"outer_wait_s/{g}", 0) for m in meetings)
                             for g in range(mode.ranks)] if meetings else None,
                  "cpu_share": used,
                  "sent_bytes_per_token": sent / points[-1][1] if self.hosts else None,
                  "audit": self.audit(mode, run), "curve": smooth(points)}
        print(f"{mode.name}{', one slow' if slow else ''}: {result['tokens_per_s']:,.0f} tokens/s",
              file=sys.stderr, flush=True)
        return result


    # ---- a peer ----

    def peers_start(self, every, out):
        """torchft's workers, each on its host; (process, log) of each."""
        here = pathlib.Path(__file__).resolve().parent
        address = self.hosts.NETWORK + ".%d"
        jobs = []
        for rank, pid in enumerate(self.hosts.pids[1:WORKERS + 1]):
            log = self.folder / f"{out}.{rank}.log"
            words = {"rank": rank, "workers": WORKERS, "steps": self.o.steps, "every": every,
                     "batch": BATCH, "tokens": SEQUENCE, "layers": 3, "heads": 4, "channels": 64,
                     "lr": 2e-3, "address": address % (rank + 1), "text": "text.txt",
                     "lighthouse": f"http://{address % 1}:29510", "go": f"{out}.go",
                     "out": f"{out}.{rank}.json"}
            command = ["nsenter", "-t", str(pid), "-n", "-u", self.o.torchft,
                       str(here / "peers/diloco.py"), *(f"--{k}={v}" for k, v in words.items())]
            with open(log, "w", encoding="utf-8") as file:
                jobs.append((subprocess.Popen(
                    command, cwd=self.folder, stdout=file, stderr=file, preexec_fn=die_with_parent,
                    env={**os.environ, "GLOO_SOCKET_IFNAME": "cable"}), log))
        return jobs

    def peers_await(self, jobs, word):
        """Until each has printed the word as a line."""
        while not all(word in log.read_text().splitlines() for _, log in jobs):
            for job, log in jobs:
                if job.poll() is not None:
                    sys.exit(f"torchft's worker ended:\n{log.read_text()}")
            time.sleep(TICK_S)

    def measure_peer(self, every):
        self.count += 1
        out = f"peer{self.count}"
        jobs = self.peers_start(every, out)
        try:
            self.peers_await(jobs, "ready")
            sent = self.hosts.sent()
            (self.folder / f"{out}.go").touch()
            self.peers_await(jobs, "done")
            sent = self.hosts.sent() - sent
            (self.folder / f"{out}.go.over").touch()
            for job, _ in jobs:
                job.wait()
        finally:
            for job, _ in jobs:
                job.kill()
        found = [json.loads((self.folder / f"{out}.{r}.json").read_text()) for r in range(WORKERS)]
        seconds, tokens = max(f["seconds"] for f in found), found[0]["tokens"]
        means = [statistics.fmean(losses) for losses in zip(*(f["losses"] for f in found))]
        points = [(seconds * (i + 1) / len(means), tokens * (i + 1) // len(means), loss)
                  for i, loss in enumerate(means)]
        print(f"torchft, every {every}: {tokens / seconds:,.0f} tokens/s", file=sys.stderr,
              flush=True)
        return {"mode": f"torchft's DiLoCo, every {every}", "slow": "", "tokens": tokens,
                "seconds": seconds, "tokens_per_s": tokens / seconds,
                "validation_loss": found[0]["validation_loss"], "staleness_mean": None,
                "staleness_max": None, "wait_s": None, "cpu_share": [],
                "sent_bytes_per_token": sent / tokens, "audit": "", "curve": smooth(points)}


# ---- tables --------------------------------------------------------------------------------------


def target_of(results):
    """The lowest loss, in steps of 0.05, that every run reaches."""
    worst = max(min(p[2] for p in r["curve"]) for r in results)
    return round(-(-worst // 0.05) * 0.05, 2)


def reach(result, target):
    return next(((s, t) for s, t, loss in result["curve"] if loss <= target), (None, None))


def table(results, last):
    target = target_of(results)
    name, value = last
    print(f"| mode | slow worker | tokens/s | s to loss {target:.2f} | tokens to it | "
          f"validation loss | staleness, mean (most) | {name} | audit |\n"
          "|---|---|---|---|---|---|---|---|---|")
    for r in results:
        r["target"] = target
        r["target_s"], r["target_tokens"] = reach(r, target)
        stale = f"{r['staleness_mean']:.1f} ({r['staleness_max']})" if r["audit"] else "–"
        print(f"| {r['mode']} | {r['slow'] or 'none'} | {r['tokens_per_s']:,.0f} | "
              f"{r['target_s']:.1f} | {r['target_tokens']:,} | {r['validation_loss']:.4f} | "
              f"{stale} | {value(r)} | {r['audit'] or '–'} |")
    print(flush=True)


def slow_part(bench, options):
    steps = options.steps
    modes = [sync(steps), server(steps, 2), server(steps, 8), server(steps, "free"),
             server(steps, "free", ", DC-ASGD", f"async.compensation={COMPENSATION}"),
             server(steps, "free", ", rate by staleness", "async.staleness_lr=inverse"),
             diloco(steps, 20)]
    results = [bench.measure(alone(steps), "", [options.share])]
    for slow in ("", f"{SLOWER}x"):
        shares = [options.share] * (WORKERS - 1) + [options.share / (SLOWER if slow else 1)]
        results += [bench.measure(mode, slow, shares) for mode in modes]
    print(f"\nWorkers: {options.share:.2f} of a core each; the slow one "
          f"{options.share / SLOWER:.3f}.\n")
    table(results, ("cores used by workers",
                    lambda r: ", ".join(f"{used:.2f}" for used in r["cpu_share"])))
    return results


def links_part(bench, options):
    steps = options.steps
    modes = [sync(steps), diloco(steps, 20), diloco(steps, 100),
             diloco(steps, 100, ", bf16", "async.delta=bf16"),
             diloco(steps, 100, ", int8", "async.delta=int8"),
             diloco(steps, 100, ", int8, 2 fragments, delay 5",
                    "async.delta=int8 async.fragments=2 async.delay=5"),
             server(steps, 2), server(steps, "free")]
    bench.hosts = Hosts(bench.folder, WORKERS + 1, options.mbit)
    try:
        results = [bench.measure(mode, "") for mode in modes]
        if options.torchft:
            results += [bench.measure_peer(every) for every in (20, 100)]
    finally:
        bench.hosts.close()
    print(f"\nLinks of {options.mbit} Mbit/s each way, one host a rank.\n")
    table(results, ("bytes sent a token", lambda r: f"{r['sent_bytes_per_token']:,.1f}"))
    return results


# ---- the bench itself ----------------------------------------------------------------------------


def brake_test():
    """Two busy processes use no more than their shares; on a busy machine they may use less."""
    shares = (0.2, 0.05)
    jobs = [subprocess.Popen([sys.executable, "-c", "while True: pass"],
                             preexec_fn=die_with_parent) for _ in shares]
    brake = Brake(dict(zip([job.pid for job in jobs], shares)))
    brake.start()
    time.sleep(4)
    used = [cpu_s(job.pid) for job in jobs]
    brake.over.set()
    brake.join()
    for job in jobs:
        job.kill()
        job.wait()
    for share, seconds in zip(shares, used):
        if not 0.3 * share < seconds / brake.seconds < 1.2 * share:
            sys.exit(f"self-test: a share of {share} of a core: {seconds / brake.seconds:.3f} used")


def curve_test():
    """Steps between two meetings lie evenly between them; others where they were recorded."""
    began, step = {"event": "start", "time": 10}, {"time": 14.0, "loss": 1}
    pair = [{**step, "tokens": 100}, {**step, "tokens": 200}]
    if curve([began, *pair, {"event": "meeting", "time": 14}]) != [(2, 100, 1), (4, 200, 1)] or \
            curve([began, *pair]) != [(4, 100, 1), (4, 200, 1)]:
        sys.exit("self-test: curve")


def audit_test(bench):
    """A log whose last two neighbours of different workers changed places is another run."""
    mode = server(100, "free")
    run = bench.train(mode)[0]
    bench.audit(mode, run)
    log = run / "arrivals"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    at = max(i for i in range(1, len(events) - 1)
             if events[i]["worker"] != events[i + 1]["worker"])
    a, b = events[at], events[at + 1]
    a["event"], b["event"] = b["event"], a["event"]
    events[at], events[at + 1] = b, a
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    try:
        bench.audit(mode, run)
    except SystemExit:
        return
    sys.exit("self-test: the audit of a changed log found nothing")


def self_test(bench):
    curve_test()
    brake_test()
    audit_test(bench)
    print("self-test: shares are held, and a changed log is found")


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lockstep", default=str(here / "build/lockstep"))
    parser.add_argument("--only", choices=["slow", "links"])
    parser.add_argument("--json", type=pathlib.Path, help="write the numbers, curves included")
    parser.add_argument("--steps", type=int, default=300,
                        help="synchronous steps, a multiple of 100")
    parser.add_argument("--share", type=float, default=0.4, help="of a core, for each worker")
    parser.add_argument("--torchft", metavar="PYTHON", help="beside torchft's, in part links")
    parser.add_argument("--mbit", type=int, default=100)
    parser.add_argument("--self-test", action="store_true", help="test the bench, and end")
    options = parser.parse_args()
    if options.steps < 100 or options.steps % 100:
        parser.error("--steps: expected a multiple of 100, so that all modes end with a meeting")
    options.lockstep = os.path.abspath(options.lockstep)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {WORKERS} workers of "
          f"{BATCH * SEQUENCE} tokens a step, "
          f"{options.steps * WORKERS * BATCH * SEQUENCE:,} tokens in all.")
    numbers = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, pathlib.Path(folder))
        if options.self_test:
            self_test(bench)
            return
        if options.only != "links":
            numbers["slow"] = slow_part(bench, options)
        if options.only != "slow":
            numbers["links"] = links_part(bench, options)
    if options.json:
        options.json.write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
