"""What the tools that disturb `lockstep launch` share: a job, its processes, its records."""

import json
import os
import shlex
import signal
import subprocess

LOCKSTEP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                        os.environ.get("BUILD", "build"), "lockstep")
RANKS = 4


class Hosts:
    """Two hosts of network namespaces (test/hosts/hosts.h), until it is closed."""

    def __init__(self):
        program = os.path.join(os.path.dirname(LOCKSTEP), "test", "hosts", "test_launch_hosts")
        self.holder = subprocess.Popen([program, "--hold"], stdin=subprocess.PIPE, text=True,
                                       stdout=subprocess.PIPE)
        self.words = shlex.split(self.holder.stdout.readline())
        self.file = self.holder.stdout.readline().strip()

    def __bool__(self):
        return bool(self.words)

    def close(self):
        self.holder.stdin.close()
        self.holder.wait()


class Job:
    """A job of 4 MPI ranks on this machine that trains into FOLDER/run; hosts: on two of its own."""

    def __init__(self, folder, keys, environment=None, hosts=None):
        self.folder = folder
        self.out = os.path.join(folder, "run")
        self.word = f"train.out={self.out}"
        before, after = (hosts.words, ["--hosts", hosts.file]) if hosts else ([], [])
        self.words = [*before, LOCKSTEP, "launch", *after, *keys, self.word]
        self.environment = {**{name: value for name, value in os.environ.items()
                               if not name.startswith("SLURM_")},
                            "OMP_WAIT_POLICY": "passive", **(environment or {})}
        self.launcher = None
        with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"{i % 100} bottles of beer on the wall,\n" for i in range(1200))
        subprocess.run([LOCKSTEP, "data", "prepare", "--input", "text.txt", "--output", "corpus",
                        "--tokenizer", "byte"], cwd=folder, check=True, stdout=subprocess.DEVNULL)

    def start(self):
        with open(os.path.join(self.folder, "log"), "a", encoding="utf-8") as log:
            self.launcher = subprocess.Popen(self.words, cwd=self.folder, env=self.environment,
                                             stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                             start_new_session=True)

    def ended(self):
        """Its launcher's exit code; None: it runs."""
        return self.launcher.poll()

    def stop(self):
        """Asks it to save and end, as a person does; its exit code."""
        if self.launcher.poll() is None:
            self.launcher.send_signal(signal.SIGTERM)
        return self.launcher.wait()

    def records(self, name, out=None):
        """Of metrics.jsonl or events.jsonl, whole lines; of the job's run or another."""
        try:
            with open(os.path.join(out or self.out, name), encoding="utf-8") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def processes(self):
        """pid: (words, rank or None) of each process of the job that runs."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().decode(errors="replace").split("\0")
                if self.word not in words:
                    continue
                with open(f"/proc/{pid}/environ", "rb") as file:
                    environ = dict(line.split("=", 1) for line in
                                   file.read().decode(errors="replace").split("\0") if "=" in line)
            except OSError:
                continue
            found[int(pid)] = words, environ.get("OMPI_COMM_WORLD_RANK")
        return found

    def ranks(self):
        """rank: pid"""
        return {int(rank): pid for pid, (_, rank) in self.processes().items() if rank is not None}

    def hosts(self):
        """The pids of each host's ranks."""
        found = {}
        for pid in self.ranks().values():
            try:
                found.setdefault(os.readlink(f"/proc/{pid}/ns/uts"), []).append(pid)
            except OSError:
                continue
        return list(found.values())

    def mpirun(self):
        return [pid for pid, (words, rank) in self.processes().items()
                if rank is None and os.path.basename(words[0]) == "mpirun"]

    def said(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as file:
            return file.read()[-4000:]
