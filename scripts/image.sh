#!/bin/sh
# Build the image of packaging/Containerfile with the first of podman, buildah and docker that is installed.
#
#   scripts/image.sh [NAME]    NAME: [gdbheap]; BASE, EXTRAS, ALSO, DEBUGGER: see packaging/Containerfile; OPTIONS: options of the builder
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
name=${1:-gdbheap}

[ -n "$(ls dist/*manylinux*x86_64.whl 2>/dev/null)" ] || { say "no wheel in dist; make wheel"; exit 2; }
set --
for argument in BASE EXTRAS ALSO; do
    value=$(eval "printf %s \"\${$argument:-}\"")
    [ -z "$value" ] || set -- "$@" --build-arg "$argument=$value"
done
# An empty DEBUGGER has a meaning (no gdb), so it is passed on.
[ -z "${DEBUGGER+given}" ] || set -- "$@" --build-arg "DEBUGGER=$DEBUGGER"
# shellcheck disable=SC2086  # options
set -- "$@" ${OPTIONS:-} -f packaging/Containerfile -t "$name" .
if command -v podman >/dev/null; then
    exec podman build "$@"
elif command -v buildah >/dev/null; then
    exec buildah build "$@"
elif docker info >/dev/null 2>&1; then
    exec docker build "$@"
fi
say "no podman, no buildah, and no docker that answers"
exit 2
