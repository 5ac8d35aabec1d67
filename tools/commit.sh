#!/bin/sh
# Prints the commit of this tree: 12 digits, "-dirty" where tracked files differ from it, other than
# the records of how it was tested; "unknown" where the tree is not a git work tree itself (a tarball
# inside of another one is not its commit).
top=$(git rev-parse --show-toplevel 2>/dev/null)
if [ -z "$top" ] || [ "$(cd "$top" && pwd -P)" != "$(pwd -P)" ] ||
    ! commit=$(git rev-parse --short=12 HEAD 2>/dev/null); then
    echo unknown
    exit 0
fi
git update-index -q --refresh >/dev/null 2>&1
git diff-index --quiet HEAD -- . ':!bench/check-runs.txt' ':!bench/nightly.md' 2>/dev/null || commit=$commit-dirty
echo "$commit"
