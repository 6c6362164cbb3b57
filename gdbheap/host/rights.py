"""Check whether another process has all rights of gdbheap, so that running its command line gives it no new rights."""

from __future__ import annotations

import os
from contextlib import suppress

from gdbheap._native import read_link_patiently, read_patiently
from gdbheap.host.procfs import PROC, TEXT_LIMIT, parse_auxv, parse_status
from gdbheap.machines.machine import THIS_MACHINE

__all__ = ["has_our_rights"]

# proc(5), namespaces(7). A process's later children get the namespace pid_for_children.
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "user", "uts")
# The kernel's list of mounts starts at a process's root folder, so processes with different roots see different lists.
MOUNTS, MOST_BYTES = "mountinfo", 4 << 20
# The AppArmor profile or SELinux context.
LABEL = "attr/current"
# Fields of status that must be equal, and the capability sets: the process must have every capability of gdbheap.
SAME = ("Gid", "NoNewPrivs", "Seccomp", "Seccomp_filters")
CAPABILITIES = ("CapPrm", "CapEff", "CapBnd")
# elf.h, in the auxiliary vector: not 0 if the program got rights from its file.
AT_SECURE = 23


def has_our_rights(proc: str | None) -> bool:
    """Return whether a process has all rights of gdbheap; False if any of them is unknown.

    ``proc``: the process's folder below /proc. The process must have our real, effective and saved users, groups,
    namespaces, root folder, label, capabilities and filters. Return False for a process that got rights from its file:
    any user may choose the command line of a set-uid program.
    """
    try:
        return _is_allowed(f"{PROC}/self", f"{PROC}/{proc}")
    except (OSError, ValueError, KeyError):
        return False


def _is_allowed(own: str, other: str) -> bool:
    ours, its = (parse_status(read_patiently(f"{place}/status", TEXT_LIMIT)) for place in (own, other))
    return (
        set(its["Uid"].split()) == {str(os.geteuid())}
        and all(ours.get(name) == its.get(name) for name in SAME)
        # Before Linux 5.9 the number of filters is unknown and may differ from ours.
        and (its.get("Seccomp", "0") == "0" or "Seccomp_filters" in its)
        and set(ours["Groups"].split()) <= set(its["Groups"].split())
        and not any(int(ours[name], 16) & ~int(its[name], 16) for name in CAPABILITIES)
        and all(_link(f"{own}/ns/{name}") == _link(f"{other}/ns/{name}") for name in NAMESPACES)
        and _link(f"{own}/root") == _link(f"{other}/root")
        and read_patiently(f"{own}/{MOUNTS}", MOST_BYTES) == read_patiently(f"{other}/{MOUNTS}", MOST_BYTES)
        and _label(own) == _label(other)
        and parse_auxv(THIS_MACHINE, read_patiently(f"{other}/auxv", TEXT_LIMIT))[AT_SECURE] == 0
    )


def _link(path: str) -> str:
    return read_link_patiently(path)


def _label(place: str) -> bytes:
    """Return the security module's label of a process (AppArmor, SELinux); b"" if there is none."""
    with suppress(OSError):
        return read_patiently(f"{place}/{LABEL}", TEXT_LIMIT)
    return b""
