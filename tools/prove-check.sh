#!/bin/bash
# Shows that `make check` fails only for a reason: runs it again and again where a test that counts
# on the clock or on luck would fail.
#
#     tools/prove-check.sh load|core|clock [TIMES [PROGRAM...]]
#
#     load   beside three busy loops a core
#     core   on one core
#     clock  with a time of day that leaps (tools/jumping-clock.c)
#
# PROGRAM: some of the test programs, such as build/test/comm/test_watch; by default make check. What
# a run printed is shown where it failed; the last line counts the failures.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:?expected load, core or clock} times=${2:-1}
shift $(($# < 2 ? $# : 2))
build=${BUILD:-build}
busy=() under=()
log=$(mktemp)
trap '[ ${#busy[@]} -eq 0 ] || kill "${busy[@]}"; rm -f "$log"' EXIT

case $kind in
load)
    for _ in $(seq $((3 * $(nproc)))); do
        sh -c 'while :; do :; done' &
        busy+=($!)
    done
    ;;
core) under=(taskset -c "$(taskset -pc $$ | sed 's/.*: *//; s/[-,].*//')") ;;
clock)
    cc -shared -fPIC -O2 -o "$build/jumping-clock.so" tools/jumping-clock.c
    under=(env "LD_PRELOAD=$PWD/$build/jumping-clock.so")
    ;;
*)
    echo "expected load, core or clock, not $kind" >&2
    exit 2
    ;;
esac

command=(make -s check-built)
if [ $# -gt 0 ]; then
    command=(env "BUILD=$build" "LOCKSTEP=$build/lockstep" tools/run-tests.py "$@")
else
    make -s all tests examples
fi
failed=0
for run in $(seq "$times"); do
    begin=$SECONDS
    if "${under[@]}" "${command[@]}" >"$log" 2>&1; then
        echo "$kind, run $run: $(tail -n 1 "$log"), $((SECONDS - begin)) s"
    else
        failed=$((failed + 1))
        echo "$kind, run $run: FAILED, $((SECONDS - begin)) s"
        grep -A 70 '^FAIL' "$log" || tail -n 30 "$log"
    fi
done
echo "$kind: $times runs, $failed failed"
[ "$failed" -eq 0 ]
