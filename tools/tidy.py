#!/usr/bin/env python3
"""Checks the house rules that a compiler does not: layers, headers, lengths, format.

    tools/tidy.py [--fix] [--no-format] [--self-test]

layers    a module of src/ includes only public headers of its own and of modules above it in
          src/LAYERS, and private headers of its own folder; no two modules include each other, nor
          do headers, in however wide a circle
names     no two files of the tree have the same name, whatever their folders; pages (*.md) may
openings  every .c file opens with a comment, at least a sentence, that says what the file is
families  only src/nn/family_*.c know what a family of models is: no other code outside tests names
          one, or compares a configuration's arch
clocks    no test sleeps, sets an alarm, asks for the time or gives a command a time limit: it waits
          for an event (test/support/await.h), and tools/run-tests.py ends what gets nowhere
headers   every public header compiles alone, as C and as C++, and cites no page that is not in the
          tree; a header's guard is its path; a private header is included by its path below src/;
          the variable for what a function returned is called status
lengths   functions of more than 70 lines or 8 parameters, files of more than 800 lines (outside
          tests)
format    clang-format finds nothing to change; no trailing white space, lines end with \\n,
          at most 100 columns; a ruler is one line

Exceptions stand in tools/tidy-exceptions.txt, each with its reason; one that is no longer needed is
an error. Prints one line a finding, `file:line: what`, and exits with 1 if there is any.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 800
PARAMETERS_MAX = 8
COLUMNS_MAX = 100
CODE = (".c", ".h")
TEXT = CODE + (".py", ".sh", ".md", ".yaml", ".txt", ".mk")


class Tidy:
    def __init__(self, root):
        self.root = root
        self.findings = []
        self.exceptions = {}  # key -> line number in the exceptions file
        self.used = set()
        self.files = tracked_files(root)
        self.known = set(self.files)
        self.modules = []  # lowest first
        self.owner = {}  # public header -> module

    def find(self, path, line, what):
        self.findings.append((path, line, what))

    def excused(self, key):
        if key in self.exceptions:
            self.used.add(key)
            return True
        return False

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
            return file.read()

    def code(self, *folders):
        return [f for f in self.files if f.endswith(CODE) and f.startswith(folders)]


def tracked_files(root):
    """What git tracks or would track; in a tree without git, what is there outside build folders."""
    command = ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        names = listed.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = []
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if not f.startswith((".", "build", "runs"))]
            names += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(n for n in names if os.path.isfile(os.path.join(root, n)))


# ---- exceptions ---------------------------------------------------------------------------------


EXCEPTION = (r"((?:function|parameters|layer) \S+ \S+|(?:file|name|opening) \S+|clock \S+ \d+)"
             r": (.{10,})")


def read_exceptions(tidy):
    path = "tools/tidy-exceptions.txt"
    if path not in tidy.files:
        return
    for number, line in enumerate(tidy.read(path).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(EXCEPTION, line)
        if not match:
            tidy.find(path, number, "expected `kind FILE ...: reason` with a reason")
        else:
            tidy.exceptions[match.group(1)] = number


def check_unused_exceptions(tidy):
    for key, number in tidy.exceptions.items():
        if key not in tidy.used:
            tidy.find("tools/tidy-exceptions.txt", number, f"no longer needed: {key}")


# ---- layers -------------------------------------------------------------------------------------

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def includes(text):
    """(line, "<" or '"', name) of every include."""
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start(2)) + 1, match.group(1), match.group(2)


def module_of_header(tidy, header):
    """lockstep/ops/gemm.h and lockstep/ops.h belong to ops; config.h to the module whose sources
    define it."""
    name = header[len("lockstep/") :]
    first = name.split("/")[0].removesuffix(".h")
    if first in tidy.modules:
        return first
    stem = os.path.basename(name).removesuffix(".h")
    owners = {f.split("/")[1] for f in tidy.code("src/") if os.path.basename(f) == stem + ".c"}
    return owners.pop() if len(owners) == 1 else None


def read_layers(tidy):
    lines = tidy.read("src/LAYERS").splitlines()
    tidy.modules = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    for path in tidy.code("src/"):
        parts = path.split("/")
        if len(parts) > 2 and parts[1] not in tidy.modules:
            tidy.find(path, 1, f"module {parts[1]} is not in src/LAYERS")
    for path in tidy.code("include/lockstep/"):
        header = path.removeprefix("include/")
        module = module_of_header(tidy, header)
        if module is None:
            tidy.find(path, 1, "belongs to no module of src/LAYERS (no src/<module>/ has its .c)")
        tidy.owner[header] = module


def check_public_include(tidy, path, line, module, header, edges):
    if header not in tidy.owner:
        tidy.find(path, line, f"there is no include/{header}")
        return
    other = tidy.owner[header]
    if other is None or other == module:
        return
    edges.setdefault((module, other), (path, line))
    if tidy.modules.index(other) > tidy.modules.index(module):
        if not tidy.excused(f"layer {path} {header}"):
            tidy.find(path, line, f"{module} includes {header} of {other}, which is not above it")


def check_private_include(tidy, path, line, module, name):
    folder = os.path.dirname(path)
    beside = os.path.normpath(os.path.join(folder, name))
    from_source = os.path.normpath(os.path.join("src", name))
    target = beside if beside in tidy.files else from_source
    if target not in tidy.files:
        tidy.find(path, line, f'there is no "{name}"')
    elif not target.startswith(f"src/{module}/"):
        if not tidy.excused(f"layer {path} {name}"):
            tidy.find(path, line, f'"{name}" is private to another module')


def check_cycles(tidy, edges):
    """The order of src/LAYERS already rules cycles out, but for edges that an exception allows."""
    after = {}
    for source, target in edges:
        after.setdefault(source, set()).add(target)
    for (source, target), (path, line) in edges.items():
        seen, todo = set(), [target]
        while todo:
            module = todo.pop()
            if module in seen:
                continue
            seen.add(module)
            todo += after.get(module, ())
        if source in seen:
            tidy.find(path, line, f"{source} and {target} include each other")


def included_file(tidy, path, kind, name):
    """The file of the tree that an include means, or None."""
    if name.startswith("lockstep/"):
        candidates = [f"include/{name}"]
    elif kind == '"':
        candidates = [os.path.normpath(os.path.join(os.path.dirname(path), name)), f"src/{name}"]
    else:
        return None
    return next((c for c in candidates if c in tidy.known), None)


def check_header_circles(tidy):
    """Headers that include each other, directly or through others: each circle once."""
    after = {}
    for path in (f for f in tidy.files if f.endswith(".h")):
        targets = [(line, included_file(tidy, path, kind, name))
                   for line, kind, name in includes(tidy.read(path))]
        after[path] = [(line, target) for line, target in targets if target]
    done, walk = set(), []

    def visit(path):
        walk.append(path)
        for line, target in after.get(path, ()):
            if target in walk:
                circle = walk[walk.index(target):] + [target]
                tidy.find(path, line, "headers in a circle: " + " -> ".join(circle))
            elif target not in done:
                visit(target)
        done.add(walk.pop())

    for path in after:
        if path not in done:
            visit(path)


def check_layers(tidy):
    read_layers(tidy)
    edges = {}
    for path in tidy.code("src/", "include/lockstep/"):
        if path.startswith("src/"):
            module = path.split("/")[1]
        else:
            module = tidy.owner.get(path.removeprefix("include/"))
        if module not in tidy.modules:
            continue
        for line, kind, name in includes(tidy.read(path)):
            if name.startswith("lockstep/"):
                check_public_include(tidy, path, line, module, name, edges)
            elif kind == '"' and path.startswith("include/"):
                tidy.find(path, line, f'a public header includes "{name}": write <lockstep/...>')
            elif kind == '"':
                check_private_include(tidy, path, line, module, name)
    check_cycles(tidy, edges)
    check_header_circles(tidy)
    for path in tidy.code("cmd/", "test/", "examples/", "bench/"):
        for line, _, name in includes(tidy.read(path)):
            if name.startswith("lockstep/") and name not in tidy.owner:
                tidy.find(path, line, f"there is no include/{name}")


# ---- names and openings -------------------------------------------------------------------------


def check_names(tidy):
    first = {}
    for path in (f for f in tidy.files if not f.endswith(".md")):
        other = first.setdefault(os.path.basename(path), path)
        if other != path and not tidy.excused(f"name {path}"):
            tidy.find(path, 1, f"has the name of {other}: say in the name what it holds")


OPENING = re.compile(r"/\*(.*?)\*/", re.DOTALL)


def opens_with_a_sentence(text):
    """At least three words, of which one ends with a stop; that it is true, nobody can check."""
    comment = OPENING.match(text)
    if not comment:
        return False
    words = re.sub(r"\n \*", " ", comment.group(1)).split()
    return len(words) >= 3 and any(word.endswith((".", ":")) for word in words)


def check_openings(tidy):
    for path in (f for f in tidy.files if f.endswith(".c")):
        if not opens_with_a_sentence(tidy.read(path)) and not tidy.excused(f"opening {path}"):
            tidy.find(path, 1, "expected a comment on top: a sentence that says what the file is")


# ---- families -----------------------------------------------------------------------------------

FAMILIES_HEADER = "include/lockstep/nn.h"  # whose list LS_FAMILIES names them


def check_families(tidy):
    listed = tidy.read(FAMILIES_HEADER) if FAMILIES_HEADER in tidy.known else ""
    names = re.findall(r"\bfamily\((LS_\w+), *\w+\)", listed)
    asks = re.compile(r"\barch\)? *[!=]=|\b(?:" + "|".join(names or ["(?!)"]) + r")\b")
    for path in tidy.code("src/", "cmd/", "include/", "examples/", "bench/"):
        if path == FAMILIES_HEADER or path.startswith("src/nn/family_"):
            continue
        for number, line in enumerate(tidy.read(path).splitlines(), 1):
            if asks.search(line):
                what = "asks for a family: let the family say it (struct ls_family), or its tables"
                tidy.find(path, number, what)


# ---- clocks -------------------------------------------------------------------------------------

CLOCK = re.compile(r"\b(?:u?sleep|nanosleep|thrd_sleep|\w*timedwait|alarm|setitimer|timer(?:fd)?_settime"
                   r"|clock_gettime|gettimeofday|ls_now_s|select)\s*\(|\bp?poll\((?!.*-1\))"
                   r"|(?<![\w.])time\(NULL\)|\btime\.(?:time|monotonic|perf_counter)\b"
                   r"|(?<![\w.-])timeout (?:-\w+ )*\d|\bsleep [\d.]|SO_RCVTIMEO|\btimeout=\d")


def check_clocks(tidy):
    """An exception gives the number of such lines: one more has to be justified anew."""
    for path in (f for f in tidy.files if f.startswith("test/") and f.endswith(CODE + (".py", ".sh"))):
        lines = [n for n, line in enumerate(tidy.read(path).splitlines(), 1) if CLOCK.search(line)]
        if lines and not tidy.excused(f"clock {path} {len(lines)}"):
            at = ", ".join(map(str, lines))
            tidy.find(path, lines[0], f"depends on the clock (lines {at}): wait for an event, or give "
                      f"the reason: clock {path} {len(lines)}: ...")


# ---- headers ------------------------------------------------------------------------------------


def check_headers(tidy):
    compilers = [("c", os.environ.get("CC", "gcc"), ["-std=c11", "-D_GNU_SOURCE"]),
                 ("c++", os.environ.get("CXX", "g++"), ["-std=c++17"])]
    # Parts of an umbrella header, such as lockstep/ops/norm.h, say so in their first comment.
    headers = [h for h in tidy.code("include/lockstep/")
               if not re.search(r"Included by\s[\s*]*lockstep/", tidy.read(h))]

    def compile_alone(job):
        header, (language, compiler, flags) = job
        if not shutil.which(compiler.split()[0]):
            return header, f"cannot be checked: {compiler} is not installed (apt-get install g++)"
        command = compiler.split() + flags + ["-x", language, "-fsyntax-only", "-Wall", "-Wextra",
                                              "-Werror", "-Iinclude", "-"]
        name = header.removeprefix("include/")
        done = subprocess.run(command, cwd=tidy.root, capture_output=True, text=True,
                              input=f"#include <{name}>\n#include <{name}>\n", check=False)
        if done.returncode == 0:
            return None
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        return header, f"does not compile alone as {language}: {(errors or [done.stderr])[0]}"

    jobs = [(header, compiler) for header in headers for compiler in compilers]
    with ThreadPoolExecutor(2) as pool:
        for result in pool.map(compile_alone, jobs):
            if result:
                tidy.find(result[0], 1, result[1])


PAGES_ELSEWHERE = re.compile(r"\b(?:DESIGN|FORMATS|STYLE|PROSE)\b")


def guard_of(header):
    return re.sub(r"\W", "_", re.sub(r"^(?:include|src)/", "", header)).upper()


# Words that mean one thing each (doc/glossary.md): a struct of that name alone is one struct.
ONE_THING = ("place", "run", "rows", "plan")


def check_one_thing(tidy):
    for word in ONE_THING:
        if not re.search(rf"\*\*{word}\*\*", tidy.read("doc/glossary.md")):
            tidy.find("doc/glossary.md", 1, f"does not say what {word} means")
        found = [
            (path, text.count("\n", 0, match.start()) + 1)
            for path in tidy.files
            if path.endswith(CODE) and not path.startswith("test/")
            for text in [tidy.read(path)]
            for match in re.finditer(rf"^struct {word} \{{$", text, re.MULTILINE)
        ]
        for path, number in found[1:]:
            tidy.find(path, number, f"struct {word} is in {found[0][0]}: this is another thing")


def check_words(tidy):
    check_one_thing(tidy)
    for path in (f for f in tidy.files if f.endswith(CODE)):
        text = tidy.read(path)
        guard = re.search(r"^#ifndef (\w+)\n#define \1$", text, re.MULTILINE)
        if path.endswith(".h") and guard and guard.group(1) != guard_of(path):
            tidy.find(path, 1, f"its guard is {guard.group(1)}: expected {guard_of(path)}")
        for number, line in enumerate(text.split("\n"), 1):
            found = re.match(r'#include "([^"/]+)"', line)
            if path.startswith("src/") and found:
                folder = os.path.dirname(path).removeprefix("src/")
                tidy.find(path, number, f'expected "{folder}/{found.group(1)}"')
            if re.search(r"\bint rc\b", line):
                tidy.find(path, number, "what a function returns is called status, not rc")
            if path.startswith("include/") and PAGES_ELSEWHERE.search(line):
                tidy.find(path, number, "cites a page that is not in the tree")


# ---- lengths ------------------------------------------------------------------------------------

# Of a test's CASE(name), the name in it (test/support/suite.h).
NAME_BEFORE_PARENTHESIS = re.compile(r"(?:CASE(?:_WITH)?\()?([A-Za-z_]\w*)\s*[(,)]")


def parameter_count(after):
    """Of a function's head, from behind its opening parenthesis on; `void` counts as one."""
    depth, count = 1, 1
    for character in after:
        depth += character in "([{"
        depth -= character in ")]}"
        if depth == 0:
            break
        count += character == "," and depth == 1
    return count


def functions(text):
    """(name, first line, line count, parameters) of every function: code in column 0 up to a line
    that is "{", and then to the line that is "}"."""
    lines = text.splitlines()
    start = None  # first line of what stands in column 0
    begin = None  # the line of the opening brace
    for number, line in enumerate(lines, 1):
        if begin is not None:
            if line == "}":
                head = " ".join(lines[start - 1 : begin - 1])
                head = re.sub(r"__attribute__\(\(.*?\)\)|/\*.*?\*/", "", head)
                name = NAME_BEFORE_PARENTHESIS.search(head)
                parameters = parameter_count(head[name.end() :]) if name else 0
                yield name.group(1) if name else "?", start, number - start + 1, parameters
                start = begin = None
            elif line.startswith("};"):
                start = begin = None
        elif line == "{" and start is not None:
            begin = number
        elif not line.strip() or line[0] in "#}/*" or line.rstrip().endswith((";", "*/")):
            start = None
        elif start is None and (line[0].isalpha() or line[0] == "_"):
            start = number


def check_lengths(tidy):
    for path in tidy.code("src/", "cmd/", "include/", "test/", "examples/", "bench/"):
        text = tidy.read(path)
        count = text.count("\n")
        if count > FILE_LINES_MAX and not path.startswith("test/"):
            if not tidy.excused(f"file {path}"):
                tidy.find(path, count, f"{count} lines: expected at most {FILE_LINES_MAX}")
        for name, line, length, parameters in functions(text):
            if length > FUNCTION_LINES_MAX and not tidy.excused(f"function {path} {name}"):
                what = f"{name} has {length} lines: expected at most {FUNCTION_LINES_MAX}"
                tidy.find(path, line, what)
            # A function in place of another (the linker's --wrap) has the other's.
            if parameters > PARAMETERS_MAX and not name.startswith("__"):
                if not tidy.excused(f"parameters {path} {name}"):
                    what = f"{name} has {parameters} parameters: expected at most {PARAMETERS_MAX}"
                    tidy.find(path, line, what)


# ---- format -------------------------------------------------------------------------------------


def check_white_space(tidy):
    for path in tidy.files:
        if not (path.endswith(TEXT) or os.path.basename(path) == "Makefile"):
            continue
        if "/golden/" in path:
            continue
        text, ruler = tidy.read(path), False
        if text and not text.endswith("\n"):
            tidy.find(path, text.count("\n") + 1, "the last line has no end")
        for number, line in enumerate(text.split("\n"), 1):
            if line != line.rstrip():
                tidy.find(path, number, "trailing white space")
            if path.endswith(CODE) and line == " */" and ruler:
                tidy.find(path, number, "a ruler of two lines: expected one, of at most 100 columns")
            ruler = line.startswith("/* ----") and "*/" not in line
            if path.endswith(CODE) and len(line.expandtabs(8)) > COLUMNS_MAX:
                tidy.find(path, number, f"{len(line)} columns: expected at most {COLUMNS_MAX}")


def check_format(tidy, fix):
    tool = next((t for t in ("clang-format-14", "clang-format") if shutil.which(t)), None)
    if not tool:
        tidy.find(".clang-format", 1, "cannot be checked: apt-get install clang-format-14")
        return
    files = tidy.code("src/", "cmd/", "include/", "test/", "examples/", "bench/", "tools/")
    arguments = ["-i"] if fix else ["--dry-run", "-Werror"]
    for begin in range(0, len(files), 50):
        done = subprocess.run([tool, *arguments, *files[begin : begin + 50]], cwd=tidy.root,
                              capture_output=True, text=True, check=False)
        pattern = r"^([^:\n]+):(\d+):\d+: error:"
        seen = set()
        for match in re.finditer(pattern, done.stderr, re.MULTILINE):
            if match.group(1) not in seen:
                seen.add(match.group(1))
                what = "clang-format would change it: tools/tidy.py --fix does"
                tidy.find(match.group(1), int(match.group(2)), what)


# ---- the tool's own test ------------------------------------------------------------------------

BROKEN_TREE = {
    "src/LAYERS": "base\nops\nnn\ntrain\n",
    "include/lockstep/base.h": "#include <lockstep/ops.h>\n",
    "include/lockstep/ops.h": "unknown_type x;\n",
    "src/base/a.c": '#include <lockstep/train.h>\n#include "ops/private.h"\n',
    "src/ops/private.h": '#include "circle.h"\n',
    "src/ops/circle.h": '#include "ops/private.h"\n',
    "src/ops/many.c": "/* Too many. */\nstatic int many(int a, int b, int c, int d, int e, int f, "
                      "int g,\n                int (*h)(int, int), int i)\n{\n    g();\n}\n",
    "src/ops/kern/a.c": "/* Kernels. */\nint k;\n",
    "src/ops/near.c": '/* Near. */\n#include "private.h"\n/* ---- a\n */\nint rc;\n',
    "include/lockstep/cites.h": "#ifndef CITES_H\n#define CITES_H\n/* (DESIGN: sums) */\n#endif\n",
    "src/ops/kern/short.c": "/* TODO */\nint k;\n",
    "src/ops/b.c": "int f(void)\n{\n" + "    g();\n" * 70 + "}\n",
    "src/ops/long.c": "int x;\n" * 801,
    "include/lockstep/nn.h": "#define LS_FAMILIES(family) family(LS_GPT2, gpt2)\n",
    "src/nn/family_gpt2.c": "/* May say what it is. */\nint y = LS_GPT2;\n",
    "src/nn/knows.c": "/* Knows its family. */\nint y = LS_GPT2;\n",
    "cmd/asks.c": "/* Asks for it. */\nint y = m->arch == 0;\n",
    "src/other/c.c": "int y;   \n",
    "src/train/d.c": "int  z;",
    "test/ops/naps.c": "/* It naps. */\nvoid nap(void)\n{\n    usleep(1);\n    poll(ends, 2, 50);\n"
                       "    poll(ends, 2, -1);\n    sem_timedwait(&lock, &until);\n}\n",
    "test/ops/naps.sh": "timeout 20 make\n",
    "src/ops/place.c": "/* A place. */\nstruct place {\n    int x;\n};\n",
    "src/train/place2.c": "/* Another. */\nstruct place {\n    int y;\n};\n",
    "doc/glossary.md": "- **place**, **run**, **rows**: words.\n",
    "tools/tidy-exceptions.txt": "file src/gone.c: it was too long once\nfile x:\n",
}
BROKEN_FINDINGS = [
    ("include/lockstep/base.h", "base includes lockstep/ops.h of ops"),
    ("include/lockstep/ops.h", "does not compile alone as c:"),
    ("include/lockstep/ops.h", "does not compile alone as c++:"),
    ("src/base/a.c", "there is no include/lockstep/train.h"),
    ("src/base/a.c", '"ops/private.h" is private to another module'),
    ("src/ops/private.h", "src/ops/circle.h -> src/ops/private.h -> src/ops/circle.h"),
    ("src/ops/many.c", "many has 9 parameters"),
    ("src/ops/kern/a.c", "has the name of src/base/a.c"),
    ("src/ops/near.c", 'expected "ops/private.h"'),
    ("src/ops/near.c", "a ruler of two lines"),
    ("src/ops/near.c", "is called status"),
    ("include/lockstep/cites.h", "expected LOCKSTEP_CITES_H"),
    ("include/lockstep/cites.h", "cites a page"),
    ("src/ops/kern/short.c", "expected a comment on top"),
    ("src/ops/long.c", "expected a comment on top"),
    ("src/ops/b.c", "f has 73 lines"),
    ("src/ops/long.c", "801 lines"),
    ("src/nn/knows.c", "asks for a family"),
    ("cmd/asks.c", "asks for a family"),
    ("src/other/c.c", "module other is not in src/LAYERS"),
    ("src/other/c.c", "trailing white space"),
    ("src/train/d.c", "the last line has no end"),
    ("src/train/d.c", "clang-format would change it"),
    ("test/ops/naps.c", "depends on the clock (lines 4, 5, 7)"),
    ("test/ops/naps.sh", "depends on the clock (lines 1)"),
    ("src/train/place2.c", "struct place is in src/ops/place.c"),
    ("doc/glossary.md", "does not say what plan means"),
    ("tools/tidy-exceptions.txt", "no longer needed: file src/gone.c"),
    ("tools/tidy-exceptions.txt", "with a reason"),
]


def self_test():
    """Every rule must find its break in a tree that breaks them all."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in BROKEN_TREE.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        findings = run(root, fix=False, with_format=True)
    missed = [(path, what) for path, what in BROKEN_FINDINGS
              if not any(path == f[0] and what in f[2] for f in findings)]
    for path, what in missed:
        print(f"tidy.py: self-test: not found: {path}: {what}")
    print(f"tidy.py: self-test: {len(BROKEN_FINDINGS) - len(missed)} of {len(BROKEN_FINDINGS)} found")
    return 1 if missed else 0


def run(root, fix, with_format):
    tidy = Tidy(root)
    read_exceptions(tidy)
    check_layers(tidy)
    check_names(tidy)
    check_openings(tidy)
    check_families(tidy)
    check_clocks(tidy)
    check_headers(tidy)
    check_words(tidy)
    check_lengths(tidy)
    check_white_space(tidy)
    if with_format:
        check_format(tidy, fix)
    check_unused_exceptions(tidy)
    return tidy.findings


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="let clang-format rewrite the files")
    parser.add_argument("--no-format", action="store_true", help="leave clang-format out")
    parser.add_argument("--self-test", action="store_true", help="check that every rule can fail")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    findings = run(root, arguments.fix, not arguments.no_format)
    for path, line, what in sorted(findings):
        print(f"{path}:{line}: {what}")
    print(f"tidy: {len(findings)} finding(s)" if findings else "tidy: nothing to mend")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
