"""Whether another process may do all that we may: what it says of itself can then be run by us."""

from __future__ import annotations

import os
from contextlib import suppress

from gdbheap._native import read_link_patiently, read_patiently
from gdbheap.host.procfs import PROC, TEXT_LIMIT, parse_auxv, parse_status
from gdbheap.machines.machine import X86_64

__all__ = ["has_our_rights"]

# proc(5), namespaces(7). What a process's children get is as good as what it has itself.
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "user", "uts")
# The kernel's list of mounts begins at the root folder of a process, so that two with another root see other lists.
MOUNTS, MOST_BYTES = "mountinfo", 4 << 20
# Profiles of AppArmor, contexts of SELinux.
LABEL = "attr/current"
# Of status: what must be the same, and sets of capabilities of which we may have none that it has not.
SAME = ("Gid", "NoNewPrivs", "Seccomp", "Seccomp_filters")
CAPABILITIES = ("CapPrm", "CapEff", "CapBnd")
# elf.h, of the auxiliary vector: not 0 for a program that got rights from its file.
AT_SECURE = 23


def has_our_rights(proc: str | None) -> bool:
    """Return whether a process (its place below /proc) is our user's alone, real, effective and saved, with our groups,
    namespaces, root folder and label, and with our capabilities and filters, which it does not have from its file (the
    words of a set-uid program are those of who started it); False where one of these is unknown."""
    try:
        return _is_allowed(f"{PROC}/self", f"{PROC}/{proc}")
    except (OSError, ValueError, KeyError):
        return False


def _is_allowed(own: str, other: str) -> bool:
    ours, its = (parse_status(read_patiently(f"{place}/status", TEXT_LIMIT)) for place in (own, other))
    return (
        set(its["Uid"].split()) == {str(os.geteuid())}
        and all(ours.get(name) == its.get(name) for name in SAME)
        # Before Linux 5.9 there may be more filters than ours.
        and (its.get("Seccomp", "0") == "0" or "Seccomp_filters" in its)
        and set(ours["Groups"].split()) <= set(its["Groups"].split())
        and not any(int(ours[name], 16) & ~int(its[name], 16) for name in CAPABILITIES)
        and all(_link(f"{own}/ns/{name}") == _link(f"{other}/ns/{name}") for name in NAMESPACES)
        and _link(f"{own}/root") == _link(f"{other}/root")
        and read_patiently(f"{own}/{MOUNTS}", MOST_BYTES) == read_patiently(f"{other}/{MOUNTS}", MOST_BYTES)
        and _label(own) == _label(other)
        and parse_auxv(X86_64, read_patiently(f"{other}/auxv", TEXT_LIMIT))[AT_SECURE] == 0
    )


def _link(path: str) -> str:
    return read_link_patiently(path)


def _label(place: str) -> bytes:
    """Return what a security module calls a process; nothing where there is none."""
    with suppress(OSError):
        return read_patiently(f"{place}/{LABEL}", TEXT_LIMIT)
    return b""
