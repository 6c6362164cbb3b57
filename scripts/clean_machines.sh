#!/bin/bash
# Install the wheel in dist/, and on Debian its .deb, on systems without a compiler: new root folders, each with its own Python and gdb.
# In each, ask about a program, compare, uninstall, and print a row with the seconds from `pip install` to the answer.
#
# Usage, as root: make packages-check [ROOTS="bullseye trixie jammy"] [FOLDER=/var/tmp/clean]
# A root is a suite of Debian or Ubuntu, made by debootstrap (for Ubuntu, KEYRING names its keys and MIRROR a mirror), or a tar archive
# of a root folder that contains Python, such as a container image of any distribution: ROOTS=/tmp/fedora.tar.xz.
# FOLDER keeps the root folders for the next run; without it they are removed. Mounts are always removed.
# STORE=yes writes the rows into docs/runs.md. SSL_CERT_FILE names the certificates if they are not the distribution's own. WHEELS names a folder with wheels of gdbheap's
# requirements; pip then asks no registry.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/folders.sh
read -ra roots <<< "${ROOTS:-bullseye bookworm trixie}"
UBUNTU="focal jammy noble resolute"
need_root_folders
[ -n "${FOLDER:-}" ] && keep=yes || keep=
folder=${FOLDER:-$(mktemp -d /var/tmp/gdbheap-clean.XXXXXX)}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

# place ROOT: print the root's folder.
place() {
    local name
    name=$(basename "$1")
    printf '%s/%s\n' "$folder" "${name%%.tar*}"
}

clean() {
    for root in "${roots[@]}"; do
        if [ -n "$keep" ]; then unmount_from "$(place "$root")"; else remove_root "$(place "$root")"; fi
    done
    [ -n "$keep" ] || rm -rf --one-file-system "$folder"
}
trap clean EXIT

# from_suite SUITE FOLDER: make a minimal system with gdb and Python, but without make and compilers.
from_suite() {
    case " $UBUNTU " in
        *" $1 "*) [ -n "${KEYRING:-}" ] || { say "KEYRING has to name Ubuntu's keys for $1"; exit 2; } ;;
    esac
    bootstrap "$1" "$2" ${KEYRING:+--keyring="$KEYRING"} >/dev/null
    mount_into "$2"
    [ ! -e "$2/etc/lsb-release" ] || sed -i 's/ main.*/ main universe/' "$2/etc/apt/sources.list"
    add_packages "$2" gdb python3-venv >/dev/null
}

# from_archive ARCHIVE FOLDER
from_archive() {
    mkdir -p "$2"
    tar -xf "$1" -C "$2"
    cp /etc/resolv.conf "$2/etc/resolv.conf"
    [ -z "${SSL_CERT_FILE:-}" ] || cp "$SSL_CERT_FILE" "$2/certificates.crt"
    mount_into "$2"
}

# prepare ROOT: make the root's folder; replace one that an earlier run left incomplete.
prepare() {
    local root
    root=$(place "$1")
    if [ -e "$root/srv/prepared" ]; then
        mount_into "$root"
        return
    fi
    say "$(basename "$root"): a root folder"
    remove_root "$root"
    if [ -f "$1" ]; then from_archive "$1" "$root"; else from_suite "$1" "$root"; fi
    mkdir -p "$root/srv"
    touch "$root/srv/prepared"
}

# libc ROOT: print which C library's wheel fits.
libc() {
    if compgen -G "$1/lib/ld-musl-*" >/dev/null; then echo musllinux; else echo manylinux; fi
}

# try ROOT PACKAGE: print a line of figures.
try() {
    local name
    name=$(basename "$2")
    rm -rf "$1/srv/dist"
    mkdir -p "$1/srv/dist"
    cp "$2" ${WHEELS:+"$WHEELS"/*.whl} "$1/srv/dist/"
    cp tests/clean_machine.py "$1/srv/"
    printf '%-10s %-60s ' "$(basename "$1")" "$name"
    if row=$(inside "$1" python3 /srv/clean_machine.py "/srv/dist/$name" ${WHEELS:+--offline} ${GDBHEAP_SEED:+--seed="$GDBHEAP_SEED"}); then
        row=${row##*$'\n'}
        printf '%s\n' "$row"
        store "packages-check on $(basename "$1"), ${name##*.}" "$name: $row"
    else
        store "packages-check on $(basename "$1"), ${name##*.}" "$name: failed"
        return 1
    fi
}

failed=0
for root in "${roots[@]}"; do
    prepare "$root" >&2
    path=$(place "$root")
    wheels=(dist/gdbheap-*"$(libc "$path")"*x86_64.whl)
    [ -e "${wheels[0]}" ] || { say "no wheel for $(libc "$path") in dist; make wheel"; exit 2; }
    try "$path" "${wheels[0]}" || { failed=1; say "$root: ${wheels[0]} failed"; }
    if [ -e "$path/usr/bin/apt-get" ] && compgen -G "dist/gdbheap_*.deb" >/dev/null; then
        try "$path" dist/gdbheap_*.deb || { failed=1; say "$root: the .deb failed"; }
    fi
done
exit "$failed"
