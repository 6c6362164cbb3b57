#!/bin/bash
# Compare gdbheap with the figures of glibc and of CPython on Debian's suites, each in a root folder, and write docs/support.md.
#
# Usage, as root: make matrix [SUITES="bullseye trixie"] [FOLDER=/var/tmp/matrix] [PARTS="glibc interpreters mallocs aarch64"] [INSTANTS=200]
# SUITES begins with the oldest glibc. Its compiler builds the C program, and the native module is linked with its libc, because a
# module that is linked with a newer libc cannot be loaded there. "experimental" is sid with experimental's glibc.
# FOLDER keeps the root folders for the next run; without it they are removed. With other SUITES the table is only printed.
# "mallocs": the other mallocs, without root folders. Each available build is made, and read at INSTANTS random instants with 1 and
# with 8 threads (tests/test_instants.py). That takes two hours.
# "aarch64": tests in two virtual machines, with pages of 4 and of 16 KiB (scripts/arm64_machine.sh).
# SSL_CERT_FILE names the certificates if they are not Debian's own, as for every other program.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/folders.sh
ALL="bullseye bookworm trixie sid experimental"
# Interpreters to test in addition to the suite's default one, if the suite has them.
declare -A PYTHONS=([bullseye]="python2.7" [sid]="python3.15")
VENV=${VENV:-.venv}
read -ra suites <<< "${SUITES:-$ALL}"
PARTS=${PARTS:-glibc interpreters mallocs aarch64}
failed=0

# look_at_mallocs: test every build of every malloc.
look_at_mallocs() {
    for script in jemallocs tcmallocs mimallocs musls suites; do
        "scripts/$script.sh" || say "scripts/$script.sh failed: what it had not made is left out"
    done
    GDBHEAP_INSTANTS=${INSTANTS:-200} "$VENV/bin/python" -m pytest -q tests/test_instants.py
}

if [[ $PARTS == *mallocs* ]]; then
    look_at_mallocs || failed=1
fi
[[ $PARTS == *glibc* || $PARTS == *interpreters* || $PARTS == *aarch64* ]] || exit "$failed"
need_root_folders
[ -n "${FOLDER:-}" ] && keep=yes || keep=
folder=${FOLDER:-$(mktemp -d /var/tmp/gdbheap-matrix.XXXXXX)}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
oldest=$folder/${suites[0]}

clean() {
    for suite in "${suites[@]}"; do
        if [ -n "$keep" ]; then unmount_from "$folder/$suite"; else remove_root "$folder/$suite"; fi
    done
    [ -n "$keep" ] || rm -rf --one-file-system "$folder"
}
trap clean EXIT

# prepare SUITE: make the suite's folder with its gdb and Python; replace one that an earlier run left incomplete.
prepare() {
    local root=$folder/$1
    if [ ! -e "$root/srv/prepared" ]; then
        say "$1: debootstrap, gdb, Python"
        remove_root "$root"
        bootstrap "${1/experimental/sid}" "$root" >/dev/null
        mount_into "$root"
        add_packages "$root" gdb python3-venv >/dev/null
        [ "$1" != experimental ] || add_newer_libc "$root" >/dev/null
        touch "$root/srv/prepared"
    else
        mount_into "$root"
    fi
    for python in ${PYTHONS[$1]:-}; do
        [ -e "$root/usr/bin/$python" ] || add_packages "$root" "$python" >/dev/null || say "$1: no $python"
    done
}

add_newer_libc() {
    echo "deb http://deb.debian.org/debian experimental main" > "$1/etc/apt/sources.list.d/experimental.list"
    add_packages "$1" -t experimental libc6
}

# build_program: compile recorder.c with the oldest suite's compiler.
build_program() {
    [ -e "$oldest/usr/bin/gcc" ] || add_packages "$oldest" gcc libc6-dev >/dev/null
    mkdir -p "$oldest/srv/programs"
    cp tests/programs/recorder.c tests/programs/target.h "$oldest/srv/programs/"
    inside "$oldest" gcc -O1 -g -Wall -Wextra -pthread /srv/programs/recorder.c -o /srv/programs/recorder
}

# build_wheel: build one wheel for the Python of every suite, linked with the oldest libc.
build_wheel() {
    local libraries
    libraries=$oldest/usr/lib/$(inside "$oldest" gcc -print-multiarch)
    # Absolute links would lead out of the folder.
    for link in "$libraries"/*.so "$oldest"/lib64/*.so.*; do
        case $(readlink "$link") in /*) ln -sfr "$oldest$(readlink "$link")" "$link" ;; esac
    done
    rm -rf build/matrix/wheels build/lib* build/bdist*
    mkdir -p build/matrix
    # Because a target is named, programs that the build itself runs are still linked with this system's libc.
    RUSTFLAGS="-L native=$libraries -C link-arg=--sysroot=$oldest" CARGO_TARGET_DIR=$PWD/build/matrix/target \
        CARGO_BUILD_TARGET=$(rustc -vV | sed -n 's/^host: //p') flock build/lock "$VENV/bin/python" -m pip --disable-pip-version-check wheel -q --no-deps --no-build-isolation \
        -w build/matrix/wheels .
    rm -rf build/lib* build/bdist*
    "$VENV/bin/python" -m pip --disable-pip-version-check download -q --python-version 3.9 --only-binary=:all: \
        -d build/matrix/wheels -f build/matrix/wheels gdbheap
}

# install_into SUITE: install as a user of the suite would.
install_into() {
    local root=$folder/$1
    rm -rf "$root/srv/wheels" "$root/srv/venv"
    cp -r build/matrix/wheels "$root/srv/wheels"
    [ "$root" = "$oldest" ] || { mkdir -p "$root/srv/programs"; cp --remove-destination "$oldest/srv/programs/recorder" "$root/srv/programs/"; }
    inside "$root" python3 -m venv /srv/venv
    inside "$root" /srv/venv/bin/pip install -q --no-index --find-links=/srv/wheels gdbheap
    inside "$root" /srv/venv/bin/gdbheap install >/dev/null
}

if [[ $PARTS == *aarch64* ]]; then
    for pages in 4 16; do
        PAGES=$pages scripts/arm64_machine.sh "$folder/aarch64" || failed=1
        rm -rf "$folder/aarch64/$pages"
        [ ! -e "$folder/aarch64/out" ] || mv "$folder/aarch64/out" "$folder/aarch64/$pages"
        "$VENV/bin/python" tests/arm64_compare.py "$folder/aarch64/$pages/answers" "$folder/aarch64/arm64" || failed=1
    done
    output=/dev/stdout
    [ "${suites[*]}" != "$ALL" ] || output=docs/support.md
    "$VENV/bin/python" tests/matrix_aarch64.py --folder="$folder/aarch64" --output="$output" || failed=1
fi
[[ $PARTS == *glibc* || $PARTS == *interpreters* ]] || exit "$failed"
for suite in "${suites[@]}"; do
    prepare "$suite" >&2
done
output=/dev/stdout
[ "${suites[*]}" != "$ALL" ] || output=docs/support.md
if [[ $PARTS == *glibc* ]]; then
    say "one program and one wheel, for the glibc of ${suites[0]} and later"
    build_program >&2
    build_wheel >&2
    for suite in "${suites[@]}"; do
        install_into "$suite" >&2
    done
    "$VENV/bin/python" tests/matrix.py --folder="$folder" --output="$output" "${suites[@]}" || failed=1
fi
if [[ $PARTS == *interpreters* ]]; then
    "$VENV/bin/python" tests/matrix_interpreters.py --folder="$folder" --output="$output" "${suites[@]}" || failed=1
fi
exit "$failed"
