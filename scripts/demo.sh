#!/bin/sh
# Start a bloated Python process, attach gdb to it with gdbheap, and show where its memory went.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
VENV=${VENV:-.venv}
mkdir -p build/demo
said=build/demo/said

# `gdbheap install` writes to gdb's start file. The demo gives gdb another folder for it and leaves yours alone.
XDG_CONFIG_HOME=$PWD/build/demo/config
export XDG_CONFIG_HOME
mkdir -p "$XDG_CONFIG_HOME/gdb"
: >> "$XDG_CONFIG_HOME/gdb/gdbinit"

# run COMMAND...: print the command as it is typed, then run it.
run() {
    printf '\n$'
    for word in "$@"; do
        case $word in *" "*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
    done
    printf '\n'
    "$@" </dev/null
}

# memory_of PID: print the kernel's lines about the process's resident memory.
memory_of() {
    awk '/^VmRSS/ { printf "the kernel counts %.0f MiB of resident memory for it\n", $2 / 1024 }' "/proc/$1/status"
}

python=$(find_python)
"$python" examples/bloated.py --seconds=600 "$@" > "$said" &
pid=$!
trap 'kill "$pid" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
tries=0
until grep -q '^ready$' "$said"; do
    kill -0 "$pid" 2>/dev/null || { say "examples/bloated.py did not start"; exit 1; }
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || { say "examples/bloated.py is not ready after a minute"; exit 1; }
    sleep 0.1
done
echo "Started $python examples/bloated.py:"
sed -n '1,2p' "$said"
memory_of "$pid"

PATH=$(cd "$VENV/bin" && pwd):$PATH
run gdbheap install
run gdb -p "$pid" -batch -ex "heap" -ex "heap holes --min=1M" -ex "heap pyobjects --top=20"
