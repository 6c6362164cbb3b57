"""A program for ``heap stats`` in gdb, and its state."""

from __future__ import annotations

import os
from pathlib import Path

from support.gdb_side import Done, documents, own_lines


def descriptors(pid: int) -> dict[str, str]:
    """Return the target of each descriptor of a process."""
    folder = Path(f"/proc/{pid}/fd")
    return {entry.name: os.readlink(entry) for entry in folder.iterdir()}


def state(pid: int) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the state that a call must not change: descriptors, mappings, and the blocked or ignored signals."""
    maps = [line.split()[0] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    names = ("SigPnd:", "ShdPnd:", "SigBlk:", "SigIgn:", "SigCgt:")
    signals = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(names)]
    return descriptors(pid), maps, signals


def refused(done: Done, *words: str) -> None:
    """Check one line that names the reason, status 1 and no answer; with --json, a document that says the same."""
    assert done.returncode == 1, done.stdout + done.stderr
    lines = own_lines(done)
    assert len(lines) == 1 and {one["error"]["status"] for one in documents(done)} <= {1}
    assert all(word in lines[0] for word in words), lines


ALLOCATES = """
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void *work(void *unused)
{
    for (;;) {
        void *volatile block = malloc(100000);
        free(block);
    }
    return unused;
}
int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    for (;;)
        pause();
}
"""
FILTERED = r"""
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void)
{
    struct sock_filter filter[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    struct sock_fprog program = {1, filter};
    void *volatile block = malloc(100000);
    free(block);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    for (;;)
        pause();
}
"""
