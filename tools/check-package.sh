#!/bin/sh
# Builds the Debian packages from what is committed, and runs the program that they hold.
set -eu

"$(dirname "$0")/install-deps.sh" dpkg-dev debhelper git
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git clone -q "$(dirname "$0")/.." "$folder/lockstep"
cd "$folder/lockstep"
DEB_BUILD_OPTIONS=nocheck dpkg-buildpackage -us -uc -b >"$folder/log" 2>&1 || {
    tail -n 40 "$folder/log"
    exit 1
}
for package in ../lockstep_*.deb ../liblockstep0_*.deb ../liblockstep-dev_*.deb; do
    dpkg-deb -x "$package" "$folder/root"
    echo "$(basename "$package"): $(dpkg-deb -c "$package" | wc -l) entries"
done
libraries=$(dirname "$(find "$folder/root" -name 'liblockstep.so.0')")
"$folder/root/usr/bin/lockstep" --version
cc examples/collective.c -I"$folder/root/usr/include" -L"$libraries" -llockstep -o "$folder/program"
LD_LIBRARY_PATH=$libraries "$folder/program"
