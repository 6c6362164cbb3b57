#!/bin/sh
# Run all checks, then all tests, one file in each process. There is one process more than cores, because many tests wait. The
# last lines are the slowest tests and pytest's count. Tests of all interpreters, and tests with many cases, run only some of
# their cases, others each time. GDBHEAP_SEED repeats a choice. Without --in-turn pytest runs all cases, which takes twice as
# long. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
# For minutes, the release build of one crate uses one core. The checks of Rust use another one.
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
