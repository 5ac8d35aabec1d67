#!/usr/bin/env python3
"""Runs the commands of README.md and of doc/fine-tuning.md as they stand there, and compares what
they print.

    tools/check-readme.py [--self-test] [PAGE...]

An indented line that begins with "$ " is a command, with the lines after a backslash; what follows
it is what it prints: each line must appear, in this order, among the command's own. "..." stands
for anything. A ```yaml block after "Say this is `NAME`" is written to NAME. `make` alone is left
out: it has run. All of a page happens in a new folder, in which build, configs, clusters and runs are those that
a clone would have.

Without AVX2, or without MPI for a command that begins with mpirun, nothing is run and a line says
so.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
HASH = re.compile(r"\b[0-9a-f]{32}\b")
TIMEOUT_S = 300
PAGES = ["README.md", "doc/fine-tuning.md"]


def parse(text):
    """(files, commands): {name: content}, and (line, command, expected lines) in order."""
    files, commands, name, fence, going_on = {}, [], None, False, False
    for number, line in enumerate(text.splitlines(), 1):
        said = re.search(r"Say this is `([\w.-]+)`", line)
        name = said.group(1) if said else name
        if line.startswith("```"):
            fence = line == "```yaml" and name is not None
        elif fence:
            files[name] = files.get(name, "") + line + "\n"
        elif line.startswith("    $ "):
            commands.append([number, line[6:], []])
            going_on = True
        elif not line.startswith("    "):
            going_on = False
        elif going_on and commands[-1][1].endswith("\\"):
            commands[-1][1] = commands[-1][1][:-1] + line.strip()
        elif going_on:
            commands[-1][2].append(line.strip())
    return files, commands


def matches(expected, line, hashes):
    """Whether a line that was printed is the expected one; `hashes` maps README's to ours."""
    wanted = HASH.search(expected)
    here = HASH.search(line)
    if wanted and here:
        if hashes.setdefault(wanted.group(), here.group()) != here.group():
            return False
        line = line.replace(here.group(), wanted.group())
    words = [re.escape(part) for part in " ".join(expected.split()).split("...")]
    return re.fullmatch(".*".join(words), " ".join(line.split())) is not None


def missing(expected, printed, hashes):
    """The first expected line that was not printed in its turn, or None."""
    lines = iter(printed.splitlines())
    for want in expected:
        if want != "..." and not any(matches(want, line, hashes) for line in lines):
            return want
    return None


def run_all(readme, folder):
    files, commands = parse(readme)
    for name, content in files.items():
        (folder / name).write_text(content)
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMP_WAIT_POLICY="passive", ASAN_OPTIONS="detect_leaks=0")
    findings, hashes = [], {}
    for number, command, expected in commands:
        if command == "make":
            continue
        if command.startswith("mpirun") and not shutil.which("mpirun"):
            print(f"SKIPPED: README.md:{number}: there is no mpirun")
            continue
        done = subprocess.run(["timeout", str(TIMEOUT_S), "sh", "-c", command], cwd=folder,
                              env=environment, capture_output=True, text=True, errors="replace",
                              check=False)
        printed = done.stdout + done.stderr
        want = missing(expected, printed, hashes)
        if done.returncode or want:
            what = f"exit code {done.returncode}" if done.returncode else f"not printed: {want}"
            shown = "\n    ".join(printed.splitlines()[-15:])
            findings.append(f"README.md:{number}: {command}\n    {what}\n    {shown}")
    return findings, hashes, len(commands)


def other_bits(hashes):
    return [f"README.md: the hash is {theirs} there and {ours} here: if bits were meant to change, "
            "write the new one" for theirs, ours in hashes.items() if theirs != ours]


BROKEN = """Say this is `a.yaml`:

```yaml
a: 1
```

    $ cat a.yaml
    a: 2
    $ false
    $ echo af603b1af9ae4f3adad007c9794cbe9e
    af603b1af9ae4f3adad007c9794cbe9d
    $ echo af603b1af9ae4f3adad007c9794cbe9c
    af603b1af9ae4f3adad007c9794cbe9d
    $ printf 'two\\none\\n'
    one
    two
    $ echo one two \\
          three
    one ... three
"""


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        findings, hashes, count = run_all(BROKEN, pathlib.Path(folder))
    found = len(findings) == 4 and len(other_bits(hashes)) == 1 and count == 6
    print(f"check-readme: self-test: {'every' if found else 'not every'} fault found")
    return 0 if found else 1


def main():
    words = sys.argv[1:]
    if words == ["--self-test"]:
        return self_test()
    if self_test():
        return 1
    flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    if " avx2 " not in flags:
        print("SKIPPED: README.md: its numbers are those of AVX2, which this machine lacks")
        return 0
    pages = map(pathlib.Path, words) if words else [ROOT / page for page in PAGES]
    return max([check(page) for page in pages])


def check(page):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "build").symlink_to((ROOT / os.environ.get("BUILD", "build")).resolve())
        (folder / "configs").symlink_to(ROOT / "configs")
        (folder / "clusters").symlink_to(ROOT / "clusters")
        findings, hashes, count = run_all(page.read_text(encoding="utf-8"), folder)
    findings += other_bits(hashes)
    print("\n".join(findings))
    print(f"check-readme: {page.name}: {count} commands, {len(findings)} finding(s)")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
