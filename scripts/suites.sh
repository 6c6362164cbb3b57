#!/bin/sh
# The allocators of Debian's other suites for the tests, into build/suites/SUITE: their packages, unpacked, none of them installed.
#
#   scripts/suites.sh [SUITE...]
# apt fetches them from the mirror that MIRROR names, or the one that it has here, with lists of its own in build/, and checks their
# signatures. Of suites that are newer than this system come the C library and its loader too, by which the tests run their
# programs. What is there is kept; of a suite that cannot be had nothing is there.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
TO=$PWD/build/suites
KEYS=${KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
LIBRARIES="libjemalloc2 libtcmalloc-minimal4 libtcmalloc-minimal4t64 libmimalloc2.0 libmimalloc3"

mirror() {
    apt-get indextargets --format '$(SITE) $(ORIGIN)' | awk '$2 == "Debian" && $1 !~ /security/ { print $1; exit }'
}

# own SUITE COMMAND...: with the lists of that suite alone.
own() {
    lists=$TO/lists/$1 program=$2
    shift 2
    "$program" -qq -o "Dir::State::Lists=$lists/lists" -o "Dir::State::Status=$lists/status" -o "Dir::Cache=$lists/cache" \
        -o "Dir::Etc::SourceList=$lists/sources.list" -o Dir::Etc::SourceParts=- -o APT::Sandbox::User=root -o Acquire::Retries=3 "$@"
}

# unpack SUITE PACKAGE...: those that the suite has.
unpack() {
    suite=$1 lists=$TO/lists/$1
    shift
    for package; do
        [ -n "$(own "$suite" apt-cache madison "$package")" ] || continue
        (cd "$lists" && own "$suite" apt-get download "$package") || { say "$suite: no $package"; return 1; }
        dpkg-deb -x "$lists/${package}_"*.deb "$TO/$suite.part"
    done
}

# fetch SUITE
fetch() {
    lists=$TO/lists/$1
    rm -rf "$lists" "$TO/$1.part"
    mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial" "$TO/$1.part"
    : > "$lists/status"
    echo "deb [signed-by=$KEYS] $from $1 main" > "$lists/sources.list"
    own "$1" apt-get update || { say "$1 cannot be had"; return 0; }
    # shellcheck disable=SC2086
    unpack "$1" $LIBRARIES || return 0
    here=$(dpkg-query -W -f '${Version}' libc6) there=$(own "$1" apt-cache show libc6 | sed -n 's/^Version: //p' | head -n 1)
    if dpkg --compare-versions "$there" gt "$here"; then
        unpack "$1" libc6 || return 0
    fi
    rm -rf "$lists"
    mv "$TO/$1.part" "$TO/$1"
}

mkdir -p "$TO"
from=${MIRROR:-$(mirror)}
[ -n "$from" ] || { say "apt has no mirror of Debian here; name one with MIRROR"; exit 1; }
[ $# -gt 0 ] || set -- bullseye trixie sid
for suite; do
    [ ! -e "$TO/$suite" ] || continue
    say "the allocators of $suite"
    fetch "$suite" < /dev/null
done
