#!/bin/sh
# Build tcmalloc (gperftools) for the tests, into build/tcmallocs: the releases in Debian's suites, without symbols.
#
#   scripts/tcmallocs.sh [RELEASE...]
# The sources are Debian's source packages, which apt fetches (scripts/apt.sh); cmake and g++ build them. Existing builds are
# kept; unavailable releases are skipped. Without these builds the tests use the system's libtcmalloc; without that they are
# skipped.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/apt.sh
TO=$PWD/build/tcmallocs

# The release, the source package's version, and the suite.
releases() {
    cat <<'LIST'
2.10 2.10-1 bookworm
2.16 2.16-1 trixie
LIST
}

# compile RELEASE VERSION
compile() {
    work=$TO/work-$1
    rm -rf "$work"
    mkdir -p "$work/build"
    (
        cd "$work"
        own "$TO/apt" apt-get source --download-only "google-perftools=$2"
        tar xzf ./*.orig.tar.gz --strip-components=1
        cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DGPERFTOOLS_BUILD_MINIMAL=ON -DBUILD_TESTING=OFF \
            -DBUILD_SHARED_LIBS=ON
        cmake --build build --target tcmalloc_minimal -j2
    ) > "$TO/$1.log" 2>&1 || { say "tcmalloc $1 could not be had: $TO/$1.log"; return 0; }
    cp "$(readlink -f "$work/build/libtcmalloc_minimal.so")" "$TO/libtcmalloc-$1.part"
    strip --strip-unneeded "$TO/libtcmalloc-$1.part"
    mv "$TO/libtcmalloc-$1.part" "$TO/libtcmalloc-$1.so"
    rm -rf "$work" "$TO/$1.log"
}

mkdir -p "$TO"
releases | while read -r release version suite; do
    [ $# -eq 0 ] || case " $* " in *" $release "*) ;; *) continue ;; esac
    [ ! -e "$TO/libtcmalloc-$release.so" ] || continue
    say "tcmalloc $release ($suite)"
    # shellcheck disable=SC2046
    [ -e "$TO/apt/made" ] || own_lists "$TO/apt" deb-src $(releases | awk '{ print $3 }') < /dev/null
    compile "$release" "$version" < /dev/null
done
