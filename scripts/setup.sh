#!/bin/sh
# Install what building and testing need and this machine lacks. If nothing is missing, nothing is run or fetched.
#
#   scripts/setup.sh            print what is missing and why, and install it with apt-get
#   scripts/setup.sh --check    only print it; the exit status is 1 if something is missing
#   scripts/setup.sh --tests    also the requirements of tests that are otherwise skipped (docs/skips.md)
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh

packages=
# need PACKAGE REASON: note a missing Debian package.
need() {
    packages="$packages $1"
    say "missing: $1 ($2)"
}

has_c_compiler() {
    command -v gcc >/dev/null && printf '#include <stdio.h>\n' | gcc -E - >/dev/null 2>&1
}

look() {
    command -v gdb >/dev/null || need gdb "the debugger that gdbheap extends"
    command -v gcc >/dev/null || need gcc "links the native module, compiles the C programs of the tests"
    has_c_compiler || need libc6-dev "C headers"
    find_python >/dev/null || need python3-venv "Python 3.9 or later with venv and pip"
    has_cargo || has_wheel || need_rust
    [ -e /etc/ssl/certs/ca-certificates.crt ] || need ca-certificates "cargo and pip fetch over https"
    [ "$mode" != --tests ] || look_for_tests
}

look_for_tests() {
    command -v gdbserver >/dev/null || need gdbserver "the tests read a remote target through it"
    command -v g++ >/dev/null || need g++ "compiles the C++ programs of the tests"
    [ -e /usr/include/openssl/ssl.h ] || need libssl-dev "a program of the tests has OpenSSL's structures"
    for tool in fish sqlite3 strace zsh; do
        command -v "$tool" >/dev/null || need "$tool" "tests run it"
    done
    # Other releases have other names for these packages. The tests that need them are skipped there, unless they are
    # installed.
    case $(cat /etc/debian_version 2>/dev/null) in
        12.*) look_for_mallocs libtcmalloc-minimal4 libmimalloc2.0 ;;
        13.*) look_for_mallocs libtcmalloc-minimal4t64 ;;
    esac
}

# look_for_mallocs TCMALLOC [MIMALLOC]: look for other mallocs than glibc's, by the names of this release's packages.
# Debian 13 has mimalloc 3.0.1, with which one in five of the tests' programs crashes, even without gdbheap.
look_for_mallocs() {
    has_library libjemalloc.so.2 || need libjemalloc2 "the tests look into processes with this malloc"
    has_library libtcmalloc_minimal.so.4 || need "$1" "the same"
    [ -z "${2:-}" ] || has_library libmimalloc.so.2 || need "$2" "the same"
    command -v musl-gcc >/dev/null || need musl-tools "the same, built with musl"
}

has_library() {
    [ -e "/usr/lib/x86_64-linux-gnu/$1" ]
}

# has_wheel: whether make demo can install a wheel without compiling. Tests also check the sources.
has_wheel() {
    [ "$mode" != --tests ] && python=$(find_python) && [ -n "$(fitting_wheel "$python")" ]
}

need_rust() {
    need cargo-web "Rust $RUST_NEEDED or later builds the native module; found: $(cargo_version | grep . || echo none)"
    need rustc-web "the compiler for it"
}

# as_root COMMAND...: run a command as root, directly or through sudo.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

refuse() {
    say "cannot go on: $1"
    exit 1
}

install() {
    command -v apt-get >/dev/null || refuse "no apt-get here; install the packages named above by other means, then run make again"
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || refuse "not root and no sudo; ask for: apt-get install$packages"
    say "installing with apt-get:$packages"
    as_root apt-get update -qq </dev/null
    # shellcheck disable=SC2086  # a list of words
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages </dev/null >/dev/null ||
        refuse "apt-get could not install:$packages"
}

mode=${1:-}
look
[ -n "$packages" ] || exit 0
[ "${1:-}" != --check ] || exit 1
install
packages=
look
[ -z "$packages" ] || refuse "still missing after the installation:$packages"
