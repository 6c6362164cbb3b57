#!/bin/sh
# Build jemalloc for the tests, into build/jemallocs: releases 5.1.0 to 5.3.1, for addresses of 48 and of 57 bits, one with the
# size classes of redis's copy, some that can sample, and one without statistics.
#
#   scripts/jemallocs.sh [NAME...]
# The sources come from crates that contain jemalloc. cargo fetches them; configure, make and gcc build them. Existing builds are
# kept. Without these builds the tests use the system's libjemalloc; without that they are skipped.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
TO=build/jemallocs
OLD=jemalloc-sys=0.3.2 LATER=tikv-jemalloc-sys=0.4.3+5.2.1-patched.2
NEW=tikv-jemalloc-sys=0.5.4+5.3.0-patched NEWEST=tikv-jemalloc-sys=0.7.1+5.3.1-0-g81034ce1f1373e37dc865038e1bc8eeecf559ce8

# The name, the crate, and the options of configure.
builds() {
    cat <<LIST
5.2.1-57 $LATER --with-lg-vaddr=57
5.1.0-48 $OLD --with-lg-vaddr=48
5.3.0-redis $NEW --with-lg-vaddr=57 --with-lg-quantum=3 --disable-cache-oblivious
5.3.1-48 $NEWEST --with-lg-vaddr=48
5.3.0-prof $NEW --with-lg-vaddr=48 --enable-prof
5.2.1-prof $LATER --with-lg-vaddr=48 --enable-prof
5.3.1-prof $NEWEST --with-lg-vaddr=48 --enable-prof
5.2.1-48 $LATER --with-lg-vaddr=48
5.3.1-57 $NEWEST --with-lg-vaddr=57
5.1.0-57 $OLD --with-lg-vaddr=57
5.3.0-nostats $NEW --with-lg-vaddr=48 --disable-stats
LIST
}

# fetch CRATE FOLDER: put the crate's sources of jemalloc, with configure, into FOLDER/sources.
fetch() {
    library=${1%%=*}
    mkdir -p "$2/src"
    : > "$2/src/lib.rs"
    printf '[package]\nname = "fetch"\nversion = "0.1.0"\n[dependencies]\n%s = "=%s"\n[workspace]\n' "$library" "${1#*=}" > "$2/Cargo.toml"
    (cd "$2" && cargo vendor -q vendor >/dev/null)
    mv "$2/vendor/$library/jemalloc" "$2/sources"
    cp "$2/vendor/$library"/configure/* "$2/sources"
}

# compile NAME FOLDER FLAG...
compile() {
    name=$1 folder=$2
    say "jemalloc: $name"
    shift 2
    (
        cd "$folder/sources"
        version=$(cat VERSION 2>/dev/null || echo 5.3.1-0-g0)
        CFLAGS="-O2 -w" ./configure --with-version="$version" --disable-cxx --disable-doc "$@" > configure.log 2>&1
        make -j2 build_lib_shared > make.log 2>&1
    )
    mv "$folder/sources/lib/libjemalloc.so.2" "$TO/libjemalloc-$name.so"
    rm -rf "$folder"
}

mkdir -p "$TO"
builds | while read -r name crate flags; do
    [ $# -eq 0 ] || case " $* " in *" $name "*) ;; *) continue ;; esac
    [ ! -e "$TO/libjemalloc-$name.so" ] || continue
    folder=$TO/fetch-$name
    rm -rf "$folder"
    fetch "$crate" "$folder"
    # shellcheck disable=SC2086
    compile "$name" "$folder" $flags
done
