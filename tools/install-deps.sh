#!/bin/sh
# Installs the Debian packages that building and testing need, and those that are given; those that
# are missing only.
set -eu

# What the Debian package is built from, and what only tests and the house rules need.
built_from=$(awk '/^[A-Z]/ { on = 0 } sub(/^Build-Depends:/, "") { on = 1 } on' \
    "$(dirname "$0")/../debian/control" | tr ',' '\n' | sed 's/[(<].*//' | grep -v debhelper)
packages="$built_from gcc g++ make clang-format clang libclang-rt-14-dev libomp-14-dev bible-kjv
iproute2 slurm-wlm munge python3-prometheus-client python3-pytest python3-numpy mypy $*"

missing=""
for package in $packages; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
        missing="$missing $package"
done
[ -z "$missing" ] && exit 0

echo "installing:$missing"
run=""
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
        echo "these Debian packages are missing; install them as root: apt-get install$missing" >&2
        exit 1
    }
    run=sudo
fi
export DEBIAN_FRONTEND=noninteractive
$run apt-get update -qq
# shellcheck disable=SC2086 # a list of words
$run apt-get install -y -qq --no-install-recommends $missing >/dev/null
