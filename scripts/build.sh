#!/bin/sh
# Build gdbheap into the virtual environment .venv. make calls this when a source is newer than the last build.
#
#   scripts/build.sh             with the extras and the tests' requirements, which are fetched while cargo compiles
#   scripts/build.sh --small     without these, for the demo
#   scripts/build.sh --fetch     only these, if they are missing
#
# If dist/ has a wheel of this commit and the checkout has no changes, the wheel is installed and cargo is not needed.
# The dependencies are fetched when pyproject.toml has changed. Everything else works without the network, except
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

# venv_works: whether .venv's Python still starts. It does not if an upgrade has replaced the system's Python.
venv_works() {
    "$VENV/bin/python" -m pip --version >/dev/null 2>&1
}

# has_requirements [--small]: whether the requirements are installed, by the checksum of pyproject.toml.
has_requirements() {
    [ "$(cat "$VENV/requirements$*.cksum" 2>/dev/null || true)" = "$(cksum < pyproject.toml)" ]
}

install_requirements() {
    ! has_requirements "$@" || return 0
    say "fetching the Python packages that pyproject.toml names$([ $# = 0 ] || echo ", without extras and those of tests")"
    # shellcheck disable=SC2046  # a list of words
    pip_install $("$VENV/bin/python" scripts/requirements.py "$@")
    cksum < pyproject.toml > "$VENV/requirements$*.cksum"
}

# show_progress PID LOG: until the process ends, print a line whenever cargo begins another crate.
show_progress() {
    all=$(grep -c '^source = ' native/Cargo.lock)
    begun=$(date +%s) shown=0
    while kill -0 "$1" 2>/dev/null; do
        count=$(grep -c '^ *Compiling ' "$2" || true)
        if [ "$count" -ge $((shown + 10)) ]; then
            say "compiling: $count of about $all crates, after $(($(date +%s) - begun)) s"
            shown=$count
        fi
        sleep 1
    done
}

compile() {
    has_cargo || { say "no cargo $RUST_NEEDED or later here; run scripts/setup.sh"; exit 1; }
    say "building gdbheap (cargo $(cargo_version)) into $VENV: some minutes the first time"
    # setuptools copies files into build/lib and never removes those whose source is gone.
    rm -rf build/lib* build/bdist*
    "$VENV/bin/python" -m pip --disable-pip-version-check -v install --no-deps --no-build-isolation --force-reinstall . \
        > build/log 2>&1 &
    show_progress $! build/log
    wait $! || { tail -n 40 build/log >&2; say "the build failed: build/log"; exit 1; }
}

install_gdbheap() {
    wheel=$(fitting_wheel "$VENV/bin/python")
    if [ -n "$wheel" ] && pip_install --no-deps --force-reinstall "$wheel"; then
        say "installed $wheel into $VENV"
    else
        compile
    fi
    # The installed gdbheap writes the manual page, for packages that are built later.
    "$VENV/bin/python" scripts/manual.py packaging/man/gdbheap.1
    mkdir -p "$VENV/share/man/man1"
    cp packaging/man/gdbheap.1 "$VENV/share/man/man1/"
}

[ "${1:-}" != --fetch ] || ! has_requirements || exit 0
# Only one build runs at a time, because pip and setuptools share build/ and the environment. The stamp has the time of
# the start, so that a source that changes during the build is built by the next make.
mkdir -p build
exec 9> build/lock
flock 9
touch build/started
venv_works || fresh_venv
fetching=
case ${1:-} in
    --fetch) install_requirements; exit ;;
    --small) install_requirements --small ;;
    *)
        # The requirements of cargo's build come first; pip fetches the rest while cargo runs.
        install_requirements --small
        install_requirements & fetching=$!
        ;;
esac
install_gdbheap
[ -z "$fetching" ] || wait "$fetching"
mv build/started "$VENV/built"
