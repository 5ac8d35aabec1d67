#!/bin/sh
# Runs every program given, one line each; shows the output of those that fail. Those that
# $ISA_TESTS names run again on each lesser instruction set that this machine has (LOCKSTEP_ISA), but
# for avx512_bf16 below amx, whose kernels the first run had wherever the arithmetic was fma.
# The last line is "N passed, N failed" (programs, counted once a set).
set -u

log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0
failed=0

# run PROGRAM [SUFFIX]: the suffix says what it ran on.
run() {
    begin=$(date +%s)
    "$1" >"$log" 2>&1
    code=$?
    name=${1#"${BUILD:-build}"/}${2:-}
    if [ $code -eq 0 ]; then
        passed=$((passed + 1))
        cases=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/, \1 cases/p' "$log" | tail -n 1)
        skips=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
        [ -n "$skips" ] && cases="$cases, $skips skipped"
        echo "ok    $name ($(($(date +%s) - begin)) s$cases)"
        sed -n 's/^SKIPPED: /      skipped: /p' "$log" | sort -u
    else
        failed=$((failed + 1))
        echo "FAIL  $name: exit code $code"
        sed 's/^/      /' "$log" | tail -n 60
    fi
}

for program in "$@"; do
    run "$program"
done

if [ -n "${ISA_TESTS:-}" ]; then
    # "plain avx2 avx512": the last is what the programs above ran on.
    sets=$("$LOCKSTEP" doctor | sed -n 's/^ *instruction sets *\([a-z0-9_, ]*\)$/\1/p' | tr -d ,)
    best=${sets##* }
    [ -n "$sets" ] || { echo "FAIL  $LOCKSTEP doctor names no instruction set"; exit 1; }
    lesser=
    for isa in ${sets% *}; do
        [ "$isa" = "$best" ] || [ "$isa $best" = "avx512_bf16 amx" ] || lesser="$lesser $isa"
    done
    export LOCKSTEP_ISA
    for LOCKSTEP_ISA in $lesser; do
        for program in $ISA_TESTS; do
            run "$program" ", $LOCKSTEP_ISA"
        done
    done
    echo "instruction sets: $best; $(echo "$ISA_TESTS" | wc -w) programs on each of the lesser ones:${lesser:- none here}"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
