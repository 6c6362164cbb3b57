#!/bin/sh
# All checks, then all tests; pytest's own count is the last line. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
scripts/lint.sh
exec "${VENV:-.venv}/bin/python" -m pytest tests "$@"
