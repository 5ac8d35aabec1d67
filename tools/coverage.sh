#!/bin/sh
# Lines of src/ that the tests reach, by module: tools/coverage.sh BUILD
set -eu

build=$1
find "$build/src" -name '*.gcda' | while read -r data; do
    gcov -n -o "$(dirname "$data")" "$data" 2>/dev/null
done | awk -F"'" '
    /^File/ { file = $2 }
    /^Lines executed/ && file ~ /^src\// {
        split($0, part, /[:% ]+/)
        split(file, path, "/")
        lines[path[2]] += part[5]
        hit[path[2]] += part[5] * part[3] / 100
    }
    END {
        for (module in lines) {
            printf "%-10s %5.1f%% of %d lines\n", module, 100 * hit[module] / lines[module], lines[module]
            all += lines[module]
            reached += hit[module]
        }
        printf "%-10s %5.1f%% of %d lines\n", "all", 100 * reached / all, all
    }' | sort
