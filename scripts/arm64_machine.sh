#!/bin/bash
# Run a job in a virtual aarch64 machine (qemu, without KVM) that has Debian and this checkout's wheel, and fetch its results.
#
#   scripts/arm64_machine.sh FOLDER                     make what is missing in FOLDER, and run the checks (tests/arm64_job.sh)
#   scripts/arm64_machine.sh FOLDER --job=FILE [K=V...] run FILE instead, by the machine's /bin/sh as its first process, with these variables
# PAGES=4 or PAGES=16: the kernel's page size in KiB [4]. SUITE: the Debian suite of the programs [bookworm].
# WHEEL=FILE: use this wheel instead of one of this checkout.
#
# FOLDER keeps everything that is fetched and made for the next run: about 1.5 GB. Nothing is installed: apt fetches Debian's
# packages (scripts/apt.sh), and they are unpacked. Files that the job writes to /out are then in FOLDER/out. The exit status is the job's.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/apt.sh
[ $# -gt 0 ] || { say "usage: scripts/arm64_machine.sh FOLDER [--job=FILE] [K=V...]"; exit 2; }
[ "$(id -u)" = 0 ] || { say "the files of the machine belong to root: run this as root"; exit 2; }
mkdir -p "$1"
F=$(cd "$1" && pwd)
shift
job=tests/arm64_job.sh
case ${1:-} in --job=*) job=${1#--job=}; shift ;; esac
PAGES=${PAGES:-4}
case $PAGES in 4) KERNEL=cloud-arm64 ;; 16) KERNEL=arm64-16k ;; *) say "PAGES is 4 or 16"; exit 2 ;; esac
exec 8> "$F/lock"
flock 8
MEMORY=${MEMORY:-2048}
OUT_MIB=1500
SUITE=${SUITE:-bookworm}
case $SUITE in bookworm) NAME=arm64 ;; *) NAME=arm64-$SUITE ;; esac
TESTS="python3-pyelftools python3-pytest python3-pytest-timeout python3-hypothesis python3-jsonschema python3-tabulate"
# Allocators, by the names of their libraries.
MALLOCS="libjemalloc2 libtcmalloc-minimal4 libmimalloc2.0 musl-tools"
case $SUITE in bookworm) ;; *) MALLOCS= ;; esac

# apt_for ARCH LISTS PROGRAM ARGUMENT...: run a program of apt for packages of that architecture only.
apt_for() {
    local arch=$1 lists=$2 program=$3
    shift 3
    own "$lists" "$program" -o "APT::Architecture=$arch" -o "APT::Architectures=$arch" "$@"
}

# fetched NAME SUITE ARCH PACKAGE...: fetch these packages and their dependencies into FOLDER/NAME.debs.
fetched() {
    local name=$1 suite=$2 arch=$3 lists=$F/$1.debs
    shift 3
    say "$name: fetching packages of $suite for $arch"
    lists_for "$lists" "$suite" "$arch"
    apt_for "$arch" "$lists" apt-get -y --no-install-recommends --download-only install "$@" </dev/null >/dev/null
}

lists_for() {
    local lists=$1 from
    from=${MIRROR:-$(mirror)}
    [ -n "$from" ] || { say "apt has no mirror of Debian here; name one with MIRROR"; exit 1; }
    mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
    : > "$lists/status"
    echo "deb [signed-by=$KEYS] $from $2 main" > "$lists/sources.list"
    apt_for "$3" "$lists" apt-get update --error-on=any </dev/null
}

# unpacked NAME: make a root folder from the fetched packages, without running their scripts: python3, gdb and compilers
# need none.
unpacked() {
    local to=$F/$1.part package
    rm -rf "$to"
    mkdir -p "$to"/usr/{bin,sbin,lib} "$to"/{tmp,proc,dev,sys,root,run,etc,out,srv}
    for link in bin sbin lib; do ln -s "usr/$link" "$to/$link"; done
    chmod 1777 "$to/tmp"
    for package in "$F/$1.debs/cache/archives"/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -C "$to" --keep-directory-symlink -xf -
    done
    # The packages' scripts would write these files.
    printf 'root:x:0:0:root:/root:/bin/sh\n' > "$to/etc/passwd"
    printf 'root:x:0:\n' > "$to/etc/group"
    echo "127.0.0.1 localhost" > "$to/etc/hosts"
    rm -rf "$F/$1.debs" "${F:?}/$1"
    mv "$to" "$F/$1"
}

# root NAME SUITE ARCH PACKAGE...: make a root folder of these packages, again if the list changed since the last run.
root() {
    [ ! -e "$F/$1" ] || [ "$*" != "$(cat "$F/$1.list" 2>/dev/null)" ] || return 0
    fetched "$@"
    unpacked "$1"
    echo "$*" > "$F/$1.list"
}

kernel() {
    local lists=$F/kernels.debs name
    [ ! -e "$F/$KERNEL" ] || return 0
    say "a kernel of Debian 13 with pages of $PAGES KiB"
    lists_for "$lists" trixie arm64
    name=$(apt_for arm64 "$lists" apt-cache search --names-only "^linux-image-6.*[+]deb13-$KERNEL-unsigned\$" | sort -V | tail -n 1 | cut -d' ' -f1)
    [ -n "$name" ] || { say "Debian 13 has no kernel $KERNEL"; exit 1; }
    (cd "$lists" && apt_for arm64 "$lists" apt-get download "$name" busybox-static) >&2
    rm -rf "$F/$KERNEL.part"
    dpkg-deb -x "$lists/$name"_*.deb "$F/$KERNEL.part"
    dpkg-deb -x "$lists"/busybox-static_*.deb "$F/$KERNEL.part"
    rm -rf "$lists"
    mv "$F/$KERNEL.part" "$F/$KERNEL"
}

# rust: get a standard library of Rust for aarch64: rustup's, if rustup has added it, else Debian's.
rust() {
    local lists=$F/rust.debs to=$F/rust.part
    [ ! -d "$(rustc --print target-libdir --target aarch64-unknown-linux-gnu 2>/dev/null)" ] || return 0
    if [ ! -e "$F/rust" ]; then
        say "Rust of Debian 12, with its standard library for aarch64"
        rm -rf "$to"
        mkdir -p "$to"
        lists_for "$lists" bookworm arm64
        (cd "$lists" && apt_for arm64 "$lists" apt-get download libstd-rust-web-dev) >&2
        lists_for "$lists" bookworm amd64
        (cd "$lists" && apt_for amd64 "$lists" apt-get download rustc-web libstd-rust-web-dev libllvm19 "$(cd "$lists" &&
            apt_for amd64 "$lists" apt-cache search --names-only '^libstd-rust-web-1[.]' | cut -d' ' -f1)") >&2
        for package in "$lists"/*.deb; do dpkg-deb -x "$package" "$to"; done
        rm -rf "$lists"
        mv "$to" "$F/rust"
    fi
    # rustup's cargo would start rustup's compiler.
    PATH=$F/rust/usr/bin:$PATH RUSTC=$F/rust/usr/bin/rustc LD_LIBRARY_PATH=$F/rust/usr/lib/x86_64-linux-gnu
    export PATH RUSTC LD_LIBRARY_PATH
}

# wheel: make a wheel of this checkout in FOLDER/wheel.
wheel() {
    rm -rf "$F/wheel"
    mkdir -p "$F/wheel"
    if [ -n "${WHEEL:-}" ]; then
        cp "$WHEEL" "$F/wheel/"
        return
    fi
    (rust; scripts/wheels.sh manylinux-aarch64) >&2
    cp dist/gdbheap-*manylinux*aarch64.whl "$F/wheel/"
}

# checkout: put this checkout and the wheel where the job finds them.
checkout() {
    local to=$F/$NAME/srv/gdbheap
    rm -rf "$F/$NAME/srv"
    mkdir -p "$to"
    git ls-files -z | tar --null -T - -cf - | tar -C "$to" -xf -
    cp "$F"/wheel/*.whl "$F/$NAME/srv/"
    cp "$job" "$F/$NAME/srv/job.sh"
}

# module NAME: add a module of the kernel to the initial file system, with a number for the order; nothing if it is
# built in.
modules=0
module() {
    local file
    file=$(find "$F/$KERNEL" -name "$1.ko*" -print -quit)
    [ -n "$file" ] || return 0
    modules=$((modules + 1))
    case $file in
        *.xz) xz -dc "$file" > "$work/first/m/$(printf %02d $modules).ko" ;;
        *) cp "$file" "$work/first/m/$(printf %02d $modules).ko" ;;
    esac
}

# first_files: make the initial file system, which mounts the root and runs the job.
first_files() {
    mkdir -p "$work/first"/{bin,proc,sys,dev,new,m}
    cp "$F/$KERNEL/usr/bin/busybox" "$work/first/bin/busybox"
    for name in virtio_blk crc32c-cryptoapi crc32c_generic libcrc32c crc16 mbcache jbd2 ext4; do module "$name"; done
    cat > "$work/first/init" <<'END'
#!/bin/busybox sh
B=/bin/busybox; $B mount -t proc proc /proc; $B mount -t sysfs s /sys; $B mount -t devtmpfs d /dev
for m in /m/*.ko; do $B insmod $m 2>/dev/null; done
$B mount -t ext4 /dev/vda /new || $B poweroff -f
for d in proc sys dev; do $B mount --move /$d /new/$d; done
exec $B switch_root /new /bin/sh /srv/start.sh
END
    chmod +x "$work/first/init"
    ln -s busybox "$work/first/bin/sh"
    mknod "$work/first/dev/console" c 5 1
    (cd "$work/first" && find . | tool bin/cpio --quiet -o -H newc > "$work/first.cpio")
}

# start_file: write the machine's first process. It runs the job, keeps its status, packs /out onto the second disk, and
# switches the machine off.
start_file() {
    local pair
    {
        echo "export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 CI=true"
        for pair; do printf "export '%s'\n" "$pair"; done
        cat <<'END'
mount -t tmpfs -o size=1400m none /out; mount -t tmpfs none /run; mkdir -p /dev/pts /dev/shm
mount -t devpts none /dev/pts; mount -t tmpfs none /dev/shm; ln -sf /proc/self/fd /dev/fd
ip link set lo up
read -r up _ < /proc/uptime; echo "booted after $up s"
cd /srv/gdbheap; { sh /srv/job.sh; echo $? > /out/status; } 2>&1 | tee /out/log
read -r up _ < /proc/uptime; echo "done after $up s"
tar -cSf /dev/vdb -C /out .; sync; echo o > /proc/sysrq-trigger; sleep 60
END
    } > "$F/$NAME/srv/start.sh"
}

# tool PROGRAM ARGUMENT...: run a program of Debian 13 with its own loader and libraries, independent of this system.
tool() {
    local program=$1
    shift
    "$F/tools/usr/lib64/ld-linux-x86-64.so.2" --library-path "$F/tools/usr/lib/x86_64-linux-gnu" "$F/tools/usr/$program" "$@"
}

boot() {
    local size
    work=$(mktemp -d "$F/run.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    first_files
    start_file "$@"
    size=$(($(du -sm "$F/$NAME" | cut -f1) * 5 / 4 + 900))
    truncate -s "${size}M" "$work/root.img"
    mkfs.ext4 -q -O ^has_journal -d "$F/$NAME" "$work/root.img"
    truncate -s "${OUT_MIB}M" "$work/out.img"
    tool bin/qemu-system-aarch64 -L "$F/tools/usr/share/qemu" \
        -M virt,mte=on -cpu max,pauth-impdef=on,sve=off -smp 2 -m "$MEMORY" -nographic -no-reboot -nic none -accel tcg,thread=multi \
        -kernel "$F/$KERNEL"/boot/vmlinuz-* -initrd "$work/first.cpio" -append "console=ttyAMA0 quiet panic=-1 mitigations=off" \
        -drive "if=none,id=a,file=$work/root.img,format=raw,cache=unsafe" -device virtio-blk-pci,drive=a,romfile= \
        -drive "if=none,id=b,file=$work/out.img,format=raw,cache=unsafe" -device virtio-blk-pci,drive=b,romfile= </dev/null >&2
    rm -rf "$F/out"
    mkdir -p "$F/out"
    tar -xf "$work/out.img" -C "$F/out"
    [ "$(cat "$F/out/status")" = 0 ]
}

root tools trixie amd64 qemu-system-arm cpio
root "$NAME" "$SUITE" arm64 '?essential' python3 python3-pip gdb gcc libc6-dev procps iproute2 mount $TESTS $MALLOCS
kernel
wheel
checkout
boot "$@"
