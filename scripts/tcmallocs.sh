#!/bin/sh
# Builds of tcmalloc (gperftools) for the tests, into build/tcmallocs: the releases that Debian's suites have, without symbols.
#
#   scripts/tcmallocs.sh [RELEASE...]
# The sources are those of Debian's source packages, from the mirror that MIRROR names, or the one that apt has here; apt fetches
# them, with lists of its own in build/, and checks their signatures; cmake and g++ build them. What is there is kept, and a release
# that cannot be had is left out. Without this the tests take the system's libtcmalloc, and are skipped where there is none.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
TO=$PWD/build/tcmallocs
KEYS=${KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}

# The release, the source package's version, and the suite.
releases() {
    cat <<'LIST'
2.10 2.10-1 bookworm
2.16 2.16-1 trixie
LIST
}

mirror() {
    apt-get indextargets --format '$(SITE) $(ORIGIN)' | awk '$2 == "Debian" && $1 !~ /security/ { print $1; exit }'
}

# apt COMMAND...: with the lists of source packages alone.
apt() {
    program=$1
    shift
    "$program" -qq -o "Dir::State::Lists=$TO/apt/lists" -o "Dir::Etc::SourceList=$TO/apt/sources.list" -o Dir::Etc::SourceParts=- \
        -o "Dir::Cache=$TO/apt/cache" -o APT::Sandbox::User=root -o Acquire::Retries=3 "$@"
}

prepare() {
    [ ! -e "$TO/apt/ready" ] || return 0
    mkdir -p "$TO/apt/lists/partial" "$TO/apt/cache/archives/partial"
    from=${MIRROR:-$(mirror)}
    [ -n "$from" ] || { say "apt has no mirror of Debian here; name one with MIRROR"; exit 1; }
    releases | while read -r _release _version suite; do
        echo "deb-src [signed-by=$KEYS] $from $suite main"
    done > "$TO/apt/sources.list"
    apt apt-get update
    touch "$TO/apt/ready"
}

# compile RELEASE VERSION
compile() {
    work=$TO/work-$1
    rm -rf "$work"
    mkdir -p "$work/build"
    (
        cd "$work"
        apt apt-get source --download-only "google-perftools=$2"
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
    prepare
    compile "$release" "$version" < /dev/null
done
