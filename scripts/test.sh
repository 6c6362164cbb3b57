#!/bin/sh
# All checks, then all tests; pytest's own count is the last line. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
scripts/lint.sh
scripts/packages.sh few || say "the tests that need these packages are skipped"
exec "${VENV:-.venv}/bin/python" -m pytest tests "$@"
