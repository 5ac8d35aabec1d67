#!/bin/bash
# What takes longer than `.ci/run` may: runs it in parts, and writes the result of each to a page.
#
#     tools/nightly.sh [PART...]
#
# PART, by default all of them, in this order:
#   check-all   every test with all that it can do, on every instruction set
#   exhaustive  every layout of 1 to 4 ranks that small recipes admit
#   asan        every test under AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan        ThreadSanitizer on ranks and helpers, and on twenty drawn layouts
#   arm         recorded bits under Arm's emulator, of as many recipes as `make check` takes
#   fuzz        each parser for a minute
#   coverage    lines and branches that make check-all reaches
#   soak        a launched job for an hour, with a fault a minute
#   kills       a launched job that is killed 1,000 times
#   load        make check 20 times beside three busy loops a core
#   core        make check 20 times on one core
#   clock       make check 5 times with a time of day that leaps
#
# bench/nightly.md keeps the last result of each part, with its date and commit. A part runs on a clean
# commit. The exit code is 1 if one failed.
set -euo pipefail
cd "$(dirname "$0")/.."
page=bench/nightly.md
log=$(mktemp)
trap 'rm -f "$log"' EXIT
parts=("$@")
[ $# -gt 0 ] || parts=(check-all exhaustive asan tsan arm fuzz coverage soak kills load core clock)
[ -z "$(git status --porcelain -- . ":!$page")" ] || {
    echo "$0: the tree has changes: expected a clean commit" >&2
    exit 2
}

tsan() {
    export OMP_THREAD_LIMIT=1 TSAN_OPTIONS=halt_on_error=1
    local shared="comm/test_thread comm/test_watch data/test_elsewhere device/% dtensor/% parallel/% plan/%"
    shared+=" session/test_session state/% train/test_snapshots"
    local build=(make SANITIZE=thread MPI=0 BUILD=build-tsan TESTED="$shared invariance/test_invariance")
    "${build[@]}" tested
    make -s SANITIZE=thread MPI=0 BUILD=build-tsan TESTED="$shared" CHECK=few run-tested
    for index in $(seq 0 19); do
        build-tsan/test/invariance/test_invariance --only "$index" 1 2
    done
}
part_run() {
    case $1 in
    check-all) make check-all WERROR=1 ;;
    exhaustive) make exhaustive ;;
    asan)
        UBSAN_OPTIONS=halt_on_error=1 make SANITIZE=address,undefined MPI=0 BUILD=build-asan \
            TESTED=% CHECK=few all run-tested
        ;;
    tsan) tsan ;;
    arm)
        tools/arm64.sh make WERROR=1 all build-arm64/test/train/test_golden
        BUILD=build-arm64 tools/run-tests.py --under 'tools/arm64.sh run' build-arm64/test/train/test_golden
        ;;
    fuzz) make fuzz SECONDS=60 ;;
    coverage) make coverage CHECK=all WERROR=1 ;;
    soak) make soak ;;
    kills) make faults-kills ;;
    load) tools/prove-check.sh load 20 ;;
    core) tools/prove-check.sh core 20 ;;
    clock) tools/prove-check.sh clock 5 ;;
    *)
        echo "no such part: $1" >&2
        return 2
        ;;
    esac
}

# The page without the part's row, and with its new one, in the order of the parts.
page_write() {
    local row commit
    commit=$(git rev-parse --short HEAD)
    row="| $1 | $(date -u +%F) | $commit | $2 | $3 |"
    [ -f "$page" ] || cat >"$page" <<'END'
# What takes longer than CI may

Written by `make nightly` (`tools/nightly.sh`): the last result of each of its parts, or of
`tools/prove-check.sh` alone, whose row says how often it ran. What the parts are is in
[doc/testing.md](../doc/testing.md).

| part | date | commit | minutes | result |
|---|---|---|---|---|
END
    grep -v "^| $1 |" "$page" >"$log.page" || true
    echo "$row" >>"$log.page"
    mv "$log.page" "$page"
}

failed=0
for part in "${parts[@]}"; do
    begin=$SECONDS
    echo "==== $part"
    if (part_run "$part") >"$log" 2>&1; then
        result=$(grep -vE '^make|^ *$' "$log" | tail -n 1)
    else
        result="FAILED: $(grep -m 1 -E '^FAIL|FAILED|rror' "$log" || tail -n 1 "$log")"
        failed=1
        tail -n 60 "$log"
    fi
    result=$(tr '|' '/' <<<"$result" | cut -c 1-160)
    page_write "$part" "$(((SECONDS - begin + 30) / 60))" "$result"
    echo "$part: $result"
done
exit $failed
