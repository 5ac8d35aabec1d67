#!/bin/sh
# Builds for Arm (AArch64) on another machine, and runs programs of it by qemu-user.
#
#     tools/arm64.sh sysroot           downloads Debian's arm64 libraries into build-arm64-root
#     tools/arm64.sh make [TARGET...]  builds into build-arm64; without MPI
#     tools/arm64.sh run PROGRAM...    runs a program of build-arm64
#
# Nothing of another architecture is installed on the machine; gcc-aarch64-linux-gnu and qemu-user
# are, where they are missing.
set -eu

cd "$(dirname "$0")/.."
build=build-arm64
packages=build-arm64-root/apt
root=build-arm64-root/sysroot
libraries="libdnnl-dev libhwloc-dev libfyaml-dev libjansson-dev libxxhash-dev libisal-dev \
    libpcre2-dev libutf8proc-dev libcurl4-gnutls-dev nettle-dev libzstd-dev zlib1g-dev liburing-dev libcmocka-dev"

sysroot() {
    tools/install-deps.sh gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
    rm -rf "$root.new"
    mkdir -p "$root.new" "$packages/lists/partial" "$packages/archives/partial"
    : >"$packages/status"
    # Apt's own state stays as it is: these lists and packages are this folder's.
    apt() {
        apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
            -o Dir::State::status="$PWD/$packages/status" -o Dir::State::lists="$PWD/$packages/lists" \
            -o Dir::Cache::archives="$PWD/$packages/archives" -o Dir::Cache::pkgcache= \
            -o Dir::Cache::srcpkgcache= -o Debug::NoLocking=1 -o APT::Install-Recommends=0 "$@"
    }
    apt update
    # shellcheck disable=SC2086 # a list of words
    apt install --download-only --yes $libraries >/dev/null
    for package in "$packages"/archives/*.deb; do
        dpkg-deb --extract "$package" "$root.new"
    done
    mv "$root.new" "$root"
}

case ${1:-} in
sysroot)
    sysroot
    ;;
make)
    shift
    [ -d "$root" ] || sysroot
    PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig:$root/usr/share/pkgconfig \
        PKG_CONFIG_SYSROOT_DIR=$root make BUILD=$build MPI=0 \
        CC="${ARM64_CC:-aarch64-linux-gnu-gcc} --sysroot=$root" "$@"
    ;;
run)
    shift
    QEMU_LD_PREFIX="$PWD/$root" exec qemu-aarch64 "$@"
    ;;
*)
    sed -n 's/^# \{0,1\}//p' "$0" | sed 1d >&2
    exit 2
    ;;
esac
