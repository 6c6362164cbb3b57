#!/bin/sh
# Make the source distribution and wheels in dist/, for machines without a compiler:
#
#   scripts/wheels.sh sdist        gdbheap-VERSION.tar.gz
#   scripts/wheels.sh manylinux    from that, with zig, a wheel for glibc 2.17 and later
#   scripts/wheels.sh musllinux    the same for musl 1.2
#   scripts/wheels.sh manylinux-aarch64 musllinux-aarch64    the same for aarch64, without recorder and replayer
#
# A wheel is made only from the unpacked source distribution, in an environment that has only the requirements in pyproject.toml, so
# that a missing file or requirement is noticed. auditwheel refuses a wheel that needs a newer glibc than its name says. It can check a
# musl wheel only on musl, so here such a wheel may need libc.so and nothing else.
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

set_source_date

# quietly COMMAND...: run a command, and show the end of its output only if it fails.
quietly() {
    "$@" >build/packaging/log 2>&1 || { tail -n 40 build/packaging/log >&2; exit 1; }
}

pybuild() {
    quietly "$TOOLS/bin/python" -m build "$@"
}

sdist() {
    [ -e packaging/man/gdbheap.1 ] || { say "no packaging/man/gdbheap.1 here: make build writes it"; exit 2; }
    say "the source distribution"
    rm -rf ./*.egg-info dist/*.tar.gz
    pybuild --sdist --outdir dist .
    rm -rf ./*.egg-info
    repack dist/*.tar.gz
    quietly "$TOOLS/bin/twine" check --strict dist/*.tar.gz
}

# repack ARCHIVE: pack the same files in a fixed order, with one time and owner, so that the same commit gives the same
# archive.
repack() {
    rm -rf build/packaging/sdist
    mkdir -p build/packaging/sdist
    tar -xzf "$1" -C build/packaging/sdist
    (cd build/packaging/sdist && tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --mode=u=rwX,go=rX --format=gnu -cf - gdbheap-* | gzip -9n) > "$1"
}

# unpack: unpack always to the same place. Unchanged files keep their times, so that cargo builds only what changed.
unpack() {
    new=build/packaging/new
    rm -rf "$new"
    mkdir -p "$new" build/packaging/source
    tar -xzf dist/*.tar.gz --strip-components=1 -C "$new" --touch
    (cd "$new" && find native -type f) | while read -r file; do
        ! cmp -s "build/packaging/source/$file" "$new/$file" || touch -r "build/packaging/source/$file" "$new/$file"
    done
    rm -rf build/packaging/source
    mv "$new" build/packaging/source
}

# name_manylinux WHEEL PLATFORM: move a wheel that auditwheel accepts to dist/ under auditwheel's name. --plat accepts
# only platforms of this machine's processor, but its "auto" also finds those of others.
name_manylinux() {
    PATH=$TOOLS/bin:$PATH quietly "$TOOLS/bin/auditwheel" repair --plat auto --wheel-dir dist "$1"
    [ -f "$(echo dist/*"$2".whl)" ] || { say "$(ls -t dist | head -n 1) is not for $2"; exit 1; }
}

name_musllinux() {
    needed=$("$TOOLS/bin/python" packaging/needs.py "$1")
    [ "$needed" = libc.so ] || { say "for musl it may need libc.so alone, and needs $needed"; exit 1; }
    "$TOOLS/bin/python" -m wheel tags --remove --platform-tag "$2" "$1" >/dev/null
    mv build/packaging/wheel/*"$2".whl dist/
}

# wheel TARGET PLATFORM [RUSTFLAGS]: build a wheel for TARGET; name it PLATFORM if it fits that platform.
wheel() {
    machine=${1%%-*}
    has_cargo || { say "no cargo $RUST_NEEDED or later here; run scripts/setup.sh"; exit 1; }
    [ -d "$(rustc --print target-libdir --target "$1")" ] || { say "no standard library of Rust for $1: rustup target add $1"; exit 1; }
    say "a wheel for $2 (cargo $(cargo_version), zig $("$TOOLS/bin/python" -m ziglang version))"
    rm -rf build/packaging/wheel
    unpack
    _PYTHON_HOST_PLATFORM=linux-$machine PYO3_CROSS_PYTHON_VERSION=3.9 \
        PATH=$TOOLS/bin:$PATH CARGO_ZIGBUILD_PYTHON_PATH=$TOOLS/bin/python CARGO=$PWD/packaging/cargo CARGO_BUILD_TARGET=$1 CARGO_TARGET_DIR=$PWD/build/packaging/target \
        PACKAGE_RUSTFLAGS="--remap-path-prefix=$PWD/build/packaging/source= --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo ${3:-}" \
        pybuild --wheel --outdir build/packaging/wheel build/packaging/source
    mkdir -p dist
    rm -f dist/*"${2%%_*}"*"$machine".whl
    "name_${2%%_*}" build/packaging/wheel/*.whl "$2"
    quietly "$TOOLS/bin/twine" check --strict dist/*"${2%%_*}"*"$machine".whl
    quietly "$TOOLS/bin/abi3audit" --strict dist/*"${2%%_*}"*"$machine".whl
}

mkdir -p build/packaging
exec 9> build/packaging/lock
flock 9
tools
usage="usage: scripts/wheels.sh sdist|manylinux|musllinux|manylinux-aarch64|musllinux-aarch64..."
[ $# -gt 0 ] || { say "$usage"; exit 2; }
sdist
for kind; do
    machine=x86_64
    case $kind in *-aarch64) machine=aarch64 ;; esac
    case ${kind%-aarch64} in
        sdist) ;;
        manylinux)
            GLIBC=$GLIBC_NEEDED
            export GLIBC
            wheel $machine-unknown-linux-gnu "manylinux_$(echo "$GLIBC" | tr . _)_$machine"
            unset GLIBC
            ;;
        musllinux) wheel $machine-unknown-linux-musl "musllinux_${MUSL_NEEDED}_$machine" "-C target-feature=-crt-static" ;;
        *) say "$usage"; exit 2 ;;
    esac
done
say "in dist: $(cd dist && echo *.tar.gz *.whl)"
