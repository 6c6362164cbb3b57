#!/bin/sh
# Builds of musl for the tests, into build/musls/RELEASE: mallocng (1.2.1 and later) and the malloc before it.
#
#   scripts/musls.sh [RELEASE...]
# The sources are a git repository's, musl's own or the one that MUSL_GIT names. What is there is kept.
# Without this the tests take the system's musl, and are skipped where there is none.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
TO=$PWD/build/musls
FROM=${MUSL_GIT:-https://git.musl-libc.org/git/musl}

# build RELEASE: a C library without symbols, and a compiler that takes it.
build() {
    [ ! -e "$TO/$1/bin/musl-gcc" ] || return 0
    say "musl $1"
    rm -rf "$TO/source-$1"
    git clone -q --depth 1 --branch "v$1" "$FROM" "$TO/source-$1"
    (
        cd "$TO/source-$1"
        ./configure --prefix="$TO/$1" --syslibdir="$TO/$1/lib" --enable-wrapper=gcc --disable-debug >/dev/null
        make -s -j2 >/dev/null
        strip --strip-unneeded lib/libc.so
        make -s install >/dev/null
    )
    rm -rf "$TO/source-$1"
}

mkdir -p "$TO"
[ $# -gt 0 ] || set -- 1.1.24 1.2.2 1.2.5
for release; do
    build "$release"
done
