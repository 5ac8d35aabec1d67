#!/bin/sh
# Lines and branches of src/ that the tests reach, by module: tools/coverage.sh BUILD
set -eu

build=$1
find "$build/src" -name '*.gcda' | while read -r data; do
    gcov -n -b -o "$(dirname "$data")" "$data" 2>/dev/null
done | awk -F"'" '
    # Behind all files of an object come their totals, which have no name.
    /^File/ { file = $2; totals = 0 }
    /^Lines executed/ && totals++ { file = "" }
    /^Lines executed/ && file ~ /^src\// {
        split($0, part, /[:% ]+/)
        split(file, path, "/")
        lines[path[2]] += part[5]
        hit[path[2]] += part[5] * part[3] / 100
    }
    /^Taken at least once/ && file ~ /^src\// {
        split($0, part, /[:% ]+/)
        split(file, path, "/")
        branches[path[2]] += part[7]
        taken[path[2]] += part[7] * part[5] / 100
    }
    function share(some, all) { return all ? 100 * some / all : 100 }
    function row(name, hit, lines, taken, branches) {
        return sprintf("%-10s %5.1f%% of %6d lines, %5.1f%% of %6d branches", name,
            share(hit, lines), lines, share(taken, branches), branches)
    }
    END {
        for (module in lines) {
            print row(module, hit[module], lines[module], taken[module], branches[module]) | "sort"
            all += lines[module]
            reached += hit[module]
            ways += branches[module]
            gone += taken[module]
        }
        close("sort")
        print row("all", reached, all, gone, ways)
    }'
