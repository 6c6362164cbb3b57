#!/bin/bash
# Run the two commands on a fresh Debian. debootstrap makes a minimal one in FOLDER, and git and make are added. The committed
# state of this checkout is cloned there. `make demo` and `make test` each run twice. Print how long each took, and remove FOLDER.
#
# Usage, as root: [SUITE=bookworm] [AS_USER=yes] scripts/fresh_debian.sh FOLDER [TARGET...]
# FOLDER must not exist; TARGETs: demo test
# SUITE names the Debian suite. With AS_USER=yes the commands run as a normal user, who may use sudo.
# STORE=yes writes the results into docs/runs.md. SSL_CERT_FILE names the certificates if they are not Debian's own, as for every other program.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/folders.sh
[ $# -gt 0 ] || { say "usage: scripts/fresh_debian.sh FOLDER [TARGET...]"; exit 2; }
folder=$1
shift
targets=${*:-demo test}
suite=${SUITE:-bookworm}
[ ! -e "$folder" ] || { say "$folder exists"; exit 2; }
need_root_folders
trap 'remove_root "$folder"' EXIT
as=()
[ -z "${AS_USER:-}" ] || as=(runuser -u builder -- env HOME=/home/builder)

# timed TITLE COMMAND...: run a command with its output on standard error; print its time and its result.
failed=0
results=
timed() {
    local title=$1 start=$SECONDS ended=done
    shift
    "$@" >&2 || { ended=failed; failed=1; }
    results="$results${results:+, }$((SECONDS - start)) s $ended"
    printf '%-40s %4d s  %s\n' "$title" "$((SECONDS - start))" "$ended"
}

# add_user: make a normal user, who may use sudo without a password and owns the checkout.
add_user() {
    add_packages "$folder" sudo
    inside "$folder" useradd --create-home --shell /bin/bash builder
    echo "builder ALL=(ALL) NOPASSWD: ALL" > "$folder/etc/sudoers.d/builder"
    inside "$folder" chown -R builder: /srv/gdbheap
}

prepare() {
    bootstrap "$suite" "$folder"
    mount_into "$folder"
    add_packages "$folder" git make
    git clone -q . "$folder/srv/gdbheap"
    # The checkout may change while the commands run.
    COMMIT=$(git -C "$folder/srv/gdbheap" rev-parse --short=12 HEAD)
    export COMMIT
    [ ${#as[@]} = 0 ] || add_user
}

start=$SECONDS
prepare >&2
printf '%-40s %4d s\n' "debootstrap $suite, git, make, clone" "$((SECONDS - start))"
for target in $targets; do
    results=
    for time in first second; do
        timed "make $target, the $time time" inside "$folder" "${as[@]}" make -C /srv/gdbheap "$target"
    done
    store "make $target twice on a minimal $suite, as $([ ${#as[@]} = 0 ] && echo root || echo a user with sudo)" "$results"
done
exit "$failed"
