"""A target whose file is on a FUSE server that never responds: ``unanswered.py FOLDER DEVICE HOW [PATH]``.

Root mounts the file system for a user, as fusermount does, and the target runs as that user. It prints its id once it
has mapped everything. The server ends some seconds later, because a command about all processes waits for each process
that ends. HOW:
private, shared: the target maps the file in this way. "later": privately, but only after SIGUSR1, and the id comes
first. "locked": a thread waits in mmap() for ever and holds the lock of the memory map, because a child reads a page of
the file, which is not cached; "locking": the same after SIGUSR1.
"exec", "dirty": the target has written to the file, and the server never writes this back; "exec": it also waits in
execve(). "dirtied": a child has written, and the target maps the file privately; "opened": the target only opened it.
"linked": the server finds no names, root may ask it, and the name of another file that the target has mapped is now a
link to the server's file. "epoll": a thread waits in epoll_ctl() and holds the lock of an epoll with three descriptors.
"inode", "folder": a thread holds the lock of the file PATH, or of the folder PATH that the target makes, because the
thread reads it into a page that never arrives; another thread waits to change it.
"""

import ctypes
import io
import mmap
import os
import platform
import select
import signal
import struct
import sys
import threading
import time

USER = 65534
SIZE = 1 << 20
CLONE_NEWNS, MS_REC_PRIVATE, PR_SET_DUMPABLE, PR_SET_PDEATHSIG = 0x20000, 0x44000, 4, 1
INIT, LOOKUP, GETATTR, OPEN, READ, WRITE, STATFS, OPENDIR = 26, 1, 3, 14, 15, 16, 17, 27
FORGET, INTERRUPT, POLL = 2, 36, 40
GETDENTS64 = {"x86_64": 217, "aarch64": 61}
# FOPEN_DIRECT_IO and FOPEN_KEEP_CACHE: cached pages are dropped when the file is mapped, not when it is opened.
DIRECT = 1 | 2
SERVER_SECONDS, LOCK_SECONDS = 18, 60
how = sys.argv[3]
is_written = how in ("exec", "dirty", "dirtied", "opened")
keeps = how in ("epoll", "inode", "folder")
never = WRITE if is_written else {"linked": LOOKUP, "epoll": POLL}.get(how, READ)
opened = 0
libc = ctypes.CDLL(None, use_errno=True)


def attributes(inode: int) -> bytes:
    """Return a fuse_attr: the folder has inode 1, the file 2."""
    mode, size = (0o40755, 0) if inode == 1 else (0o100755, SIZE)
    return struct.pack("<QQQQQQIIIIIIIIII", inode, size, 8, 0, 0, 0, 0, 0, 0, mode, 1, USER, USER, 0, 4096, 0)


def serve(device: int) -> None:
    """Respond to everything except reads, or writes, or names."""
    if (is_written and how != "exec") or how == "linked":
        signal.alarm(SERVER_SECONDS)
    if keeps:
        signal.alarm(LOCK_SECONDS)
    global opened
    while True:
        request = os.read(device, 1 << 20)
        _length, operation, unique, node = struct.unpack_from("<IIQQ", request)
        if operation in (never, FORGET, INTERRUPT):
            continue
        error, body = 0, b""
        if operation == INIT:
            body = struct.pack("<IIIIHHIIHHI7I", 7, 31, 0, 0, 12, 10, 131072, 1, 32, 0, 0, *[0] * 7)
        elif operation == LOOKUP:
            body = struct.pack("<QQQQII", 2, 0, 3600, 3600, 0, 0) + attributes(2)
        elif operation == GETATTR:
            body = struct.pack("<QII", 3600, 0, 0) + attributes(node)
        elif operation == STATFS:
            body = bytes(80)
        elif operation == READ:
            body = bytes(struct.unpack_from("<I", request, 56)[0])
        elif operation in (OPEN, OPENDIR):
            # The file is opened once before that.
            opened += operation == OPEN
            body = struct.pack("<QII", 1, DIRECT if how.startswith("lock") and opened > 1 else 0, 0)
        else:
            error = -38
        os.write(device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)


def lock(mapped: mmap.mmap, folder: str) -> None:
    """Let a thread wait in mmap()."""
    if os.fork() == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        sys.exit(mapped[SIZE // 2])
    time.sleep(0.5)

    def wait() -> None:
        with open(f"{folder}/file", "rb", buffering=0) as file:
            print(os.getpid(), flush=True)
            libc.mmap(None, ctypes.c_size_t(SIZE), mmap.PROT_READ, mmap.MAP_PRIVATE, file.fileno(), ctypes.c_long(0))

    threading.Thread(target=wait, daemon=True).start()
    time.sleep(600)


def keep_epoll(folder: str) -> None:
    """Let a thread wait while it adds to an epoll, which watches a pipe already."""
    poll, (reader, _writer) = select.epoll(), os.pipe()
    file = os.open(f"{folder}/file", os.O_RDWR)
    poll.register(reader, select.EPOLLIN)
    copies = [os.dup(poll.fileno()) for _ in range(2)]
    threading.Thread(target=poll.register, args=(file, select.EPOLLIN), daemon=True).start()
    time.sleep(0.5)
    print(os.getpid(), len(copies), flush=True)
    time.sleep(600)


def keep_inode(folder: str, place: str) -> None:
    """Let a thread read a file or a folder into memory that never arrives, and another one wait for its end."""
    if how == "folder":
        os.mkdir(place)
    with open(f"{folder}/file", "r+b", buffering=0) as file:
        mapped = mmap.mmap(file.fileno(), SIZE, mmap.MAP_PRIVATE)
    address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(mapped)))
    if how == "folder":
        number = os.open(place, os.O_RDONLY)
        call = libc.syscall, GETDENTS64[platform.machine()], number, address, 4096
    else:
        number = os.open(place, os.O_RDONLY | os.O_DIRECT)
        call = libc.pread, number, address, 4096, ctypes.c_long(0)
    threading.Thread(target=call[0], args=call[1:], daemon=True).start()
    time.sleep(0.5)
    change = libc.mkdir if how == "folder" else libc.chmod
    name = f"{place}/a" if how == "folder" else place
    threading.Thread(target=change, args=(name.encode(), 0o644), daemon=True).start()
    time.sleep(0.5)
    print(os.getpid(), flush=True)
    time.sleep(600)


def map_linked(folder: str) -> mmap.mmap:
    """Map a file, and put a link to a file of the silent server under its name."""
    name = f"{folder}.so"
    with open(name, "w+b", buffering=0) as file:
        file.write(bytes(mmap.PAGESIZE))
        mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
    os.remove(name)
    os.symlink(f"{os.path.basename(folder)}/file", name)
    return mapped


def write_in_child(file: io.FileIO) -> None:
    """Let a child write to a page of the file, and keep its mapping."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        mapped = mmap.mmap(file.fileno(), SIZE, mmap.MAP_SHARED)
        mapped[SIZE // 2] = 1
        os.write(writer, b"x")
        time.sleep(600)
    os.read(reader, 1)


def main() -> None:
    """Mount, become the user, map."""
    folder, node = sys.argv[1:3]
    if libc.unshare(CLONE_NEWNS) or libc.mount(None, b"/", None, MS_REC_PRIVATE, None):
        sys.exit("no mount namespace")
    device = os.open(node, os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={USER},group_id={USER}{',allow_other' * (how == 'linked')}".encode()
    if libc.mount(b"x", folder.encode(), b"fuse", 0, options):
        sys.exit("no FUSE")
    linked = map_linked(folder) if how == "linked" else None
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    if is_written or linked or keeps or how.startswith("lock"):
        # A waiting process is released once the server has ended.
        if os.fork() > 0:
            serve(device)
        os.close(device)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=serve, args=(device,), daemon=True).start()
    if keeps:
        if how == "epoll":
            keep_epoll(folder)
        keep_inode(folder, sys.argv[4])
    if linked:
        print(os.getpid(), flush=True)
        time.sleep(600)
    if how in ("later", "locking"):
        print(os.getpid(), flush=True)
        signal.sigwait([signal.SIGUSR1])
    with open(f"{folder}/file", "r+b", buffering=0) as file:
        if how in ("dirtied", "opened"):
            write_in_child(file)
        if how == "opened":
            print(os.getpid(), flush=True)
            time.sleep(600)
        kind = mmap.MAP_SHARED if how in ("shared", "dirty", "exec") else mmap.MAP_PRIVATE
        mapped = mmap.mmap(file.fileno(), SIZE, kind)
        if how in ("dirty", "exec"):
            mapped[SIZE // 2] = 1
        if is_written:
            # A process that closes the file waits, too.
            print(os.getpid(), flush=True)
            if how == "exec":
                os.execv("/bin/sleep", ["sleep", "600"])
            time.sleep(600)
    if how.startswith("lock"):
        lock(mapped, folder)
    pointers = (ctypes.c_uint64 * 1000)(
        *(ctypes.addressof(ctypes.c_char.from_buffer(mapped)) + 32 * n for n in range(1000))
    )
    print(os.getpid(), len(pointers), flush=True)
    time.sleep(600)


main()
