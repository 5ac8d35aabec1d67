"""Parts of pages that scripts write: what stands between <!-- NAME: begin --> and its end."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "RESULTS.md"


def part_put(path, name, lines):
    """Replaces the part; a page that has none gets it at its end."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = path.read_text() if path.exists() else "# Figures\n"
    if begin not in text:
        text += f"\n{begin}\n{end}\n"
    before, rest = text.split(begin, 1)
    path.write_text("\n".join([before + begin, "", "\n".join(lines).rstrip("\n"), "", end]) + rest.split(end, 1)[1])


def commit_of(clean):
    """Of the tree; clean: it must have no changes, so that figures have a commit."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True,
                            capture_output=True, check=False).stdout.strip()
    if clean and commit.endswith("-dirty"):
        sys.exit("--write: commit what is changed first")
    return commit
