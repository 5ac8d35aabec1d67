#!/usr/bin/env python3
"""Runs the commands of README.md and of the pages under doc/ as they stand there, and compares
what they print.

    tools/check-pages.py [--self-test] [PAGE...]

Without PAGE: every page with CHECK=all, otherwise those of QUICK. A page says, in its order:

Commands  An indented block whose first line begins with a program's name is all commands. In a
          block with "$ " these begin a command, and what follows one is what it prints: each line
          must appear, in this order, among the command's own. "..." stands for anything, and a
          line may go on in the next. A command goes to the shell as it stands, with the lines
          after a backslash. `export` holds for the commands behind it.
Errors    A command whose shown output begins with "lockstep: " or "lockstep COMMAND: " must fail.
Files     A fenced block after "Say this is `NAME`" is written to NAME.
Python    A fenced block of python that begins with ">>>" is a session, one for the page; what it
          prints is compared as above (tools/doc_session.py). It needs a Python with numpy: $PYTHON,
          this one, or the system's.
Not run   A block behind a text that ends in "(needs SOMETHING):". These are counted.

All of a page happens in a new folder, which is HOME too. It holds what LENT names of the clone, and
`lockstep` is found. `make` is run in the clone itself; alone it is left out, since it has run.

The last lines say how many commands of each page ran and which did not. TIMES=1 prints what each
took. Without AVX2, or without MPI for a command with mpirun, nothing is run and a line says so.
"""

import functools
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
HASH = re.compile(r"\b[0-9a-f]{32}\b")
NAMED = re.compile(r"[Ss]ay this is `([\w./-]+)`")
NEEDS = re.compile(r"\(needs ([^()]+)\):$")
PROGRAM = re.compile(
    r"([A-Z_]+=\S* )*((build/)?lockstep( \w+)* [^ :]+( |$)|(apt-get|bench/\S+|bible|build/\S+|cat|cc|"
    r"cmp|cp|docker|export|head|kill|make|mkdir|mpirun|prlimit|printf|python3|sbatch|srun|tools/\S+)"
    r"( |$))")
ERROR = re.compile(r"lockstep( [a-z]+)*: (?!warning|info)")
# Of `make check`: some four seconds of CPU time in all, and none that calls make.
QUICK = [f"doc/{name}.md" for name in (
    "convert data library memory models python troubleshooting "
    "parallel/context-parallel parallel/pipeline-parallel parallel/sequence-parallel "
    "parallel/tensor-parallel parallel/together parallel/zero").split()]
LENT = ["clusters", "configs", "examples"]
JOINED_MAX = 4  # lines of a page that are one printed line


class Block:
    """An indented block: its lines without the indentation, and what the text before says it needs."""

    def __init__(self, number, line, needs):
        self.number = number
        self.indent = len(line) - len(line.lstrip())
        self.needs = needs
        self.lines = []

    def commands(self):
        """[(line number, command, expected lines)], none if the block shows something else."""
        prompted = any(line.startswith("$ ") for line in self.lines)
        if not prompted and not PROGRAM.match(self.lines[0]):
            return []
        found, going_on = [], False
        for number, line in enumerate(self.lines, self.number):
            if going_on:
                found[-1][1] += "\n" + line
            elif line.startswith("$ ") or line and not prompted:
                found.append([number, line.removeprefix("$ "), []])
            elif found:
                found[-1][2].append(line.strip())
            going_on = line.endswith("\\") and not found[-1][2]
        return found


def parse(text):
    """What a page says in its order: ("file", name, content), ("python", line, text) and ("block",
    Block)."""
    steps, said, before, fence, block = [], "", "", None, None
    for number, line in enumerate(text.splitlines(), 1):
        name = NAMED.search(said)
        if line.startswith("```"):
            if fence and fence[0].startswith(">>> "):
                steps.append(("python", number - len(fence), "".join(fence)))
            elif fence is not None and name:
                steps.append(("file", name.group(1), "".join(fence)))
                said = ""
            fence = [] if fence is None else None
        elif fence is not None:
            fence.append(line + "\n")
        elif block and (not line or line.startswith(" " * block.indent)):
            block.lines.append(line[block.indent:])
        elif line.startswith("    "):
            needs = NEEDS.search(said)
            block = Block(number, line, needs.group(1) if needs else None)
            block.lines.append(line[block.indent:])
            steps.append(("block", block))
            said = ""
        elif line:
            said, block = f"{said} {line}" if before else line, None
        before = line
    return steps


def matches(expected, line, hashes):
    """Whether a line that was printed is the expected one; `hashes` maps the page's to ours."""
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
    wanted = [line for line in expected if line not in ("", "...")]
    for line in printed.splitlines():
        for count in range(1, min(JOINED_MAX, len(wanted)) + 1):
            if matches(" ".join(wanted[:count]), line, hashes):
                wanted = wanted[count:]
                break
    return wanted[0] if wanted else None


class Page:
    def __init__(self, path, folder):
        self.path = path
        self.folder = folder
        self.findings = []
        self.not_run = []
        self.ran = 0
        self.hashes = {}
        self.exports = []
        self.environment = dict(
            os.environ, HOME=str(folder), PATH=f"{folder}/build:{os.environ['PATH']}",
            OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
            OMPI_MCA_rmaps_base_oversubscribe="1", OMP_WAIT_POLICY="passive",
            ASAN_OPTIONS="detect_leaks=0")
        self.environment.pop("MAKEFLAGS", None)
        self.session = None

    def run_all(self, text):
        for kind, *what in parse(text):
            if kind == "file":
                (self.folder / what[0]).write_text(what[1], encoding="utf-8")
            elif kind == "python":
                self.run_python(*what)
            else:
                self.run_block(what[0])
        if self.session:
            self.session.communicate()
        self.findings += [
            f"{self.path}: the hash is {theirs} there and {ours} here: if bits were meant to "
            "change, write the new one" for theirs, ours in self.hashes.items() if theirs != ours]

    def run_python(self, number, text):
        program = python_with_numpy()
        if not program:
            print(f"SKIPPED: {self.path}:{number}: no Python here has numpy")
            return
        if not self.session:
            library = self.folder / "build" / "liblockstep.so.0"
            self.session = subprocess.Popen(
                [program, str(ROOT / "tools" / "doc_session.py")], cwd=self.folder, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env=dict(self.environment, PYTHONPATH=str(ROOT / "python"),
                         PYTHONDONTWRITEBYTECODE="1", LOCKSTEP_LIBRARY=str(library)))
        self.session.stdin.write(json.dumps({"name": self.path, "line": number, "text": text}) + "\n")
        self.session.stdin.flush()
        answer = self.session.stdout.readline()
        if not answer:
            self.findings.append(f"{self.path}:{number}: Python ended in this block")
            return
        found = json.loads(answer)
        self.ran += found["tried"]
        self.findings += [f"{self.path}:{number}: {text}" for text in found["failed"]]

    def run_block(self, block):
        for number, command, expected in block.commands():
            if command == "make":
                continue
            if block.needs:
                first = command.splitlines()[0]
                self.not_run.append(f"{self.path}:{number}: not run, needs {block.needs}: {first}")
            elif "mpirun" in command and not shutil.which("mpirun"):
                print(f"SKIPPED: {self.path}:{number}: there is no mpirun")
            else:
                self.run_one(number, command, expected)

    def run_one(self, number, command, expected):
        self.ran += 1
        if command.startswith("export "):
            self.exports.append(command)
        script = "\n".join([*self.exports, command])
        where = ROOT if command.startswith("make ") else self.folder
        before = cpu_s()
        done = subprocess.run(["sh", "-c", script], cwd=where, env=self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", check=False)
        if "TIMES" in os.environ:
            print(f"{cpu_s() - before:6.1f} s  {self.path}:{number}: {command}")
        printed = done.stdout + done.stderr
        want = missing(expected, printed, self.hashes)
        fails = bool(expected and ERROR.match(expected[0]))
        if fails != (done.returncode != 0) or want:
            what = f"not printed: {want}" if want else f"exit code {done.returncode}"
            shown = "\n    ".join(printed.splitlines()[-15:])
            self.findings.append(f"{self.path}:{number}: {command}\n    {what}\n    {shown}")


@functools.lru_cache(None)
def python_with_numpy():
    for name in filter(None, (os.environ.get("PYTHON"), sys.executable, "/usr/bin/python3")):
        done = subprocess.run([name, "-c", "import numpy"], capture_output=True, check=False)
        if done.returncode == 0:
            return name
    return None


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
    $ printf '%s\\n' 'one \\
          two'
    one two
    $ echo a line that a page breaks
    a line that
    a page breaks
    $ echo lockstep train: an error; exit 2
    lockstep train: an error
    $ echo lockstep train: an error
    lockstep train: an error

On many machines (needs a cluster):

    mpirun -n 4096 lockstep train run.yaml

Then

    export A=1
    printf $A >b

- In a list:

      cmp a.yaml b

    lockstep train: an error, which is no command

```python
>>> a = 1
>>> a + 1
3
```

```python
>>> print(a, "and  more")
1 and ...
```
"""


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        page = Page("page", pathlib.Path(folder))
        page.run_all(BROKEN)
    found = [int(finding.split(":")[1]) for finding in page.findings[:-1]]
    python = 3 if python_with_numpy() else 0
    whole = (found == [7, 9, 12, 14, 20, 28, 42] + [47] * bool(python)
             and "the hash is" in page.findings[-1]
             and page.ran == 13 + python and len(page.not_run) == 1)
    print(f"check-pages: self-test: {'every' if whole else 'not every'} fault found")
    if not whole:
        print(found, page.ran, page.not_run)
    return 0 if whole else 1


def check(path):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "build").symlink_to((ROOT / os.environ.get("BUILD", "build")).resolve())
        for lent in LENT:
            (folder / lent).symlink_to(ROOT / lent)
        page = Page(path, folder)
        before = cpu_s()
        page.run_all((ROOT / path).read_text(encoding="utf-8"))
    for line in page.not_run + page.findings:
        print(line)
    if page.ran or page.not_run:
        print(f"check-pages: {path}: {page.ran} commands ran, {len(page.not_run)} did not, "
              f"{len(page.findings)} finding(s), {cpu_s() - before:.1f} s of CPU time")
    return page


def every_page():
    under = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "doc").rglob("*.md"))
    return ["README.md", *under]


def main():
    words = sys.argv[1:]
    if self_test() or words == ["--self-test"]:
        return self_test()
    if " avx2 " not in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        print("SKIPPED: pages: their numbers are those of AVX2, which this machine lacks")
        return 0
    pages = words or (every_page() if os.environ.get("CHECK") == "all" else QUICK)
    pages = [check(path) for path in pages]
    print(f"check-pages: {sum(page.ran for page in pages)} commands of {len(pages)} pages ran, "
          f"{sum(len(page.not_run) for page in pages)} did not")
    return 1 if any(page.findings for page in pages) else 0


if __name__ == "__main__":
    sys.exit(main())
