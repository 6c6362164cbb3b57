#!/bin/sh
# The checks that run no target: ruff (check and format), mypy --strict, words.py, codespell, cargo fmt, cargo clippy, Rust's own tests,
# and scripts/audit.sh --quick.
#
# A tool that this machine cannot have (Debian's rustc-web has neither rustfmt nor clippy) is skipped; skipped tools are named and counted.
# `lint.sh python` and `lint.sh rust` run the checks of one language. The checks of Rust need no .venv.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
VENV=${VENV:-.venv}
language=${1:-both}
passed=0
skipped=0

check() {
    title=$1
    shift
    if ! "$@"; then
        say "failed: $title"
        exit 1
    fi
    say "passed: $title"
    passed=$((passed + 1))
}

skip() {
    say "skipped: $1 ($2)"
    skipped=$((skipped + 1))
}

# mypy needs a single tree, but commands/ becomes gdbheap.commands only when it is installed.
stage_for_mypy() {
    rm -rf build/lint
    mkdir -p build/lint/gdbheap
    ln -s "$PWD"/gdbheap/* "$PWD/commands" build/lint/gdbheap/
}

check_types() {
    stage_for_mypy
    (cd build/lint && "$BIN/mypy" --strict --config-file ../../pyproject.toml --cache-dir ../mypy-cache -p gdbheap) &&
        MYPYPATH=build/lint "$BIN/mypy" --strict scripts examples benchmarks docs/examples &&
        MYPYPATH=build/lint:tests "$BIN/mypy" --strict -p support -p harm -p fuzz -p images -p reference
}

check_python() {
    BIN=$(cd "$VENV/bin" && pwd)
    check "ruff check" "$BIN/ruff" check -q .
    check "ruff format" "$BIN/ruff" format -q --check .
    check "mypy --strict" check_types
    check "words" "$BIN/python" scripts/words.py
    check "codespell" "$BIN/codespell" -q 3
}

check_rust() {
    PYO3_PYTHON=$(find_python)
    export PYO3_PYTHON
    if cargo fmt --version >/dev/null 2>&1; then
        check "cargo fmt" cargo fmt --manifest-path native/Cargo.toml --all --check
    else
        skip "cargo fmt" "this cargo has no rustfmt"
    fi
    if cargo clippy --version >/dev/null 2>&1; then
        check "cargo clippy" cargo clippy -q --manifest-path native/Cargo.toml --workspace --all-targets -- -D warnings
    else
        skip "cargo clippy" "this cargo has no clippy"
    fi
    # The crates that read a target are also built for another processor. Nothing is linked, so any C compiler will do
    # for zstd.
    other=aarch64-unknown-linux-gnu
    if [ -d "$(rustc --print sysroot)/lib/rustlib/$other" ]; then
        CC_aarch64_unknown_linux_gnu=${CC:-cc}
        export CC_aarch64_unknown_linux_gnu
        check "cargo check, $other" cargo check -q --manifest-path native/Cargo.toml --target "$other" \
            --package gdbheap-access --package gdbheap-core --package gdbheap-native
    else
        skip "cargo check, $other" "Rust has no standard library for it here"
    fi
    # The binding has no Rust tests; Python's tests cover it.
    check "cargo test" cargo test -q --manifest-path native/Cargo.toml --package gdbheap-access --package gdbheap-core
}

# Databases on the network know the vulnerabilities. Without the tools, or out of their reach, nothing is checked.
check_audit() {
    status=0
    scripts/audit.sh --quick || status=$?
    if [ "$status" = 3 ]; then
        skip "audit" "a tool or a database is missing"
    else
        check "audit" [ "$status" = 0 ]
    fi
}

case $language in
    python) check_python ;;
    rust) check_rust ;;
    both)
        check_python
        check_rust
        check_audit
        ;;
    *) say "lint.sh [python|rust]"; exit 2 ;;
esac
say "checks: $passed passed, $skipped skipped"
