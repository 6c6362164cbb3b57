#!/bin/sh
# Make everything that is published, in dist/, from a commit without changes: the source distribution, the wheels, the Debian package,
# the bill of materials, the licences, and SHA256SUMS of these files.
#
#   scripts/release.sh            make and check it
#   scripts/release.sh --again    make it again in a new clone, and compare the files byte by byte
#
# STORE=yes writes the sizes into docs/runs.md. A wheel for which Rust's standard library is missing is skipped with a message, and so is the Debian package without debhelper.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
TOOLS=$PWD/build/packaging/tools
AGAIN=$PWD/build/packaging/again
started=$(date +%s)

[ -z "$(git status --porcelain)" ] || { say "this checkout has changes; commit them first"; exit 2; }
set_source_date

# has_target TARGET: whether Rust's standard library for the target is installed.
has_target() {
    [ -d "$(rustc --print target-libdir --target "$1")" ] || { say "skipped: a wheel for $1 (rustup target add $1)"; return 1; }
}

kinds() {
    echo manylinux
    ! has_target x86_64-unknown-linux-musl || echo musllinux
    ! has_target aarch64-unknown-linux-gnu || echo manylinux-aarch64
    ! has_target aarch64-unknown-linux-musl || echo musllinux-aarch64
}

check_bill() {
    "$TOOLS/bin/python" -c 'import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read())
sys.exit(wrong and str(wrong))' < "$1"
}

make_all() {
    rm -rf dist
    # shellcheck disable=SC2046  # a list of words
    scripts/wheels.sh $(kinds)
    if command -v dh >/dev/null; then scripts/deb.sh; else say "skipped: the Debian package (no debhelper here)"; fi
    "$TOOLS/bin/python" scripts/licences.py | cmp - packaging/licences.txt || { say "run scripts/licences.py --write"; exit 1; }
    cp packaging/licences.txt "dist/gdbheap-$(version)-licences.txt"
    bill=dist/gdbheap-$(version).cdx.json
    "$TOOLS/bin/python" scripts/sbom.py > "$bill"
    check_bill "$bill"
    (cd dist && sha256sum gdbheap* > SHA256SUMS)
    say "made in $(($(date +%s) - started)) s, in dist:"
    (cd dist && wc -c ./* >&2)
    store "make release" "$(cd dist && wc -c gdbheap* | awk '$2 != "total" { printf "%s%s %d bytes", sep, $2, $1; sep = ", " }'), in $(($(date +%s) - started)) s"
}

again() {
    [ -e dist/SHA256SUMS ] || { say "no dist/SHA256SUMS here: make release"; exit 2; }
    rm -rf "$AGAIN"
    git clone -q . "$AGAIN"
    mkdir -p "$AGAIN/packaging/man" "$AGAIN/build/packaging"
    cp packaging/man/gdbheap.1 "$AGAIN/packaging/man/"
    ln -s "$TOOLS" "$AGAIN/build/packaging/tools"
    (cd "$AGAIN" && scripts/release.sh)
    (cd "$AGAIN/dist" && sha256sum --check "$OLDPWD/dist/SHA256SUMS") || { say "another build makes other files"; exit 1; }
    rm -rf "$AGAIN"
    store "scripts/release.sh --again" "the same files, in $(($(date +%s) - started)) s"
    say "the same files again, after $(($(date +%s) - started)) s"
}

case ${1:-} in
    "") make_all ;;
    --again) again ;;
    *) say "usage: scripts/release.sh [--again]"; exit 2 ;;
esac
