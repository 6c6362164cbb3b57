#!/bin/bash
# Run the two commands on a fresh Debian 12. debootstrap makes a minimal one in FOLDER, and git and make are added. The committed
# state of this checkout is cloned there. `make demo` and `make test` each run twice. Print how long each took, and remove FOLDER.
#
# Usage, as root: scripts/fresh_debian.sh FOLDER [TARGET...]
# FOLDER must not exist; TARGETs: demo test
# SSL_CERT_FILE names the certificates if they are not Debian's own, as for every other program.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/folders.sh
[ $# -gt 0 ] || { say "usage: scripts/fresh_debian.sh FOLDER [TARGET...]"; exit 2; }
folder=$1
shift
targets=${*:-demo test}
[ ! -e "$folder" ] || { say "$folder exists"; exit 2; }
need_root_folders
trap 'remove_root "$folder"' EXIT

# timed TITLE COMMAND...: run a command with its output on standard error; print its time and its result.
failed=0
timed() {
    local title=$1 start=$SECONDS ended=done
    shift
    "$@" >&2 || { ended=failed; failed=1; }
    printf '%-40s %4d s  %s\n' "$title" "$((SECONDS - start))" "$ended"
}

prepare() {
    bootstrap bookworm "$folder"
    mount_into "$folder"
    add_packages "$folder" git make
    git clone -q . "$folder/srv/gdbheap"
}

start=$SECONDS
prepare >&2
printf '%-40s %4d s\n' "debootstrap, git, make, clone" "$((SECONDS - start))"
for target in $targets; do
    timed "make $target, the first time" inside "$folder" make -C /srv/gdbheap "$target"
    timed "make $target, the second time" inside "$folder" make -C /srv/gdbheap "$target"
done
exit "$failed"
