#!/bin/sh
# All checks, then all tests, a file to each core; pytest's own count is the last line. Of what is tried on each interpreter
# and of tests with many cases some are tried, other ones each time (GDBHEAP_SEED repeats a choice; without --in-turn
# pytest tries all, which takes twice as long). Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
scripts/lint.sh
scripts/packages.sh few || say "the tests that need these packages are skipped"
exec "${VENV:-.venv}/bin/python" -m pytest --numprocesses=auto --dist=loadfile --in-turn tests "$@"
