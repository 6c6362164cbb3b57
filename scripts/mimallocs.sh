#!/bin/sh
# Build mimalloc for the tests, into build/mimallocs: releases of 2.x and 3.x, plain and with MI_SECURE=4.
#
#   scripts/mimallocs.sh [RELEASE...]
# The sources come from crates of libmimalloc-sys or of a fork of it. For releases that are in no crate, they come from mimalloc's git
# repository, or from the one that MIMALLOC_GIT names. gcc compiles them. Existing builds are kept; unavailable sources are skipped.
# Without these builds the tests use the system's libmimalloc; without that they are skipped.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
TO=build/mimallocs
FROM=${MIMALLOC_GIT:-https://github.com/microsoft/mimalloc}

# The release, the crate's version or "git", the folder in the crate, and the crate's name if it is another crate.
releases() {
    cat <<'LIST'
2.0.9 0.1.30 c_src/mimalloc
2.1.2 0.1.35 c_src/mimalloc
2.1.7 0.1.39 c_src/mimalloc
2.2.4 0.1.44 c_src/mimalloc/v2
2.3.2 0.1.49 c_src/mimalloc/v2
3.1.5 0.1.44 c_src/mimalloc/v3
3.3.2 0.1.49 c_src/mimalloc/v3
2.2.7 0.1.44 c_src/mimalloc/v2 bc-libmimalloc-sys
3.2.8 0.1.44 c_src/mimalloc/v3 bc-libmimalloc-sys
2.4.1 git
3.4.3 git
LIST
}

# clone RELEASE: fetch the sources of a release from git.
clone() {
    rm -rf "$TO/git/$1"
    git clone -q --depth 1 --branch "v$1" "$FROM" "$TO/git/$1" 2>/dev/null || { say "$FROM has no mimalloc $1"; return 1; }
}

# fetch VERSION CRATE: put the crate's sources into build/mimallocs/VERSION; another crate may have the same version.
fetch() {
    [ ! -e "$TO/$1/$2" ] || return 0
    work=$TO/fetch-$1
    mkdir -p "$work/src"
    : > "$work/src/lib.rs"
    printf '[package]\nname = "fetch"\nversion = "0.1.0"\n[dependencies]\n%s = "=%s"\n[workspace]\n' "$2" "$1" > "$work/Cargo.toml"
    (cd "$work" && cargo vendor -q vendor >/dev/null)
    mkdir -p "$TO/$1"
    mv "$work/vendor/$2" "$TO/$1/$2"
    rm -rf "$work"
}

# compile RELEASE SOURCES NAME FLAG...
compile() {
    sources=$2 name=$3
    say "mimalloc $1: $name"
    shift 3
    gcc -O2 -w -shared -fPIC -ftls-model=initial-exec -fvisibility=hidden -DNDEBUG -DMI_MALLOC_OVERRIDE -DMI_SHARED_LIB \
        -DMI_SHARED_LIB_EXPORT "$@" -I"$sources/include" "$sources/src/static.c" -o "$TO/$name.part" -lpthread
    mv "$TO/$name.part" "$TO/$name"
}

mkdir -p "$TO"
releases | while read -r release version folder crate; do
    crate=${crate:-libmimalloc-sys}
    [ $# -eq 0 ] || case " $* " in *" $release "*) ;; *) continue ;; esac
    [ ! -e "$TO/libmimalloc-$release-secure.so" ] || continue
    if [ "$version" = git ]; then
        clone "$release" || continue
        sources=$TO/git/$release
    else
        fetch "$version" "$crate"
        sources=$TO/$version/$crate/$folder
    fi
    compile "$release" "$sources" "libmimalloc-$release.so"
    compile "$release" "$sources" "libmimalloc-$release-secure.so" -DMI_SECURE=4 -DMI_PADDING=1
done
