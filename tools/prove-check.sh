#!/bin/bash
# Shows that `make check` fails only for a reason: runs it again and again where a test that counts
# on the clock or on luck would fail.
#
#     tools/prove-check.sh load|core|clock|pauses [TIMES [PROGRAM...]]
#
#     load   beside three busy loops a core (BUSY=N: N of them; 0 in a clone that runs beside another's),
#            and as many programs at a time as loops
#     core   on one core
#     clock  with a time of day that leaps (tools/jumping-clock.c)
#     pauses with threads that pause at drawn calls (tools/pauses.c), which shows in a few
#            runs what the others show in many
#
# PROGRAM: some of the test programs, such as build/test/comm/test_watch; by default make check. What
# a run printed is shown where it failed; the last line counts the failures.
#
# Each finished run of make check on a commit is a line of bench/check-runs.txt: date, commit, kind,
# passed or failed, seconds. TIMES counts those that are there, so that a proof that was cut short goes
# on; 0 only counts. The last line counts the runs of this commit and those of others apart. Programs
# alone, and a tree with changes, are not recorded.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:?expected load, core, clock or pauses} times=${2:-1}
shift $(($# < 2 ? $# : 2))
build=${BUILD:-build}
busy=() under=()
log=$(mktemp)
trap '[ ${#busy[@]} -eq 0 ] || kill "${busy[@]}"; rm -f "$log"' EXIT

case $kind in
load)
    export TEST_JOBS=${TEST_JOBS:-$((3 * $(nproc)))}
    for _ in $(seq "${BUSY:-$((3 * $(nproc)))}"); do
        sh -c 'while :; do :; done' &
        busy+=($!)
    done
    ;;
core) under=(taskset -c "$(taskset -pc $$ | sed 's/.*: *//; s/[-,].*//')") ;;
clock | pauses)
    [ $kind = clock ] && library=jumping-clock || library=pauses
    cc -shared -fPIC -O2 -o "$build/$library.so" "tools/$library.c"
    under=(env "LD_PRELOAD=$PWD/$build/$library.so")
    [ $kind = clock ] || export IDLE_MAX=1200 # what pauses is idle
    ;;
*)
    echo "expected load, core, clock or pauses, not $kind" >&2
    exit 2
    ;;
esac

command=(make -s check-built)
if [ $# -gt 0 ]; then
    command=(env "BUILD=$build" "LOCKSTEP=$build/lockstep" tools/run-tests.py "$@")
else
    make -s all tests examples
fi
# The commit is the last that changed more than what was measured.
ledger=bench/check-runs.txt
commit=$(tools/commit.sh)
recorded=
if [ $# -eq 0 ] && [[ $commit != *-dirty && $commit != unknown ]]; then
    recorded=yes
    commit=$(git log -1 --format=%h --abbrev=12 -- . ":!$ledger" ':!bench/nightly.md')
fi
# How many lines of the ledger, of this commit (==) or of others (!=), have this result.
count() {
    [ ! -f $ledger ] || awk -v commit="$commit" -v kind="$kind" -v result="$2" \
        "\$2 $1 commit && \$3 == kind && \$4 ~ result { n++ } END { print n + 0 }" $ledger
}
runs=0 failed=0
if [ "$recorded" ]; then
    runs=$(count == .) failed=$(count == failed)
fi
while [ "$((runs))" -lt "$times" ]; do
    runs=$((runs + 1)) result=passed
    begin=$SECONDS
    "${under[@]}" "${command[@]}" >"$log" 2>&1 || result=failed
    echo "$kind, run $runs: $result, $(tail -n 1 "$log"), $((SECONDS - begin)) s"
    if [ $result = failed ]; then
        failed=$((failed + 1))
        grep -A 70 '^FAIL' "$log" || tail -n 30 "$log"
    fi
    if [ "$recorded" ]; then
        echo "$(date -u +%F) $commit $kind $result $((SECONDS - begin))" >>$ledger
    fi
done
others=
[ ! "$recorded" ] || others="; of other commits: $(($(count != .))) runs, $(($(count != failed))) failed"
echo "$kind: $((runs)) runs of $commit, $((failed)) failed$others"
[ "$((failed))" -eq 0 ]
