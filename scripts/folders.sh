# Root folders of Debian's suites: debootstrap, mounts, certificates, commands inside, removal. Sourced by bash, never run.

# need_root_folders: say plainly what is missing to make one, and end.
need_root_folders() {
    [ "$(id -u)" = 0 ] || { say "debootstrap and chroot need root"; exit 2; }
    command -v debootstrap >/dev/null || { say "no debootstrap here: apt-get install debootstrap"; exit 2; }
}

# inside FOLDER COMMAND...: run it there, with nothing of this environment but the certificates. What mount_into has made a
# mount point becomes the root of a mount namespace, as a container's is; any other folder is entered by chroot.
inside() {
    local folder=$1 enter=(chroot "$1")
    shift
    ! mountpoint -q "$folder" || enter=(unshare --mount --propagation slave sh -ec "$PIVOT" sh "$folder")
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 CI=true \
        ${SSL_CERT_FILE:+SSL_CERT_FILE=/certificates.crt PIP_CERT=/certificates.crt CARGO_HTTP_CAINFO=/certificates.crt} \
        "${enter[@]}" "$@" </dev/null
}
# The old root is mounted upon the new one, and taken off again.
PIVOT='cd "$1"; shift; pivot_root . .; umount -l .; cd /; exec "$@"'

# bootstrap SUITE FOLDER [OPTION...]: a minimal Debian.
bootstrap() {
    debootstrap --variant=minbase "${@:3}" "$1" "$2" ${MIRROR:+"$MIRROR"}
    cp /etc/resolv.conf "$2/etc/resolv.conf"
    # Every installer and every container runtime writes this line; debootstrap alone does not.
    echo "127.0.0.1 localhost" > "$2/etc/hosts"
    [ -z "${SSL_CERT_FILE:-}" ] || cp "$SSL_CERT_FILE" "$2/certificates.crt"
}

# mount_into FOLDER: what a machine has mounted. A root that is no mount point itself has no mount namespaces.
mount_into() {
    mount --bind "$1" "$1"
    mount --make-private "$1"
    mount -t proc proc "$1/proc"
    mount --rbind /dev "$1/dev"
    mount --make-rslave "$1/dev"
}

# add_packages FOLDER PACKAGE...: install them there. A mirror that stands still is good enough; signatures are checked.
add_packages() {
    local folder=$1
    shift
    inside "$folder" apt-get -o Acquire::Check-Valid-Until=false update -qq
    inside "$folder" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"
}

unmount_from() {
    for place in "$1/dev" "$1/proc" "$1"; do
        # A process that was ended may still be leaving.
        for _ in 1 2 3 4 5; do
            mountpoint -q "$place" || break
            umount -R "$place" || sleep 2
        done
        ! mountpoint -q "$place" || { say "$place is still mounted"; exit 1; }
    done
}

# remove_root FOLDER: what is mounted goes first: removing a folder must never reach the machine's own /dev.
remove_root() {
    unmount_from "$1"
    rm -rf --one-file-system "$1"
}
