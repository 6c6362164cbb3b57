#!/bin/sh
# Build the newest sources of what gdbheap reads, where the tests look for libraries, and run their tests. Fails if any no longer fits.
#
#   scripts/newest_sources.sh cpython|gperftools|jemalloc|mimalloc|musl...
#
# HEAD_FROM names another repository, or a folder with one. Needs git, and the tools of each build (autoconf, cmake, a C++ compiler).
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
VENV=${VENV:-.venv}
TO=$PWD/build/newest

address() {
    case $1 in
        cpython) echo https://github.com/python/cpython ;;
        gperftools) echo https://github.com/gperftools/gperftools ;;
        jemalloc) echo https://github.com/jemalloc/jemalloc ;;
        mimalloc) echo https://github.com/microsoft/mimalloc ;;
        musl) echo https://git.musl-libc.org/git/musl ;;
        *) say "usage: scripts/newest_sources.sh cpython|gperftools|jemalloc|mimalloc|musl..."; exit 2 ;;
    esac
}

build_cpython() {
    ./configure -q --prefix="$TO/python"
    make -s -j2
    make -s install
}

build_gperftools() {
    cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DGPERFTOOLS_BUILD_MINIMAL=ON -DBUILD_TESTING=OFF -DBUILD_SHARED_LIBS=ON
    cmake --build build --target tcmalloc_minimal -j2
    place "$(readlink -f build/libtcmalloc_minimal.so)" tcmallocs/libtcmalloc-head.so
}

build_jemalloc() {
    autoconf
    CFLAGS="-O2 -w" ./configure --disable-cxx --disable-doc
    make -j2 build_lib_shared
    place lib/libjemalloc.so.2 jemallocs/libjemalloc-head.so
}

build_mimalloc() {
    gcc -O2 -w -shared -fPIC -ftls-model=initial-exec -fvisibility=hidden -DNDEBUG -DMI_MALLOC_OVERRIDE -DMI_SHARED_LIB \
        -DMI_SHARED_LIB_EXPORT -Iinclude src/static.c -o head.so -lpthread
    place head.so mimallocs/libmimalloc-head.so
}

# The tests expect a release as the folder's name.
build_musl() {
    ./configure --prefix="$TO/../musls/99.0" --syslibdir="$TO/../musls/99.0/lib" --enable-wrapper=gcc --disable-debug
    make -s -j2
    strip --strip-unneeded lib/libc.so
    make -s install
}

# place LIBRARY NAME: copy a library without symbols into the folder of builds for the tests.
place() {
    mkdir -p "$TO/../${2%/*}"
    strip --strip-unneeded "$1"
    cp "$1" "$TO/../$2"
}

try() {
    "$VENV/bin/python" -m pytest -q "$@"
}

try_cpython() {
    GDBHEAP_PYTHONS=$(echo "$TO"/python/bin/python3.*[0-9])
    GDBHEAP_RELEASE=${GDBHEAP_PYTHONS##*/python}
    export GDBHEAP_PYTHONS GDBHEAP_RELEASE
    try tests/test_oracle_versions.py tests/test_interpreter.py -k "$GDBHEAP_RELEASE"
}

try_gperftools() { try tests/test_tcmalloc_library.py -k head; }
try_jemalloc() { try tests/test_jemalloc_library.py -k head; }
try_mimalloc() { try tests/test_mimalloc_library.py -k head; }
try_musl() { try tests/test_mallocng.py -k 99.0; }

for name; do
    from=${HEAD_FROM:-$(address "$name")}
    rm -rf "${TO:?}/$name"
    mkdir -p "$TO"
    git clone -q --depth 1 "$from" "$TO/$name"
    say "$name at $(git -C "$TO/$name" log -1 --format='%h of %cs')"
    (cd "$TO/$name" && "build_$name") > "$TO/$name.log" 2>&1 || { tail -n 40 "$TO/$name.log" >&2; say "$name could not be built"; exit 1; }
    rm -rf "${TO:?}/$name"
    "try_$name"
done
