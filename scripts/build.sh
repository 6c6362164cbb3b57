#!/bin/sh
# Build gdbheap into the virtual environment .venv. Called by make when a source is newer than the last build.
#
# The dependencies are fetched when setup.py or pyproject.toml changed; everything else works without the network, except
# cargo's first build.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
VENV=${VENV:-.venv}

pip_install() {
    "$VENV/bin/python" -m pip --disable-pip-version-check -q install "$@"
}

fresh_venv() {
    python=$(find_python) || { say "no Python 3.9 or later with venv here; run scripts/setup.sh"; exit 1; }
    say "making $VENV with $("$python" --version)"
    "$python" -m venv --clear "$VENV"
}

# venv_works: whether .venv's Python still starts (the system's may have been upgraded away from under it).
venv_works() {
    "$VENV/bin/python" -m pip --version >/dev/null 2>&1
}

# declared SECTION: the requirements in setup.py and pyproject.toml change rarely; their checksum says when.
declared() {
    cat setup.py pyproject.toml | cksum
}

install_requirements() {
    [ "$(cat "$VENV/requirements.cksum" 2>/dev/null || true)" != "$(declared)" ] || return 0
    say "fetching the Python packages that setup.py and pyproject.toml name"
    # shellcheck disable=SC2046  # a list of words
    pip_install $("$VENV/bin/python" scripts/requirements.py)
    declared > "$VENV/requirements.cksum"
}

install_gdbheap() {
    has_cargo || { say "no cargo $RUST_NEEDED or later here; run scripts/setup.sh"; exit 1; }
    say "building gdbheap (cargo $(cargo_version)) into $VENV"
    # setuptools copies into build/lib and never removes what a source no longer has.
    rm -rf build/lib* build/bdist*
    pip_install --no-deps --no-build-isolation --force-reinstall .
    # What is installed writes it; packages that are built later carry it.
    "$VENV/bin/python" scripts/manual.py packaging/man/gdbheap.1
    mkdir -p "$VENV/share/man/man1"
    cp packaging/man/gdbheap.1 "$VENV/share/man/man1/"
}

# One build at a time: pip and setuptools share build/ and the environment. A source that changes while it runs is newer
# than the stamp, so that the next make sees it.
mkdir -p build
exec 9> build/lock
flock 9
touch build/started
venv_works || fresh_venv
install_requirements
install_gdbheap
mv build/started "$VENV/built"
