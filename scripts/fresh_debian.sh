#!/bin/bash
# Prove the two commands on a fresh Debian 12: debootstrap a minimal one into FOLDER, add git and make, clone this checkout
# (what is committed) into it, run `make demo` and `make test` there, each twice, print how long each took, remove FOLDER.
#
# Usage, as root: scripts/fresh_debian.sh FOLDER [TARGET...]      FOLDER must not exist; TARGETs: demo test
# Where certificates are not Debian's own, SSL_CERT_FILE names them, here as for every other program.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
[ $# -gt 0 ] || { say "usage: scripts/fresh_debian.sh FOLDER [TARGET...]"; exit 2; }
folder=$1
shift
targets=${*:-demo test}
[ ! -e "$folder" ] || { say "$folder exists"; exit 2; }
[ "$(id -u)" = 0 ] || { say "debootstrap and chroot need root"; exit 2; }
command -v debootstrap >/dev/null || { say "no debootstrap here: apt-get install debootstrap"; exit 2; }

# What is mounted goes first: removing a folder must never reach the machine's own /dev.
clean() {
    for place in dev proc; do
        # A process that was ended may still be leaving.
        for _ in 1 2 3 4 5; do
            mountpoint -q "$folder/$place" || break
            umount -R "$folder/$place" || sleep 2
        done
        ! mountpoint -q "$folder/$place" || { say "$folder/$place is still mounted"; exit 1; }
    done
    rm -rf --one-file-system "$folder"
}
trap clean EXIT

inside() {
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 CI=true \
        ${SSL_CERT_FILE:+SSL_CERT_FILE=/certificates.crt PIP_CERT=/certificates.crt CARGO_HTTP_CAINFO=/certificates.crt} \
        chroot "$folder" "$@" </dev/null
}

# timed TITLE COMMAND...: run it, its output on standard error; print how long it took, and how it ended.
failed=0
timed() {
    local title=$1 start=$SECONDS ended=done
    shift
    "$@" >&2 || { ended=failed; failed=1; }
    printf '%-40s %4d s  %s\n' "$title" "$((SECONDS - start))" "$ended"
}

prepare() {
    debootstrap --variant=minbase bookworm "$folder"
    mount -t proc proc "$folder/proc"
    mount --rbind /dev "$folder/dev"
    mount --make-rslave "$folder/dev"
    cp /etc/resolv.conf "$folder/etc/resolv.conf"
    # Every installer and every container runtime writes this line; debootstrap alone does not.
    echo "127.0.0.1 localhost" > "$folder/etc/hosts"
    [ -z "${SSL_CERT_FILE:-}" ] || cp "$SSL_CERT_FILE" "$folder/certificates.crt"
    inside apt-get update -qq
    inside env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends git make
    git clone -q . "$folder/srv/gdbheap"
}

start=$SECONDS
prepare >&2
printf '%-40s %4d s\n' "debootstrap, git, make, clone" "$((SECONDS - start))"
for target in $targets; do
    timed "make $target, the first time" inside make -C /srv/gdbheap "$target"
    timed "make $target, the second time" inside make -C /srv/gdbheap "$target"
done
exit "$failed"
