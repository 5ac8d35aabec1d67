#!/usr/bin/env python3
"""Prints the test programs that the files changed since a commit reach, one a line.

    tools/tests-reached.py BUILD SINCE PROGRAM ...

Needs a build of these programs. A program reaches the objects that its symbols need, helpers of its
folder and of test/support before the library's, and each object the files that its .d file names. A
program that starts BUILD/lockstep (of cmd, hosts and install, and the check of the pages) reaches what
that reaches. Files that no object is made of reach tests by place: one in test/MODULE/ its module,
test/golden/ each test whose source names it, a page (*.md) the check of the pages, python/ the tests
of the Python package. Any other file (Makefile, tools/) reaches every program.
"""

import os
import re
import subprocess
import sys

PYTHON_TESTS = "test/python/run_pytest.py"


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def changed_files(since):
    found = subprocess.run(["git", "merge-base", since, "HEAD"], capture_output=True, text=True,
                           check=False)
    if found.returncode:
        sys.exit(f"SINCE = {since}: no commit from which this one came: expected a branch or a commit, "
                 "such as SINCE=HEAD~3")
    base = found.stdout.strip()
    names = output("git", "diff", "--name-only", base).splitlines()
    names += output("git", "ls-files", "--others", "--exclude-standard").splitlines()
    return set(names)


class Objects:
    """The objects of a build: what each defines, needs and is made of."""

    def __init__(self, build):
        self.build = build
        self.defines, self.needs, self.made_of, self.own = {}, {}, {}, {}
        names = [os.path.join(folder, name) for folder, _, names in os.walk(build)
                 for name in names if name.endswith(".o")]
        for i in range(0, len(names), 500):
            self.symbols_read(output("nm", "-A", "-g", "-P", *names[i : i + 500]))
        for name in names:
            self.made_of[name] = self.files_of(name)

    def symbols_read(self, text):
        for line in text.splitlines():
            name, symbol, kind = re.match(r"(.*?): (\S+) (\w)", line).groups()
            if kind == "U":
                self.needs.setdefault(name, set()).add(symbol)
            elif name.startswith(f"{self.build}/src/"):
                self.defines[symbol] = name
            else:
                self.own.setdefault(name, set()).add(symbol)

    @staticmethod
    def files_of(name):
        try:
            with open(name[:-1] + "d", encoding="utf-8") as file:
                text = file.read().replace("\\\n", " ")
        except OSError:
            return set()
        return {word for word in text.split() if not word.endswith(":")}

    def closure(self, roots, helpers=()):
        """The files behind these objects and all that their symbols need."""
        seen, open_ = set(), [r for r in roots if r in self.made_of]
        defines = dict(self.defines)
        defines.update((symbol, name) for name in helpers for symbol in self.own.get(name, ()))
        while open_:
            name = open_.pop()
            if name not in seen:
                seen.add(name)
                wanted = (s.removeprefix("__real_") for s in self.needs.get(name, ()))
                open_ += [defines[s] for s in wanted if s in defines]
        return set().union(*(self.made_of[name] for name in seen)) if seen else set()


def helpers_of(program, build, objects):
    """What a test is linked with beside the library; of two that define a symbol its folder's."""
    folders = (f"{build}/test/support", os.path.dirname(program))
    helpers = [n for n in objects.made_of if os.path.dirname(n) in folders
               and not os.path.basename(n).startswith(("test_", "fuzz_"))]
    return sorted(helpers, key=lambda n: folders.index(os.path.dirname(n)))


def reaches(program, files, changed, build):
    if files & changed:
        return True
    path = program.removeprefix(f"{build}/")
    folder = os.path.dirname(path)
    if program == PYTHON_TESTS:
        return any(name.startswith(("python/", "test/python/")) for name in changed)
    if program.endswith(".py"):
        return program in changed or any(name.endswith(".md") for name in changed)
    for name in changed:
        if name.startswith(folder + "/") and not name.endswith((".c", ".h")):
            return True
        if name.startswith("test/golden/") and named_in(path + ".c", os.path.basename(name)):
            return True
    return False


def named_in(source, word):
    with open(source, encoding="utf-8") as file:
        return word in file.read()


def main():
    build, since, *programs = sys.argv[1:]
    changed = changed_files(since)
    objects = Objects(build)
    behind = ("src/", "include/", "test/", "cmd/", "examples/", "python/")
    if any(not name.startswith(behind) and not name.endswith(".md") for name in changed):
        print("\n".join(programs))
        return
    commands = [n for n in objects.made_of if n.startswith(f"{build}/cmd/")]
    command_files = objects.closure(commands)
    starters = tuple(f"{build}/test/{module}/" for module in ("cmd", "hosts", "install"))
    for program in programs:
        files = objects.closure([program + ".o"], helpers_of(program, build, objects))
        if program.startswith(starters) or program.endswith(".py"):
            files |= command_files
        if reaches(program, files, changed, build):
            print(program)


if __name__ == "__main__":
    main()
