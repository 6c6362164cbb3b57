#!/bin/sh
# Install other people's packages for the tests into a separate environment, build/packages, never into gdbheap's.
#
#   scripts/packages.sh few     tests/packages/few.txt, as make test does
#   scripts/packages.sh many    tests/packages/many.txt too, as make named and make matrix do
# tests/packages/releases.txt has the releases.
# Nothing is fetched if all packages are installed. If the registry cannot be reached, the exit status is 1 and the tests that
# need the packages are skipped; skipped tests are named and counted.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
ENVIRONMENT=build/packages

lists() {
    echo tests/packages/few.txt
    [ "$1" != many ] || echo tests/packages/many.txt
}

# wanted WHICH: print the packages' names, and their Python.
wanted() {
    # shellcheck disable=SC2046  # a list of files
    cat $(lists "$1") tests/packages/releases.txt
    "$ENVIRONMENT/bin/python" --version
}

# has WHICH: whether the packages are installed. "many" includes "few".
has() {
    [ "$(wanted "$1" | cksum)" = "$(cat "$ENVIRONMENT/$1.cksum" 2>/dev/null)" ]
}

works() {
    "$ENVIRONMENT/bin/python" -m pip --version >/dev/null 2>&1
}

make_environment() {
    python=$(find_python) || { say "no Python 3.9 or later with venv here; run scripts/setup.sh"; exit 1; }
    "$python" -m venv --clear "$ENVIRONMENT"
}

install() {
    say "fetching packages for the tests into $ENVIRONMENT: $(lists "$1" | xargs grep -hv '^#' | xargs)"
    # pyspark exists only as a source distribution, with nothing to compile.
    # shellcheck disable=SC2046  # a list of words
    "$ENVIRONMENT/bin/python" -m pip --disable-pip-version-check -q install --only-binary :all: --no-binary pyspark \
        -c tests/packages/releases.txt $(lists "$1" | sed 's/^/-r /')
    for which in few "$1"; do
        wanted "$which" | cksum > "$ENVIRONMENT/$which.cksum"
    done
}

mkdir -p build
exec 9> build/packages.lock
flock 9
works || make_environment
has "$1" || install "$1"
