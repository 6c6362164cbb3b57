#!/bin/sh
# Look for known vulnerabilities in what gdbheap is built and installed from: cargo audit for Cargo.lock, pip-audit for
# packaging/requirements.txt. Both ask databases on the network, so `make lint` does not run them. The tools go into
# build/audit; compiling cargo-audit takes some minutes the first time.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
TOOLS=$PWD/build/audit

[ -x "$TOOLS/bin/cargo-audit" ] || cargo install -q --locked --root "$TOOLS" cargo-audit
[ -x "$TOOLS/python/bin/pip-audit" ] || {
    python=$(find_python) || { say "no Python 3.9 or later with venv here; run scripts/setup.sh"; exit 1; }
    "$python" -m venv "$TOOLS/python"
    "$TOOLS/python/bin/python" -m pip --disable-pip-version-check -q install pip-audit
}
"$TOOLS/bin/cargo-audit" audit --file native/Cargo.lock
"$TOOLS/python/bin/pip-audit" --require-hashes --disable-pip -r packaging/requirements.txt
