#!/bin/sh
# Look for known vulnerabilities in what gdbheap is built and installed from: cargo audit for Cargo.lock, pip-audit for
# packaging/requirements.txt. Both ask databases on the network.
#
#   scripts/audit.sh            fetch the tools into build/audit, and ask; compiling cargo-audit takes some minutes the first time
#   scripts/audit.sh --quick    ask only with a tool that is already there (make lint)
#
# ADVISORY_DB names a copy of RustSec's database, which is then not fetched. The exit status is 1 for a vulnerability, and 3 if a
# database or a tool is missing.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
TOOLS=$PWD/build/audit
RUSTSEC=https://github.com/RustSec/advisory-db
# What PyPI knows of the first locked package.
PYPI=https://pypi.org/pypi/$(sed -n 's|^\([a-z0-9_-]*\)==\([^ ]*\) .*|\1/\2|p' packaging/requirements.txt | head -n 1)/json
status=0

missing() {
    say "not asked: $1"
    status=3
}

fetch_tools() {
    [ -x "$TOOLS/bin/cargo-audit" ] || cargo install -q --locked --root "$TOOLS" cargo-audit
    [ -x "$TOOLS/python/bin/pip-audit" ] || {
        python=$(find_python) || { say "no Python 3.9 or later with venv here; run scripts/setup.sh"; exit 1; }
        "$python" -m venv "$TOOLS/python"
        "$TOOLS/python/bin/python" -m pip --disable-pip-version-check -q install pip-audit
    }
}

ask_rustsec() {
    if [ ! -x "$TOOLS/bin/cargo-audit" ]; then
        missing "cargo audit (scripts/audit.sh fetches it)"
    elif [ -n "${ADVISORY_DB:-}" ]; then
        "$TOOLS/bin/cargo-audit" audit --db "$ADVISORY_DB" --no-fetch --file native/Cargo.lock
    elif timeout 30 git ls-remote -q --exit-code "$RUSTSEC" HEAD >/dev/null 2>&1; then
        "$TOOLS/bin/cargo-audit" audit --file native/Cargo.lock
    else
        missing "RustSec's database, which is out of reach"
    fi
}

# pip-audit passes over a package that its database does not know, unless it is strict.
ask_pypi() {
    if [ ! -x "$TOOLS/python/bin/pip-audit" ]; then
        missing "pip-audit (scripts/audit.sh fetches it)"
    elif "$TOOLS/python/bin/python" -c "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=30)" "$PYPI" 2>/dev/null; then
        "$TOOLS/python/bin/pip-audit" --strict --require-hashes --disable-pip -r packaging/requirements.txt
    else
        missing "PyPI's database, which is out of reach"
    fi
}

case ${1:-} in
    "") fetch_tools ;;
    --quick) ;;
    *) say "usage: scripts/audit.sh [--quick]"; exit 2 ;;
esac
ask_rustsec
ask_pypi
exit "$status"
