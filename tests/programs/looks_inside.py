"""Take a snapshot of itself: looks_inside.py PACKAGES FILE HOW...

PACKAGES: the folder of gdbheap; FILE: the file to be written. HOW, in this order: ``undumpable`` and ``filtered`` (no
ptrace, no process_vm_readv) restrict it; ``signal`` takes the snapshot in a handler, with a lock held; ``report``
writes a page. It prints the result as a line of JSON on standard error, and rests. Any CPython from 3.9 on runs it.
"""

import ctypes
import json
import os
import platform
import signal
import struct
import sys
import threading

packages, path, *how = sys.argv[1:]
sys.path.append(packages)
import gdbheap  # noqa: E402

PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 4, 22, 38
ALLOW, EPERM = 0x7FFF0000, 0x00050001
# ptrace, process_vm_readv, process_vm_writev.
REFUSED = (101, 310, 311) if platform.machine() == "x86_64" else (117, 270, 271)
cache = {number: f"value {number} of the cache" for number in range(20_000)}
children = []


def instruction(code, jump_true, jump_false, value):
    """Return an instruction of BPF."""
    return struct.pack("HBBI", code, jump_true, jump_false, value)


def restrict(libc):
    """Apply the requested restrictions."""
    if "undumpable" in how:
        assert libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    if "filtered" in how:
        code = instruction(0x20, 0, 0, 0)
        for place, number in enumerate(REFUSED):
            code += instruction(0x15, len(REFUSED) - place, 0, number)
        code += instruction(0x06, 0, 0, ALLOW) + instruction(0x06, 0, 0, EPERM)
        kept = ctypes.create_string_buffer(code)
        program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(kept))
        assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        assert libc.prctl(PR_SET_SECCOMP, 2, ctypes.c_char_p(program), 0, 0) == 0
        assert libc.ptrace(0, 0, 0, 0) == -1


def look():
    """Write the file and print the result."""
    try:
        saved = gdbheap.write_report(path) if "report" in how else gdbheap.snapshot(path)
        found = {"size": saved.size, "paused": saved.paused, "seconds": saved.seconds}
    except gdbheap.GdbheapError as error:
        found = {"error": str(error), "status": error.status}
    found["pid"], found["children"] = os.getpid(), len(children)
    try:
        found["left"] = os.waitpid(-1, os.WNOHANG | 0x40000000)[0]
    except ChildProcessError:
        found["left"] = None
    sys.stderr.write(json.dumps(found) + "\n")
    sys.stderr.flush()


def main():
    """Take the snapshot, with waiting threads and a held lock."""
    signal.signal(signal.SIGCHLD, lambda number, frame: children.append(number))
    lock = threading.Lock()
    for _ in range(3):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    restrict(ctypes.CDLL(None, use_errno=True))
    if "signal" in how:
        signal.signal(signal.SIGUSR1, lambda number, frame: look())
        with lock:
            os.kill(os.getpid(), signal.SIGUSR1)
    else:
        look()
    os.read(0, 1)


main()
