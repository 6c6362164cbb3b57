#!/bin/sh
# Source distribution and wheels into dist/, for machines that have no compiler:
#
#   scripts/wheels.sh sdist        gdbheap-VERSION.tar.gz
#   scripts/wheels.sh manylinux    and from that, by zig, a wheel for glibc 2.17 and later
#   scripts/wheels.sh musllinux    the same for musl 1.2
#
# A wheel is made from the unpacked source distribution alone, in an environment that has only what pyproject.toml names, so
# that what is missing in it would be missed here. auditwheel refuses a wheel that needs more of glibc than its name says; of musl
# it can speak only on musl, where a wheel needs libc.so and nothing else.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
TOOLS=$PWD/build/packaging/tools
GLIBC_NEEDED=2.17
MUSL_NEEDED=1_2

tools() {
    [ "$(cksum < packaging/tools.txt)" != "$(cat "$TOOLS/cksum" 2>/dev/null)" ] || return 0
    python=$(find_python) || { say "no Python 3.9 or later with venv here; run scripts/setup.sh"; exit 1; }
    say "fetching what makes packages into $TOOLS"
    "$python" -m venv --clear "$TOOLS"
    "$TOOLS/bin/python" -m pip --disable-pip-version-check -q install -r packaging/tools.txt
    cksum < packaging/tools.txt > "$TOOLS/cksum"
}

# Of the commit that is built, so that the same commit gives the same files.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
export SOURCE_DATE_EPOCH

# pybuild ARGUMENTS: python -m build, without what an earlier build left behind.
pybuild() {
    "$TOOLS/bin/python" -m build "$@" >/dev/null
}

sdist() {
    [ -e packaging/man/gdbheap.1 ] || { say "no packaging/man/gdbheap.1 here: make build writes it"; exit 2; }
    say "the source distribution"
    rm -rf ./*.egg-info dist/*.tar.gz
    pybuild --sdist --outdir dist .
    rm -rf ./*.egg-info
    "$TOOLS/bin/twine" check --strict dist/*.tar.gz >/dev/null
}

# unpack: always to the same place, so that cargo builds again only what changed.
unpack() {
    rm -rf build/packaging/source
    mkdir -p build/packaging/source
    tar -xzf dist/*.tar.gz --strip-components=1 -C build/packaging/source
}

# name_manylinux WHEEL PLATFORM: what auditwheel finds good goes to dist/ under its name.
name_manylinux() {
    PATH=$TOOLS/bin:$PATH "$TOOLS/bin/auditwheel" repair --plat "$2" --wheel-dir dist "$1" >/dev/null
}

name_musllinux() {
    needed=$("$TOOLS/bin/python" packaging/needs.py "$1")
    [ "$needed" = libc.so ] || { say "for musl it may need libc.so alone, and needs $needed"; exit 1; }
    "$TOOLS/bin/python" -m wheel tags --remove --platform-tag "$2" "$1" >/dev/null
    mv build/packaging/wheel/*"$2".whl dist/
}

# wheel TARGET PLATFORM [RUSTFLAGS]: build for TARGET, and name it PLATFORM if that is true.
wheel() {
    has_cargo || { say "no cargo $RUST_NEEDED or later here; run scripts/setup.sh"; exit 1; }
    [ -d "$(rustc --print target-libdir --target "$1")" ] || { say "no standard library of Rust for $1: rustup target add $1"; exit 1; }
    say "a wheel for $2 (cargo $(cargo_version), zig $("$TOOLS/bin/python" -m ziglang version))"
    rm -rf build/packaging/wheel
    unpack
    PATH=$TOOLS/bin:$PATH CARGO_ZIGBUILD_PYTHON_PATH=$TOOLS/bin/python CARGO=$PWD/packaging/cargo CARGO_BUILD_TARGET=$1 CARGO_TARGET_DIR=$PWD/build/packaging/target \
        PACKAGE_RUSTFLAGS="--remap-path-prefix=$PWD/build/packaging/source= --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo ${3:-}" \
        pybuild --wheel --outdir build/packaging/wheel build/packaging/source
    mkdir -p dist
    rm -f dist/*"${2%%_*}"*.whl
    "name_${2%%_*}" build/packaging/wheel/*.whl "$2"
    "$TOOLS/bin/twine" check --strict dist/*"${2%%_*}"*.whl >/dev/null
}

mkdir -p build/packaging
exec 9> build/packaging/lock
flock 9
tools
[ $# -gt 0 ] || { say "usage: scripts/wheels.sh sdist|manylinux|musllinux..."; exit 2; }
sdist
for kind; do
    case $kind in
        sdist) ;;
        manylinux)
            GLIBC=$GLIBC_NEEDED
            export GLIBC
            wheel x86_64-unknown-linux-gnu "manylinux_$(echo "$GLIBC" | tr . _)_x86_64"
            unset GLIBC
            ;;
        musllinux) wheel x86_64-unknown-linux-musl "musllinux_${MUSL_NEEDED}_x86_64" "-C target-feature=-crt-static" ;;
        *) say "usage: scripts/wheels.sh sdist|manylinux|musllinux..."; exit 2 ;;
    esac
done
say "in dist: $(cd dist && echo *.tar.gz *.whl)"
