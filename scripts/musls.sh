#!/bin/sh
# Build musl for the tests, into build/musls/RELEASE: mallocng (1.2.1 and later) and the older malloc.
#
#   scripts/musls.sh [RELEASE...]
#   scripts/musls.sh python [SOURCES]
#   scripts/musls.sh alpine ARCHIVE
# The sources come from musl's git repository, or from the one that MUSL_GIT names. Existing builds are kept. Without these builds
# the tests use the system's musl; without that they are skipped. The second form builds CPython with the system's musl into
# build/musls/python, from a folder with CPython's sources or from Debian's sources (scripts/apt.sh). The third form unpacks a
# root folder of Alpine (alpine-minirootfs-*.tar.gz) into build/musls/alpine, and puts that CPython into it.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/apt.sh
TO=$PWD/build/musls
FROM=${MUSL_GIT:-https://git.musl-libc.org/git/musl}

# build RELEASE: make a C library without symbols, and a compiler that uses it.
build() {
    [ ! -e "$TO/$1/bin/musl-gcc" ] || return 0
    say "musl $1"
    rm -rf "$TO/source-$1"
    git clone -q --depth 1 --branch "v$1" "$FROM" "$TO/source-$1" 2>/dev/null || { say "$FROM has no musl $1"; return 0; }
    (
        cd "$TO/source-$1"
        ./configure --prefix="$TO/$1" --syslibdir="$TO/$1/lib" --enable-wrapper=gcc --disable-debug >/dev/null
        make -s -j2 >/dev/null
        strip --strip-unneeded lib/libc.so
        make -s install >/dev/null
    )
    rm -rf "$TO/source-$1"
}

# python_sources: fetch Debian's sources of CPython, and print their folder.
python_sources() {
    folder=$TO/python-sources
    rm -rf "$folder"
    mkdir -p "$folder"
    own_lists "$folder/apt" deb-src bookworm
    (cd "$folder" && own "$folder/apt" apt-get source --download-only python3.11 && tar xzf ./*.orig.tar.gz --strip-components=1) >&2
    printf '%s\n' "$folder"
}

# build_python SOURCES: make an interpreter with the modules that need no other library.
build_python() {
    folder=$TO/python-build
    rm -rf "$folder"
    mkdir -p "$folder/include"
    cp -r "$1" "$folder/source"
    for each in linux asm-generic; do ln -s "/usr/include/$each" "$folder/include/$each"; done
    ln -s "/usr/include/$(gcc -print-multiarch)/asm" "$folder/include/asm"
    # musl-gcc reports the multiarch name of this system's C library.
    printf '#!/bin/sh\ncase "$*" in --print-multiarch) echo x86_64-linux-musl ;; *) exec musl-gcc "$@" ;; esac\n' > "$folder/cc"
    chmod +x "$folder/cc"
    printf '*disabled*\n' > "$folder/source/Modules/Setup.local"
    printf '%s\n' _ctypes _ctypes_test _curses _curses_panel _dbm _gdbm _bz2 _lzma _sqlite3 _ssl _hashlib _tkinter readline \
        zlib nis ossaudiodev spwd _crypt binascii _uuid unicodedata >> "$folder/source/Modules/Setup.local"
    (
        cd "$folder/source"
        CC=$folder/cc CPPFLAGS=-I$folder/include LDFLAGS=-Wl,--build-id ./configure --prefix="$TO/python" \
            --without-ensurepip --disable-test-modules > "$folder/log"
        make -j2 >> "$folder/log" 2>&1
        make install >> "$folder/log" 2>&1
    )
    rm -rf "$folder"
}

# need_python [SOURCES]
need_python() {
    [ ! -e "$TO/python/bin/python3" ] || return 0
    build_python "${1:-$(python_sources)}"
    rm -rf "$TO/python-sources"
}

# unpack_alpine ARCHIVE: unpack Alpine's root folder. CPython lies there at the path that it was built for.
unpack_alpine() {
    rm -rf "$TO/alpine" "$TO/alpine.part"
    mkdir -p "$TO/alpine.part$TO"
    tar -xzf "$1" -C "$TO/alpine.part"
    cp -a "$TO/python" "$TO/alpine.part$TO/python"
    mv "$TO/alpine.part" "$TO/alpine"
}

mkdir -p "$TO"
case ${1:-} in
    python)
        need_python "${2:-}"
        exit
        ;;
    alpine)
        [ -f "${2:-}" ] || { say "usage: scripts/musls.sh alpine ARCHIVE"; exit 2; }
        need_python ""
        unpack_alpine "$2"
        exit
        ;;
esac
[ $# -gt 0 ] || set -- 1.1.24 1.2.1 1.2.2 1.2.4 1.2.5 1.2.6
for release; do
    build "$release"
done
