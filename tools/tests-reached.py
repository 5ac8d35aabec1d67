#!/usr/bin/env python3
"""Prints the test programs that the files changed since a commit reach, one a line.

    tools/tests-reached.py BUILD SINCE PROGRAM ...
    tools/tests-reached.py --self-test

Needs a build of these programs. A program reaches the objects that its symbols need, helpers of its
folder and of test/support before the library's, and each object the files that its .d file names. A
program that starts BUILD/lockstep (of cmd, hosts, install and launch, and the check of the pages)
reaches what that reaches. The tests of the Python package load the shared library and reach all of it.
Files that no object is made of reach tests by place: one in test/MODULE/ its module, test/golden/ each
test whose source names it, a page (*.md) the check of the pages, python/ the tests of the Python
package. Any other file (Makefile, tools/) reaches every program.
"""

import os
import re
import subprocess
import sys
import tempfile

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


def reached(build, since, programs, objects_of=Objects):
    changed = changed_files(since)
    objects = objects_of(build)
    behind = ("src/", "include/", "test/", "cmd/", "examples/", "python/")
    if any(not name.startswith(behind) and not name.endswith(".md") for name in changed):
        return programs
    commands = [n for n in objects.made_of if n.startswith(f"{build}/cmd/")]
    command_files = objects.closure(commands)
    library_files = objects.closure(set(objects.defines.values()))
    starters = tuple(f"{build}/test/{module}/" for module in ("cmd", "hosts", "install", "launch"))
    found = []
    for program in programs:
        files = objects.closure([program + ".o"], helpers_of(program, build, objects))
        if program.startswith(starters) or program.endswith(".py"):
            files |= command_files
        if program == PYTHON_TESTS:
            files |= library_files
        if reaches(program, files, changed, build):
            found.append(program)
    return found


# ---- self-test --------------------------------------------------------------------------------------

SMALL_TREE = {
    "include/first.h": "int first(void);\n",
    "src/one/first.c": '#include "first.h"\nint first(void) { return 1; }\n',
    "src/one/second.c": "int second(void) { return 2; }\n",
    "cmd/main.c": "int second(void);\nint main(void) { return second(); }\n",
    "test/support/help.c": '#include "first.h"\nint help(void) { return first(); }\n',
    "test/two/instead.c": "int second(void) { return 3; }\n",
    "test/one/test_direct.c": '#include "first.h"\nint main(void) { return first(); }\n',
    "test/one/test_helped.c": "int help(void);\nint main(void) { return help(); }\n",
    "test/one/test_wrapped.c": "int __real_second(void);\nint main(void) { return __real_second(); }\n",
    "test/two/test_instead.c": "int second(void); /* as values.txt says */\n"
                               "int main(void) { return second(); }\n",
    "test/cmd/test_started.c": "int main(void) { return 0; }\n",
    "test/launch/test_launched.c": "int main(void) { return 0; }\n",
    "test/one/lines.txt": "lines\n",
    "test/golden/values.txt": "3\n",
    "test/python/test_session.py": "pass\n",
    "python/session.py": "pass\n",
    "doc/page.md": "page\n",
    "Makefile": "all:\n",
    ".gitignore": "build\n",
}
PAGES = "tools/check-pages.py"
# What a change of each file reaches; of a program the last word of its name.
REACHED = {
    "include/first.h": f"direct helped {PYTHON_TESTS}",
    "src/one/first.c": f"direct helped {PYTHON_TESTS}",
    "src/one/second.c": f"wrapped started launched {PAGES} {PYTHON_TESTS}",
    "cmd/main.c": f"started launched {PAGES} {PYTHON_TESTS}",
    "test/support/help.c": "helped",
    "test/two/instead.c": "instead",
    "test/one/test_direct.c": "direct",
    "test/one/lines.txt": "direct helped wrapped",
    "test/golden/values.txt": "instead",
    "test/python/test_session.py": PYTHON_TESTS,
    "python/session.py": PYTHON_TESTS,
    "doc/page.md": PAGES,
    "Makefile": f"direct helped wrapped instead started launched {PAGES} {PYTHON_TESTS}",
    "doc/new.md": PAGES,
}


class ObjectsWithoutHeaders(Objects):
    """A broken twin: it forgets what a file includes."""

    @staticmethod
    def files_of(name):
        return {word for word in Objects.files_of(name) if not word.endswith(".h")}


def small_tree_make():
    """Writes, compiles and commits the tree in the current folder; returns its programs."""
    for path, text in SMALL_TREE.items():
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    sources = [path for path in SMALL_TREE if path.endswith(".c")]
    for path in sources:
        made = f"build/{path[:-1]}o"
        os.makedirs(os.path.dirname(made), exist_ok=True)
        output(os.environ.get("CC", "cc"), "-Iinclude", "-MMD", "-MP", "-c", path, "-o", made)
    git = ("git", "-c", "user.name=test", "-c", "user.email=test@localhost")
    output("git", "init", "-q")
    output("git", "add", *SMALL_TREE)
    output(*git, "commit", "-q", "-m", "tree")
    return [f"build/{path[:-2]}" for path in sources if "/test_" in path] + [PAGES, PYTHON_TESTS]


def wrongly_reached(programs, objects_of):
    """The files of REACHED whose change reaches something else than is said there."""
    wrong = []
    for path, expected in REACHED.items():
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n")
        found = reached("build", "HEAD", programs, objects_of)
        if {p.rpartition("/test_")[2] for p in found} != set(expected.split()):
            wrong.append(path)
        output("git", "checkout", "-q", path) if path in SMALL_TREE else os.remove(path)
    return wrong


def self_test():
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        del os.environ[name]  # a hook's, of another tree
    with tempfile.TemporaryDirectory() as root:
        os.chdir(root)
        programs = small_tree_make()
        wrong = wrongly_reached(programs, Objects)
        twin = wrongly_reached(programs, ObjectsWithoutHeaders)
        os.chdir("/")
    for path in wrong:
        print(f"tests-reached: self-test: {path} does not reach {REACHED[path]} alone")
    caught = twin == ["include/first.h"]
    print(f"tests-reached: self-test: {len(REACHED) - len(wrong)} of {len(REACHED)} changes reach what "
          f"they should; broken twin (an include is forgotten): {'caught' if caught else 'MISSED'}")
    return 1 if wrong or not caught else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    build, since, *programs = sys.argv[1:]
    print("".join(program + "\n" for program in reached(build, since, programs)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
