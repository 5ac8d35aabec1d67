#!/usr/bin/env python3
"""Checks that what the documents name exists.

    tools/check-docs.py [--self-test]

links      relative links and pictures of every *.md, with their #section
index      every page under doc/ is reached by links that begin at doc/README.md
keys       configuration keys (`optim.lr`, `parallel.dp=4`) against doc/configuration.md, which a
           test holds equal to `lockstep train --help-config`; a line that quotes the error about
           an unknown key is left out
commands   sub-commands and options after `lockstep`, against cmd/pages.c; `make` targets
paths      files and folders of the tree named in code (src/..., test/..., with * as in a shell)
names      ls_... against include/, test_... against test/

Prints one line a finding, `file:line: what`, and exits with 1 if there is any.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile

FOLDERS = "src|include|cmd|test|tools|doc|configs|bench|examples"
# A word after the dot that makes it a file's name, not a key.
SUFFIXES = {"c", "h", "md", "yaml", "py", "sh", "bin", "idx", "txt", "json", "jsonl", "safetensors"}


class Documents:
    def __init__(self, root):
        self.root = root
        self.findings = []
        self.files = tracked(root, "*.md")
        self.keys, self.groups = read_keys(self.read("doc/configuration.md"))
        self.options = (read_pages(self.read("cmd/pages.c")) |
                        read_pages(self.read("cmd/pages_data.c")))
        self.targets = set(re.findall(r"^([a-z][\w-]*):", self.read("Makefile"), re.MULTILINE))
        self.public = self.read_all("include/lockstep/**/*.h")
        self.tests = self.read_all("test/**/*.c")

    def read(self, path):
        try:
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def read_all(self, pattern):
        paths = glob.glob(os.path.join(self.root, pattern), recursive=True)
        return "\n".join(self.read(os.path.relpath(path, self.root)) for path in sorted(paths))

    def find(self, path, line, what):
        self.findings.append((path, line, what))


def tracked(root, pattern):
    """What git tracks or would track; in a tree without git, what is there."""
    command = ["git", "-C", root, "ls-files", "-co", "--exclude-standard", "--", pattern]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return sorted(set(listed.stdout.splitlines()))
    found = glob.glob(os.path.join(root, "**", pattern), recursive=True)
    return sorted(os.path.relpath(path, root) for path in found)


def read_keys(text):
    keys = set(re.findall(r"^\| `([a-z]+(?:\.\w+)+)` \|", text, re.MULTILINE))
    return keys, {key.split(".")[0] for key in keys}


def read_options(body, macros):
    words = re.findall(r"\b[A-Z_]+\b", re.sub(r'"(?:\\.|[^"\\])*"', "", body))
    found = set(re.findall(r'"(--[a-z][\w-]*)"', body))
    return found.union(*(read_options(macros[word], macros) for word in words if word in macros))


def read_pages(text):
    """The options of each sub-command: {"data prepare": {"--input", ...}}. Lists share options by
    macros, each of one option or several."""
    macros = dict(re.findall(r"^#define (\w+) *((?:.*\\\n)*.*)", text, re.MULTILINE))
    lists = {
        name: read_options(body, macros)
        for name, body in re.findall(r"OPTIONS\((\w+)\) = \{(.*?END)\}", text, re.DOTALL)
    }
    table = text[text.find("pages[] = {"):]
    page = r'^    \{"([a-z -]+)",.*?\b(\w+_options|none),'
    pages = re.findall(page, table, re.DOTALL | re.MULTILINE)
    return {name: lists.get(options, set()) for name, options in pages}


def code_parts(text):
    """(line, code) of each line of a fenced block, each indented line and each `span`."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or (line.startswith("    ") and not line.lstrip().startswith(("-", "*"))):
            yield number, line
        else:
            for span in re.findall(r"`([^`]+)`", line):
                yield number, span


# ---- links --------------------------------------------------------------------------------------


def anchors(text):
    """The names that a heading gets: lower case, spaces to dashes, punctuation dropped."""
    for heading in re.findall(r"^#+ +(.*)$", text, re.MULTILINE):
        yield re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


def check_links(documents, path):
    for number, line in enumerate(documents.read(path).splitlines(), 1):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, section = target.partition("#")
            other = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
            if not os.path.exists(os.path.join(documents.root, other)):
                documents.find(path, number, f"there is no {other} to link to")
            elif section and section not in anchors(documents.read(other)):
                documents.find(path, number, f"{other} has no section #{section}")


def linked_pages(documents, path):
    """The other pages that a page links to."""
    for target in re.findall(r"\]\(([^)\s#]+\.md)", documents.read(path)):
        yield os.path.normpath(os.path.join(os.path.dirname(path), target))


def check_index(documents, index="doc/README.md"):
    if index not in documents.files:
        documents.find(index, 1, "there is no page index")
        return
    reached, waiting = {index}, [index]
    while waiting:
        new = set(linked_pages(documents, waiting.pop())) & set(documents.files) - reached
        reached |= new
        waiting += sorted(new)
    for path in documents.files:
        if path.startswith("doc/") and path not in reached:
            documents.find(path, 1, f"no link leads here from {index}")


# ---- code ---------------------------------------------------------------------------------------


# DeepSpeed and torchtitan have this group too; in pages about other programs its keys are theirs.
THEIR_GROUPS = {"checkpoint"}
PAGES_ABOUT_OTHERS = ("doc/coming-from/", "doc/convert.md")
TENSOR = re.compile(r"\bmodel\.layers\.\S*")  # transformers' name of one: no key


def check_keys(documents, path, number, code):
    if "unknown key" in code:
        return
    code = TENSOR.sub("", code)
    theirs = THEIR_GROUPS if path.startswith(PAGES_ABOUT_OTHERS) else set()
    groups = "|".join(sorted(documents.groups - theirs))
    for match in re.finditer(rf"(?<![\w./-])(?:{groups})(?:\.\w+)*\.(\w+)\b(?![./]\w)", code):
        name = match.group(0)
        group = any(key.startswith(name + ".") for key in documents.keys)
        if match.group(1) not in SUFFIXES and name not in documents.keys and not group:
            documents.find(path, number, f"there is no key {name}")


def check_command(documents, path, number, code):
    for match in re.finditer(r"(?:^|(?<!import)[\s/])lockstep ((?:[a-z]+(?:-[a-z]+)*\b ?){1,2})([^|;&#]*)", code):
        words = match.group(1).split()
        name = " ".join(words) if " ".join(words) in documents.options else words[0]
        if name not in documents.options:
            documents.find(path, number, f"there is no command `lockstep {name}`")
            continue
        known = documents.options[name] | {"--help"}
        for option in re.findall(r"(?<!\S)--[a-z][\w-]*", match.group(2)):
            if option not in known:
                documents.find(path, number, f"`lockstep {name}` has no option {option}")


def check_make(documents, path, number, code):
    for match in re.finditer(r"(?:^|[\s;&])make((?: +[\w./=,-]+)*)", code):
        for word in match.group(1).split():
            if re.fullmatch(r"[a-z][a-z-]*", word) and word not in documents.targets:
                documents.find(path, number, f"there is no target `make {word}`")


def check_paths(documents, path, number, code):
    for match in re.finditer(rf"(?<![\w./-])((?:{FOLDERS})/[\w./*{{}},-]+)", code):
        name = match.group(1).rstrip(".,").replace("{", "[").replace("}", "]")
        if not glob.glob(os.path.join(documents.root, name)):
            documents.find(path, number, f"there is no {match.group(1)}")


def check_names(documents, path, number, code):
    for name in re.findall(r"\bls_[a-z0-9_]+\b(?!\*)", code):
        if not re.search(rf"\b{name}", documents.public):
            documents.find(path, number, f"include/ has no {name}")
    for name in re.findall(r"\btest_[a-z0-9_]+\b(?![.*])", code):
        if not re.search(rf"\b{name}\b", documents.tests):
            paths = glob.glob(os.path.join(documents.root, "test", "*", name + ".c"))
            if not paths:
                documents.find(path, number, f"test/ has no {name}")


def run(root):
    documents = Documents(root)
    if not documents.keys or not documents.options:
        documents.find("doc/configuration.md", 1, "no keys, or no pages in cmd/pages.c, were found")
    check_index(documents)
    for path in documents.files:
        check_links(documents, path)
        for number, code in code_parts(documents.read(path)):
            for check in (check_keys, check_command, check_make, check_paths, check_names):
                check(documents, path, number, code)
    return documents.findings


# ---- the tool's own test ------------------------------------------------------------------------

BROKEN_TREE = {
    "Makefile": "all:\n",
    "doc/configuration.md": "# Configuration\n\n| `optim.lr` | `1` | recipe |\n"
                            "| `optim.moments.first` | `1` | recipe |\n",
    "doc/README.md": "[a](configuration.md)\n",
    "doc/lost.md": "",
    "cmd/pages.c": '#define TWO \\\n {"--first", NULL, "x"}, \\\n { \\\n "--second", NULL, "x" }\n'
                   '#define OTHER \\\n { \\\n "--other", NULL, "x" }\n'
                   'OPTIONS(none) = {END};\n'
                   'OPTIONS(a_options) = {{"--good", "OTHER", "x"}, TWO, END};\n'
                   'pages[] = {\n    {"train", "x", "y", "z", a_options, NULL},\n};\n',
    "include/lockstep/base.h": "int ls_good(void);\n",
    "test/base/test_good.c": "",
    "README.md": "[a](gone.md) [b](doc/configuration.md#gone) `optim.gone=1` `make gone`\n"
                 "`optim.moments.gone`\n"
                 "`src/gone.c` `ls_gone` `test_gone`\n\n    lockstep train --gone optim.lr=1\n"
                 "    lockstep gone\n\n"
                 "[a](doc/configuration.md#configuration) `optim.lr=1` `make all` `ls_good`\n"
                 "`optim.moments.first=2` `optim.moments`\n"
                 "`test_good` `cmd/pages.c` `lockstep train --good --first --second`\n"
                 "`lockstep train --other`\n",
}
BROKEN_FINDINGS = ["no gone.md", "no section #gone", "no key optim.gone",
                   "no key optim.moments.gone", "make gone",
                   "no src/gone.c", "no ls_gone", "no test_gone", "no option --gone", "no option --other",
                   "lockstep gone", "no link leads here"]


def self_test():
    """Every rule must find its break, and nothing else."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in BROKEN_TREE.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        findings = run(root)
    missed = [what for what in BROKEN_FINDINGS if not any(what in f[2] for f in findings)]
    for what in missed:
        print(f"check-docs.py: self-test: not found: {what}")
    if len(findings) > len(BROKEN_FINDINGS):
        print(f"check-docs.py: self-test: found more than is broken: {findings}")
    found = len(BROKEN_FINDINGS) - len(missed)
    print(f"check-docs.py: self-test: {found} of {len(BROKEN_FINDINGS)} found")
    return 1 if missed or len(findings) > len(BROKEN_FINDINGS) else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:]:
        print(__doc__)
        return 2
    findings = run(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for path, line, what in sorted(findings):
        print(f"{path}:{line}: {what}")
    print(f"check-docs: {len(findings)} finding(s)" if findings else "check-docs: nothing to mend")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
