#!/bin/sh
# Builds the Debian packages from what is committed, and runs the program that they hold.
set -eu

"$(dirname "$0")/install-deps.sh" dpkg-dev debhelper git
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git clone -q "$(dirname "$0")/.." "$folder/lockstep"
# Debhelper gives the build a home of its own: the compiler's cache is this user's all the same.
if [ -z "${CCACHE_DIR:-}" ] && command -v ccache >/dev/null; then
    CCACHE_DIR=$(ccache -k cache_dir)
    export CCACHE_DIR
fi
cd "$folder/lockstep"
DEB_BUILD_OPTIONS="nocheck noautodbgsym" dpkg-buildpackage -us -uc -b >"$folder/log" 2>&1 || {
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
