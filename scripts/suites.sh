#!/bin/sh
# Fetch the allocators of Debian's other suites for the tests, into build/suites/SUITE. Their packages are unpacked, not installed.
#
#   scripts/suites.sh [SUITE...]
# apt fetches them (scripts/apt.sh). From suites that are newer than this system, the C library and its loader are fetched too, because
# the tests run their programs with these. Existing files are kept. A suite that is not available is skipped.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/apt.sh
TO=$PWD/build/suites
LIBRARIES="libjemalloc2 libtcmalloc-minimal4 libtcmalloc-minimal4t64 libmimalloc2.0 libmimalloc3"

# unpack SUITE PACKAGE...: unpack those of the packages that the suite has.
unpack() {
    suite=$1 lists=$TO/lists/$1
    shift
    for package; do
        [ -n "$(own "$lists" apt-cache madison "$package")" ] || continue
        (cd "$lists" && own "$lists" apt-get download "$package") || { say "$suite: no $package"; return 1; }
        dpkg-deb -x "$lists/${package}_"*.deb "$TO/$suite.part"
    done
}

# fetch SUITE
fetch() {
    lists=$TO/lists/$1
    rm -rf "$TO/$1.part"
    mkdir -p "$TO/$1.part"
    own_lists "$lists" deb "$1" || { say "$1 cannot be had"; return 0; }
    # shellcheck disable=SC2086
    unpack "$1" $LIBRARIES || return 0
    here=$(dpkg-query -W -f '${Version}' libc6) there=$(own "$lists" apt-cache show libc6 | sed -n 's/^Version: //p' | head -n 1)
    if dpkg --compare-versions "$there" gt "$here"; then
        unpack "$1" libc6 || return 0
    fi
    rm -rf "$lists"
    mv "$TO/$1.part" "$TO/$1"
}

mkdir -p "$TO"
[ $# -gt 0 ] || set -- bullseye trixie sid
for suite; do
    [ ! -e "$TO/$suite" ] || continue
    say "the allocators of $suite"
    fetch "$suite" < /dev/null
done
