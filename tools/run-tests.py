#!/usr/bin/env python3
"""Runs test programs side by side, one line each, and shows what those that fail printed.

    tools/run-tests.py [--jobs N] [--record] [--under COMMAND] PROGRAM ...
    tools/run-tests.py --summary FILE    the last lines for all runs that wrote to $TEST_RESULTS

Order     The longest first: test/weights.txt has the seconds that each program took, as --record
          measured them. A program that is not there is taken for long.
Marks     A test's source may name, in a line `/* check: WORD ... */` near its top, what it needs:
          `cores`    every core of this machine: nothing runs beside it
          `threads`  every core, but others run beside it
          `network`  a network of its own, and every core: one such program at a time
          `waits`    hardly a core: it is not counted among those that run at a time
          `disk`     a file system on a disk: its scratch folders are no files in memory
Cores     Without CHECK, all other programs have one core each: threads and ranks that wait for each
          other there take a tenth less CPU time. With CHECK=few, under sanitizers, and CHECK=all they
          have all cores.
Scratch   Without TMPDIR and CHECK=all, scratch folders are in /dev/shm if it has room: a disk costs
          more CPU time than memory, and makes programs wait.
Sets      The programs that $ISA_TESTS names run once more on each lesser instruction set of the
          machine (LOCKSTEP_ISA), all of them with CHECK=all, otherwise those of `ops` alone. The
          set avx512_bf16 is left out where amx is: the first run used its kernels.
Stuck     Tests wait for events and have no limits of their own. A program is ended if all its
          processes together use more than CPU_MAX seconds of CPU time, or if at IDLE_MAX looks
          none of its processes had used or wanted a core since the look before. Neither counts
          what a busy machine or a clock that jumps takes.
Skipped   A line `SKIPPED: what: reason` in what a program prints says that a part of it could not
          run here: Slurm's daemons did not come up, this machine lacks an instruction set. These
          parts are counted and their lines shown.

The last lines are the CPU time, the ten programs that took most of it, and
`N passed, N failed, N skipped`. The exit code is 1 if a program failed.
"""

import argparse
import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

CPU_MAX = 1200  # seconds of CPU time
IDLE_MAX = int(os.environ.get("IDLE_MAX", 120))  # looks, LOOK_S apart
LOOK_S = 1
CORES = len(os.sched_getaffinity(0))
JOBS = int(os.environ.get("TEST_JOBS", CORES + (CORES + 1) // 2))
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WEIGHTS = os.path.join(ROOT, "test", "weights.txt")
LONG = 1e9  # the weight of a program that was never measured
TAG = "LOCKSTEP_TEST"  # in the environment of all that a program starts
PR_SET_CHILD_SUBREAPER = 36
ENDING = (signal.SIGTERM, signal.SIGHUP)
MEMORY = "/dev/shm"
MEMORY_MIN = 8 << 30  # bytes; a run of all programs takes less than a tenth


class Program:
    def __init__(self, path, isa, under=""):
        self.command = [*under.split(), path]
        self.isa = isa
        build = os.environ.get("BUILD", "build") + "/"
        self.key = path.removeprefix(build)
        self.name = self.key + (f", {isa}" if isa else "")
        self.marks = marks_of(self.key)
        self.tag = f"{os.getpid()}.{self.name}".replace(" ", "")
        self.used = {}  # process -> CPU seconds when last seen
        self.idle = 0
        self.cpu_s = 0.0
        self.why = ""

    def start(self, scratch, cores):
        self.cores = cores
        self.log = tempfile.TemporaryFile()
        environment = dict(os.environ, **{TAG: self.tag})
        if self.isa:
            environment["LOCKSTEP_ISA"] = self.isa
        if scratch and "disk" not in self.marks:
            environment["TMPDIR"] = scratch
        self.begin_s = time.monotonic()
        own = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores)  # a child takes them over
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=subprocess.STDOUT, env=environment)
        os.sched_setaffinity(0, own)

    def end(self, status, usage):
        self.code = os.waitstatus_to_exitcode(status)
        self.process.returncode = self.code
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.wall_s = time.monotonic() - self.begin_s
        self.log.seek(0)
        self.output = self.log.read().decode(errors="replace")
        self.log.close()
        self.skips = sorted(set(re.findall(r"^SKIPPED: (.*)$", self.output, re.MULTILINE)))
        self.word = "FAIL" if self.code else "ok"


def marks_of(key):
    try:
        with open(os.path.join(ROOT, key + ".c"), encoding="utf-8") as file:
            found = re.search(r"^/\* check: (.*) \*/$", file.read(4000), re.MULTILINE)
    except OSError:
        return set()
    return set(found.group(1).split()) if found else set()


# ---- what processes do ------------------------------------------------------------------------------


def stat_of(path):
    """The fields of a /proc stat file from the state on; None for a process that is gone."""
    try:
        with open(path, "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


class Processes:
    """The processes of this machine that carry a tag, whoever their parents are."""

    def __init__(self):
        self.tags = {}  # (pid, start time) -> tag
        self.begun = int(stat_of("/proc/self/stat")[19])

    def look(self):
        """tag -> [(pid, CPU seconds)]"""
        found, tags = {}, {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            stat = stat_of(f"/proc/{pid}/stat")
            if not stat or int(stat[19]) < self.begun:
                continue  # what was there before this run is not its own
            key = (pid, stat[19])
            # A process takes its tag over when it starts, and may not be readable at once.
            tag = self.tags.get(key) or self.tag_read(pid)
            if not tag:
                continue
            tags[key] = tag
            cpu_s = (int(stat[11]) + int(stat[12])) * TICK_S
            found.setdefault(tag, []).append((int(pid), cpu_s))
        self.tags = tags
        return found

    def end(self):
        """Ends all that programs of this run left; another run's have another process in their tags."""
        for tag, seen in self.look().items():
            if tag.startswith(f"{os.getpid()}."):
                end_all(seen)

    @staticmethod
    def tag_read(pid):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                found = re.search(rb"(?:^|\0)LOCKSTEP_TEST=([^\0]*)", file.read())
        except OSError:
            return None
        return found.group(1).decode() if found else None


def wants_core(pid):
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    states = (stat_of(f"/proc/{pid}/task/{thread}/stat") for thread in threads)
    return any(stat and stat[0] in (b"R", b"D") for stat in states)


def gets_nowhere(program, seen):
    """Why a program is to be ended, if it is."""
    before = sum(program.used.values())
    for pid, cpu_s in seen:
        program.used[pid] = max(cpu_s, program.used.get(pid, 0))
    used = sum(program.used.values()) - before
    if used <= TICK_S and not any(wants_core(pid) for pid, _ in seen):
        program.idle += 1
    if program.idle > IDLE_MAX:
        return f"its processes waited without using a core at {IDLE_MAX} looks"
    if sum(program.used.values()) > CPU_MAX:
        return f"its processes used more than {CPU_MAX} s of CPU time"
    return ""


def describe(seen):
    lines = []
    for pid, cpu_s in seen:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read().replace(b"\0", b" ").decode(errors="replace")[:150]
            with open(f"/proc/{pid}/wchan", encoding="utf-8") as file:
                where = file.read()
        except OSError:
            continue
        lines.append(f"process {pid}, {cpu_s:.2f} s of CPU time, in {where}: {command}")
    return lines


def end_all(seen):
    for pid, _ in seen:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


# ---- the run ----------------------------------------------------------------------------------------


class Run:
    def __init__(self, programs, jobs, scratch):
        self.waiting = programs
        self.jobs = jobs
        self.scratch = scratch
        self.running = {}  # pid -> program
        self.ended = []
        self.processes = Processes()
        self.look_s = 0.0
        self.woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def next_program(self):
        """The first of those that wait and that what runs leaves room for."""
        running = self.running.values()
        if any("cores" in p.marks for p in running):
            return None
        full = sum("waits" not in p.marks for p in running) == self.jobs
        network = any("network" in p.marks for p in running)
        for i, program in enumerate(self.waiting):
            if not ("cores" in program.marks and running or
                    "network" in program.marks and network or
                    full and "waits" not in program.marks):
                return self.waiting.pop(i)
        return None

    def cores_for(self, program):
        """All, or the one on which the fewest programs run."""
        cores = os.sched_getaffinity(0)
        if os.environ.get("CHECK") or {"cores", "network", "threads"} & program.marks:
            return cores
        others = [p.cores for p in self.running.values() if "waits" not in p.marks]
        return {min(sorted(cores), key=lambda core: sum(core in taken for taken in others))}

    def start_some(self):
        while program := self.next_program():
            program.start(self.scratch, self.cores_for(program))
            self.running[program.process.pid] = program

    def reap(self):
        """Takes in every child that has ended; orphans of programs are children of this process."""
        while self.running:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.running:
                program = self.running.pop(pid)
                program.end(status, usage)
                # What a program leaves behind belongs to nobody. Daemons are not in its usage.
                left = self.processes.look().get(program.tag, [])
                gets_nowhere(program, left)
                program.cpu_s = max(program.cpu_s, sum(program.used.values()))
                end_all(left)
                self.ended.append(program)
                report(program)

    def watch(self):
        if time.monotonic() - self.look_s < LOOK_S:
            return
        self.look_s = time.monotonic()
        seen = self.processes.look()
        for program in self.running.values():
            processes = seen.get(program.tag, [])
            why = gets_nowhere(program, processes)
            if why and not program.why:
                program.why = "\n".join([f"ended: {why}", *describe(processes)])
            if program.why:
                end_all(processes)

    def all(self):
        while self.waiting or self.running:
            self.start_some()
            self.watch()
            if select.select([self.woken], [], [], LOOK_S)[0]:  # a child has ended
                os.read(self.woken, 4096)
            self.reap()


def report(program):
    if program.word == "FAIL":
        print(f"FAIL  {program.name}: exit code {program.code}", flush=True)
        passed = re.compile(r"\[ RUN      \]|\[       OK \]")
        lines = [line for line in program.output.splitlines() if not passed.match(line)]
        lines = lines[-60:] + program.why.splitlines()
        print("\n".join("      " + line for line in lines), flush=True)
        return
    cases = re.findall(r"^\[  PASSED  \] (\d+) test", program.output, re.MULTILINE)
    skipped = re.findall(r"^\[  SKIPPED \] (\d+) test", program.output, re.MULTILINE)
    text = f", {cases[-1]} cases" if cases else ""
    text += f", {skipped[-1]} skipped" if skipped else ""
    print(f"{program.word:4}  {program.name} ({program.cpu_s:.1f} s{text})", flush=True)
    for line in program.skips:
        print(f"      SKIPPED: {line}", flush=True)


def scratch_in_memory():
    """A folder for the scratch folders of programs; None: they take what the system gives."""
    if os.environ.get("TMPDIR") or os.environ.get("CHECK") == "all" or not os.path.isdir(MEMORY):
        return None
    about = os.statvfs(MEMORY)
    with open("/proc/meminfo", encoding="ascii") as file:
        available = int(re.search(r"^MemAvailable: *(\d+) kB", file.read(), re.MULTILINE)[1]) << 10
    room = min(available, about.f_bavail * about.f_frsize)
    if room < MEMORY_MIN or about.f_flag & os.ST_NOEXEC or not os.access(MEMORY, os.W_OK):
        return None  # programs start scripts that they wrote
    scratch = tempfile.TemporaryDirectory(prefix="lockstep-check-", dir=MEMORY,
                                          ignore_cleanup_errors=True)
    os.chmod(scratch.name, 0o711)  # some programs become another user
    return scratch


# ---- what runs --------------------------------------------------------------------------------------


def weights_read():
    weights = {}
    if os.path.exists(WEIGHTS):
        with open(WEIGHTS, encoding="utf-8") as file:
            for line in file:
                if not line.startswith("#"):
                    name, _, seconds = line.rpartition(" ")
                    weights[name] = float(seconds)
    return weights


def weights_write(ended):
    weights = weights_read()
    weights.update((p.name, p.wall_s) for p in ended if p.code == 0)
    known = {n: s for n, s in weights.items() if os.path.exists(source_of(n))}
    with open(WEIGHTS, "w", encoding="utf-8") as file:
        file.write("# Seconds that each program of `make check` took, the longest first. They decide the\n"
                   "# order alone. `make check RECORD=1` writes them.\n")
        for name, seconds in sorted(known.items(), key=lambda item: -item[1]):
            file.write(f"{name} {seconds:.1f}\n")


def source_of(name):
    path = os.path.join(ROOT, name.partition(",")[0])
    return path if path.endswith((".py", ".sh")) else path + ".c"


def lesser_sets():
    """The instruction sets of this machine below the one that programs use by themselves."""
    doctor = subprocess.run([os.environ["LOCKSTEP"], "doctor"], capture_output=True, text=True,
                            check=False).stdout
    found = re.search(r"^ *instruction sets *([a-z0-9_, ]*)$", doctor, re.MULTILINE)
    if not found:
        sys.exit(f"FAIL  {os.environ['LOCKSTEP']} doctor names no instruction set")
    *lesser, best = found.group(1).replace(",", "").split()
    return [isa for isa in lesser if not (isa == "avx512_bf16" and best == "amx")]


def programs_of(paths, under):
    for path in paths:
        if not os.path.exists(path):
            sys.exit(f"run-tests: {path}: there is no such program")
    programs = [Program(path, "", under) for path in paths]
    again = set(os.environ.get("ISA_TESTS", "").split()) & set(paths)
    if os.environ.get("CHECK") != "all":
        again = {path for path in again if "/test/ops/" in path}
    if again:
        programs += [Program(path, isa) for isa in lesser_sets() for path in sorted(again)]
    weights = weights_read()
    return sorted(programs, key=lambda p: ("cores" not in p.marks, -weights.get(p.name, LONG)))


# ---- what is said at the end ------------------------------------------------------------------------


def results_write(ended):
    """One line a program: word, seconds of CPU time, build and name, parts that were skipped."""
    if not (path := os.environ.get("TEST_RESULTS")):
        return
    build = os.environ.get("BUILD", "build")
    with open(path, "a", encoding="utf-8") as file:
        for p in ended:
            name = p.name if build == "build" else f"{build}: {p.name}"
            print(p.word, f"{p.cpu_s:.2f}", name, *p.skips, sep="\t", file=file)


def summary(rows):
    """The programs that took most, and how many passed; rows of (word, seconds, name, parts that were
    skipped)."""
    for _, seconds, name, _ in sorted(rows, key=lambda row: -row[1])[:10]:
        print(f"  {seconds:6.1f} s  {name}")
    failed = sum(row[0] == "FAIL" for row in rows)
    skipped = sum(len(row[3]) for row in rows)
    print(f"{len(rows) - failed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def summary_of_file(path):
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    rows = [(word, float(seconds), name, skips) for word, seconds, name, *skips in rows]
    for _, _, name, skips in rows:
        for skip in skips:
            print(f"  SKIPPED in {name}: {skip}")
    print("most CPU time:")
    return summary(rows)


def self_test():
    works = {"ends its own programs alone": ends_its_own(),
             "ends all when it is ended": ends_all_when_ended()}
    for what, good in works.items():
        print(f"run-tests: self-test: {what if good else 'FAILED: ' + what}")
    return 0 if all(works.values()) else 1


def ends_its_own():
    """Two programs that wait, ours and one of a run beside this: at the end ours alone is ended."""
    begun = [subprocess.Popen(["cat"], stdin=subprocess.PIPE, env=dict(os.environ, **{TAG: tag}))
             for tag in (f"{os.getpid()}.ours", f"{os.getppid()}.other")]
    processes = Processes()
    while not all(any(pid == b.pid for seen in processes.look().values() for pid, _ in seen)
                  for b in begun):
        pass  # each begins with the tag of nobody
    processes.end()
    ours = begun[0].wait()
    other = begun[1].poll()
    begun[1].communicate()
    return ours == -signal.SIGKILL and other is None


def ends_all_when_ended():
    """A run whose program waits gets SIGTERM: the program and the run's scratch folder are gone."""
    environment = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "CHECK")}
    with tempfile.TemporaryDirectory() as folder:
        program, told, waits = (os.path.join(folder, name) for name in ("program", "told", "waits"))
        os.mkfifo(told)
        os.mkfifo(waits)
        with open(program, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec 3>{told}\necho "$TMPDIR" >&3\n'
                       f"read line <{waits}\necho goes on >&3\n")
        os.chmod(program, 0o755)
        run = subprocess.Popen([sys.executable, __file__, program], env=environment,
                               stdout=subprocess.DEVNULL)
        with open(told, encoding="utf-8") as file:
            scratch = file.readline().strip()
            run.terminate()
            code = run.wait()
            writes = os.open(waits, os.O_RDWR)
            os.write(writes, b"go on\n")
            said = file.read()
            os.close(writes)
    return code == 128 + signal.SIGTERM and not said and not (scratch and os.path.exists(scratch))


def ended(number, _):
    """The run is to end: what it started and its scratch folder end with it."""
    for signal_number in ENDING:
        signal.signal(signal_number, signal.SIG_IGN)
    sys.exit(128 + number)


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jobs", type=int, default=JOBS,
                         help="programs at a time; by default $TEST_JOBS, or some more than cores: some wait")
    options.add_argument("--record", action="store_true", help="write test/weights.txt")
    options.add_argument("--under", default="", help="a command that runs the programs")
    options.add_argument("--summary", metavar="FILE")
    options.add_argument("--self-test", action="store_true")
    options.add_argument("programs", nargs="*")
    arguments = options.parse_args()
    if arguments.self_test:
        return self_test()
    if arguments.summary:
        return summary_of_file(arguments.summary)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Ranks and their threads are more than cores here: those that wait have to sleep.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Hundreds of small runs need not measure the machine each.
    os.environ.setdefault("LOCKSTEP_PEAK_FLOPS", "1e12")
    # On a slow machine a command prints no more lines than on a fast one.
    os.environ.setdefault("LOCKSTEP_PROGRESS", "off")
    # MPI and its launcher need not look at the bus of the machine, which takes a third of their start.
    os.environ.setdefault("HWLOC_COMPONENTS", "-pci,-linuxio")
    for number in ENDING:
        signal.signal(number, ended)
    begin_s = time.monotonic()
    programs = programs_of(arguments.programs, arguments.under)
    scratch = scratch_in_memory()
    run = Run(programs, max(arguments.jobs, 1), scratch and scratch.name)
    try:
        run.all()
    finally:
        run.processes.end()
        if scratch:
            scratch.cleanup()
    if arguments.record:
        weights_write(run.ended)
    results_write(run.ended)
    print(f"{sum(os.times()[:4]):.0f} s of CPU time, {time.monotonic() - begin_s:.0f} s; "
          "most of it:")
    return summary([(p.word, p.cpu_s, p.name, p.skips) for p in run.ended])


if __name__ == "__main__":
    sys.exit(main())
