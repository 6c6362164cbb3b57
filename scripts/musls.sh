#!/bin/sh
# Builds of musl for the tests, into build/musls/RELEASE: mallocng (1.2.1 and later) and the malloc before it.
#
#   scripts/musls.sh [RELEASE...]
#   scripts/musls.sh python [SOURCES]
#   scripts/musls.sh alpine ARCHIVE
# The sources are a git repository's, musl's own or the one that MUSL_GIT names. What is there is kept.
# Without this the tests take the system's musl, and are skipped where there is none. The second form builds CPython with the
# system's musl, from a folder of CPython's sources or from Debian's (scripts/apt.sh), into build/musls/python. The third one
# unpacks a root folder of Alpine (alpine-minirootfs-*.tar.gz) into build/musls/alpine, and puts that CPython into it.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/apt.sh
TO=$PWD/build/musls
FROM=${MUSL_GIT:-https://git.musl-libc.org/git/musl}

# build RELEASE: a C library without symbols, and a compiler that takes it.
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

# python_sources: a folder of CPython's sources as Debian has them.
python_sources() {
    folder=$TO/python-sources
    rm -rf "$folder"
    mkdir -p "$folder"
    own_lists "$folder/apt" deb-src bookworm
    (cd "$folder" && own "$folder/apt" apt-get source --download-only python3.11 && tar xzf ./*.orig.tar.gz --strip-components=1) >&2
    printf '%s\n' "$folder"
}

# build_python SOURCES: an interpreter with the modules that need no other library.
build_python() {
    folder=$TO/python-build
    rm -rf "$folder"
    mkdir -p "$folder/include"
    cp -r "$1" "$folder/source"
    for each in linux asm-generic; do ln -s "/usr/include/$each" "$folder/include/$each"; done
    ln -s "/usr/include/$(gcc -print-multiarch)/asm" "$folder/include/asm"
    # musl-gcc says that it is for the C library of this system.
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

# unpack_alpine ARCHIVE: the CPython lies at the same path in there, which it knows itself by.
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
