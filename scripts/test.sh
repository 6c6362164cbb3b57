#!/bin/sh
# All checks, then all tests, a file to each process; there is one process more than cores, because many tests wait. The
# slowest tests and pytest's own count are the last lines. Of what is tried on each interpreter and of tests with many
# cases some are tried, other ones each time (GDBHEAP_SEED repeats a choice; without --in-turn pytest tries all, which
# takes twice as long). Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
# The release build of one crate keeps one core busy for minutes; the checks of Rust take another.
mkdir -p build
scripts/lint.sh rust >build/lint-rust.log 2>&1 &
checks=$!
trap 'kill "$checks" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"${MAKE:-make}" build
wait "$checks" || { cat build/lint-rust.log; exit 1; }
trap - EXIT INT TERM
cat build/lint-rust.log
scripts/lint.sh python
scripts/packages.sh few || say "the tests that need these packages are skipped"
exec "${VENV:-.venv}/bin/python" -m pytest --numprocesses="$(($(nproc) + 1))" --dist=loadfile --in-turn --durations=40 tests "$@"
