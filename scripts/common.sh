# Functions of the set-up scripts, such as finding cargo and Python. Source this file; do not run it.

# Debian's cargo-web is new enough; its plain cargo (0.66) is not.
RUST_NEEDED=1.85
# rustup puts cargo there. A shell that was started before rustup was installed does not have the folder in PATH.
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
export PATH

# say TEXT: print a line of progress on standard error, so that it never mixes with an answer.
say() {
    printf 'gdbheap: %s\n' "$*" >&2
}

# version: print gdbheap's version, from the only file that states it.
version() {
    sed -n 's/^__version__ = "\(.*\)"$/\1/p' gdbheap/__init__.py
}

# store RUN RESULT: with STORE=yes, write the result of a long run into docs/runs.md.
store() {
    [ "${STORE:-}" != yes ] || python3 scripts/runs.py "$1" "$2"
}

# set_source_date: use the time of the commit in packages, so that the same commit gives the same files.
set_source_date() {
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
    export SOURCE_DATE_EPOCH
}

# fitting_wheel PYTHON: print the wheel in dist/ for this machine, if it was made of this commit and the checkout has no
# changes.
fitting_wheel() {
    for wheel in dist/gdbheap-*"$(uname -m)".whl; do
        [ -f "$wheel" ] || continue
        "$1" - "$wheel" 2>/dev/null <<'END' || continue
import platform, re, subprocess, sys, zipfile
libc = "manylinux" if platform.libc_ver()[0] == "glibc" else "musllinux"
text = zipfile.ZipFile(sys.argv[1]).read("gdbheap/__init__.py").decode()
ask = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
commit = subprocess.run(ask, stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()
wrong = libc not in sys.argv[1] or not commit or commit.endswith("-dirty")
sys.exit(wrong or commit not in re.findall('^__commit__ = "(.*)"$', text, re.M))
END
        printf '%s\n' "$wheel"
        return
    done
}

# new_enough FOUND NEEDED: whether version FOUND is NEEDED or later.
new_enough() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# cargo_version: print the version of the cargo that would run, or nothing.
cargo_version() {
    cargo --version 2>/dev/null | awk '{ print $2 }'
}

has_cargo() {
    new_enough "$(cargo_version || true)" "$RUST_NEEDED" && command -v rustc >/dev/null
}

# usable_python PYTHON: whether it is 3.9 or later and can make a virtual environment with pip.
usable_python() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1
}

# find_python: print the first usable Python: $PYTHON, the system's own, or the one in PATH.
find_python() {
    for candidate in ${PYTHON:+"$PYTHON"} /usr/bin/python3 python3; do
        if usable_python "$candidate"; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}
