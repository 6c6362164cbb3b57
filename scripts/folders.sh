# Make, mount, enter and remove root folders of Debian's suites. Source this file in bash; do not run it.

# need_root_folders: exit with a message if a requirement for root folders is missing.
need_root_folders() {
    [ "$(id -u)" = 0 ] || { say "debootstrap and chroot need root"; exit 2; }
    command -v debootstrap >/dev/null || { say "no debootstrap here: apt-get install debootstrap"; exit 2; }
}

# inside FOLDER COMMAND...: run a command in a root folder. Of this environment it gets only the certificates. If
# mount_into made the folder a mount point, it becomes the root of a mount namespace, like a container's; otherwise
# chroot enters it.
inside() {
    local folder=$1 enter=(chroot "$1")
    shift
    ! mountpoint -q "$folder" || enter=(unshare --mount --propagation slave sh -ec "$PIVOT" sh "$folder")
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 CI=true \
        ${SSL_CERT_FILE:+SSL_CERT_FILE=/certificates.crt PIP_CERT=/certificates.crt CARGO_HTTP_CAINFO=/certificates.crt} \
        "${enter[@]}" "$@" </dev/null
}
# The old root is mounted on top of the new one, then unmounted.
PIVOT='cd "$1"; shift; pivot_root . .; umount -l .; cd /; exec "$@"'

# bootstrap SUITE FOLDER [OPTION...]: make a minimal Debian, or Ubuntu if MIRROR is one of its mirrors. debootstrap knows
# only suites that are older than itself; all later ones of Ubuntu are made as gutsy was.
bootstrap() {
    local from=(${MIRROR:+"$MIRROR"})
    [ -e "/usr/share/debootstrap/scripts/$1" ] || [ -z "${MIRROR:-}" ] || from+=(gutsy)
    debootstrap --variant=minbase "${@:3}" "$1" "$2" "${from[@]}"
    cp /etc/resolv.conf "$2/etc/resolv.conf"
    # Installers and container runtimes write this line, but debootstrap does not. sudo looks up this machine's name.
    echo "127.0.0.1 localhost $(uname -n)" > "$2/etc/hosts"
    [ -z "${SSL_CERT_FILE:-}" ] || cp "$SSL_CERT_FILE" "$2/certificates.crt"
}

# mount_into FOLDER: mount the file systems of a machine. A root must be a mount point itself to have mount namespaces.
mount_into() {
    mount --bind "$1" "$1"
    mount --make-private "$1"
    mount -t proc proc "$1/proc"
    mount --rbind /dev "$1/dev"
    mount --make-rslave "$1/dev"
}

# add_packages FOLDER PACKAGE...: install packages in a root folder. Old lists of a mirror are accepted, but signatures
# are checked.
add_packages() {
    local folder=$1
    shift
    inside "$folder" apt-get -o Acquire::Check-Valid-Until=false update -qq
    inside "$folder" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"
}

unmount_from() {
    for place in "$1/dev" "$1/proc" "$1"; do
        # A process that was killed may not have ended yet.
        for _ in 1 2 3 4 5; do
            mountpoint -q "$place" || break
            umount -R "$place" || sleep 2
        done
        ! mountpoint -q "$place" || { say "$place is still mounted"; exit 1; }
    done
}

# remove_root FOLDER: unmount everything, then remove the folder. Removing must never reach the machine's own /dev.
remove_root() {
    unmount_from "$1"
    rm -rf --one-file-system "$1"
}
