#!/bin/sh
# Runs every program given, one line each; shows the output of those that fail.
# The last line is "N passed, N failed" (programs).
set -u

log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0
failed=0
for program in "$@"; do
    begin=$(date +%s)
    "$program" >"$log" 2>&1
    code=$?
    if [ $code -eq 0 ]; then
        passed=$((passed + 1))
        cases=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/, \1 cases/p' "$log" | tail -n 1)
        skips=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
        [ -n "$skips" ] && cases="$cases, $skips skipped"
        echo "ok    ${program#"${BUILD:-build}"/} ($(($(date +%s) - begin)) s$cases)"
        sed -n 's/^SKIPPED: /      skipped: /p' "$log" | sort -u
    else
        failed=$((failed + 1))
        echo "FAIL  ${program#"${BUILD:-build}"/}: exit code $code"
        sed 's/^/      /' "$log" | tail -n 60
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
