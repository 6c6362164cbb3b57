"""Actions of a process while it is copied or its copy is read: it closes files, ends, stops, is sandboxed, is
killed."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import busy, programs
from support.gdb_side import compiled, runs

from gdbheap._native import Frozen
from gdbheap.errors import Fault
from gdbheap.targets.cloning import cloned

SECONDS = 20
# Many rounds try each moment of a copy.
ROUNDS = 40 if os.environ.get("GDBHEAP_THOROUGH") else 10
# A server: at SIGUSR1 it closes the connection, which it watches by epoll, and prints epoll's reports.
SERVER = """
import select, signal, socket, sys
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print(listener.getsockname()[1], file=sys.stderr, flush=True)
connection, _ = listener.accept()
poll = select.epoll()
poll.register(connection, select.EPOLLIN | select.EPOLLRDHUP)
signal.signal(signal.SIGUSR1, lambda *_: connection.close())
while True:
    if connection.fileno() >= 0:
        signal.sigtimedwait([], 0.01)
        continue
    print("stale" if poll.poll(0.5) else "clean", file=sys.stderr, flush=True)
    signal.pause()
"""
# A child shares its parent's memory for half a second. The parent does not stop before.
VFORK = """
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
volatile unsigned long rounds;
static void *forking(void *unused)
{
    struct timespec time = {0, 500000000};
    for (;; rounds++) {
        pid_t child = vfork();
        if (child == 0) {
            syscall(SYS_nanosleep, &time, NULL);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    return unused;
}
int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, forking, NULL);
    for (;;)
        pause();
}
"""
# The program sandboxes itself on request: calls that are not allowed kill it.
SANDBOX = """
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static void shut(int number)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_wait4, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    (void)number;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
int main(void)
{
    signal(SIGUSR1, shut);
    for (;;)
        pause();
}
"""
# The report about the threads of this program is larger than a pipe. The program prints a line once all of them exist.
MANY_THREADS = """
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *rest(void *unused)
{
    for (;;)
        pause();
    return unused;
}
int main(void)
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 14);
    int count = 0;
    for (pthread_t thread; count < 7500 && !pthread_create(&thread, &small, rest, NULL);)
        count++;
    fprintf(stderr, "%d\\n", count);
    rest(NULL);
}
"""


def wait_for_filter(pid: int) -> None:
    """Return when the process has sandboxed itself."""
    busy.wait_for(lambda: "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text(), "it has no filter")


def state(task: Path) -> str:
    """Return the letter of a thread's state."""
    try:
        return (task / "stat").read_text().rsplit(") ", 1)[1][0]
    except OSError:
        return "X"


@contextmanager
def started(program: str | Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a program that runs inside the block; its standard error can be read."""
    with subprocess.Popen([str(program), *arguments], stderr=subprocess.PIPE, text=True) as target:
        try:
            yield target
        finally:
            target.kill()


def test_what_it_closes_is_closed() -> None:
    """Check that the peer of a closed connection is notified while the copy lives, and that epoll forgets it."""
    with started(programs.interpreter_of("stripped"), "-I", "-c", SERVER) as target:
        assert target.stderr is not None
        with socket.create_connection(("127.0.0.1", int(target.stderr.readline())), SECONDS) as peer:
            busy.wait_for_call(target.pid, "rt_sigtimedwait")
            copy = Frozen(target.pid)
            copy.let_go()
            target.send_signal(signal.SIGUSR1)
            assert peer.recv(1) == b"" and Path(f"/proc/{copy.pid}").exists()
            assert target.stderr.readline() == "clean\n"
            assert copy.end() and runs(target.pid)


def test_it_ends(tmp_path: Path) -> None:
    """Check that the copy keeps nothing of a process that ended: another process can use its port."""
    with started(programs.interpreter_of("stripped"), "-I", "-c", SERVER) as target:
        assert target.stderr is not None
        port = int(target.stderr.readline())
        copy = Frozen(target.pid)
        copy.let_go()
        target.kill()
        target.wait(SECONDS)
        busy.wait_for(lambda: state(Path(f"/proc/{copy.pid}")) in "XZ", "the copy outlives it")
        with socket.socket() as heir:
            heir.bind(("127.0.0.1", port))
        copy.end()


def test_a_thread_that_stops_too_late(tmp_path: Path) -> None:
    """Check that a vfork's parent is released when it returns, although its copy is still being read."""
    with compiled(VFORK, tmp_path) as path, started(path) as target:
        busy.wait_for(lambda: busy.children_of(target.pid) != [], "it has no child")
        busy.wait_for_call(target.pid, "pause")
        copy = Frozen(target.pid)
        copy.let_go()
        tasks = list(Path(f"/proc/{target.pid}/task").iterdir())

        def is_released() -> bool:
            states = [state(task) for task in tasks]
            return "S" in states and not {"t", "T"} & set(states)

        busy.wait_for(is_released, "the parent stays stopped")
        assert Path(f"/proc/{copy.pid}").exists()
        assert copy.end()
        busy.wait_for(lambda: runs(target.pid), "it does not run on")


def test_told_to_stop_at_that_moment(rng: random.Random) -> None:
    """Check that a SIGSTOP at any moment of a copy stops the process afterwards, and that none is lost."""
    with started(programs.interpreter_of("stripped"), "-I", "-c", "import signal; signal.pause()") as target:
        busy.wait_for_call(target.pid, "pause")
        task = Path(f"/proc/{target.pid}")
        for _ in range(ROUNDS):
            sender = threading.Timer(rng.uniform(0, 0.004), os.kill, (target.pid, signal.SIGSTOP))
            sender.start()
            try:
                copy = Frozen(target.pid)
                copy.let_go()
                copy.end()
            except (RuntimeError, OSError):
                pass  # it was stopped already
            sender.join()
            busy.wait_for(lambda: state(task) == "T", "the signal is lost")
            os.kill(target.pid, signal.SIGCONT)
            busy.wait_for(lambda: runs(target.pid), "it does not run on")
            # The stopped process cannot collect its copy.
            assert set(busy.children_of(target.pid)) <= {"Z"}


def test_it_sandboxes_itself(tmp_path: Path) -> None:
    """Check that a process under a new filter makes no call for gdbheap: its copy stays uncollected, and it lives."""
    with compiled(SANDBOX, tmp_path) as path, started(path) as target:
        busy.wait_for_call(target.pid, "pause")
        copy = Frozen(target.pid)
        copy.let_go()
        target.send_signal(signal.SIGUSR1)
        wait_for_filter(target.pid)
        assert not copy.end(), "it was collected by a call that is not allowed"
        assert target.poll() is None and runs(target.pid)


def test_an_uncollected_copy_is_said(tmp_path: Path) -> None:
    """Check that a warning that comes after the answer is shown too."""
    with compiled(SANDBOX, tmp_path) as path, started(path) as target:
        busy.wait_for_call(target.pid, "pause")
        with cloned(target.pid) as process:
            target.send_signal(signal.SIGUSR1)
            wait_for_filter(target.pid)
        assert "zombie" in process.warnings[-1]


def test_the_copy_is_killed() -> None:
    """Check that the answer names missing data if the copy is killed, and that the process notices nothing."""
    with started(programs.interpreter_of("stripped"), "-I", "-c", "import signal; signal.pause()") as target:
        busy.wait_for_call(target.pid, "pause")
        with cloned(target.pid) as process:
            assert process.cut_short is None
            copy = process._holder.pid
            assert Path(f"/proc/{copy}/oom_score_adj").read_text() == "1000\n"
            os.kill(copy, signal.SIGKILL)
            busy.wait_for(lambda: state(Path(f"/proc/{copy}")) in "XZ", "the copy is not gone")
            with pytest.raises(Fault):
                process.space.read(process.threads[0].sp, 8)
            assert process.cut_short is not None and "the copy was killed" in process.cut_short
        assert runs(target.pid) and busy.children_of(target.pid) == []


def test_suspended_or_ended_while_it_hears_of_threads(tmp_path: Path, rng: random.Random) -> None:
    """Check that a gdbheap that does not read, or that is told to end, does not keep the process stopped."""
    with compiled(MANY_THREADS, tmp_path) as path, started(path) as target:
        assert target.stderr is not None
        if int(target.stderr.readline()) < 7500:
            pytest.skip("the limit on threads is too low here")
        status = Path(f"/proc/{target.pid}/status")
        for sent in (signal.SIGSTOP, signal.SIGTERM):
            command = [str(programs.GDBHEAP), "arenas", str(target.pid), "--clone", "--max-stop=1"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as asking:
                while asking.poll() is None and "TracerPid:\t0\n" in status.read_text():
                    time.sleep(rng.uniform(0, 0.001))
                asking.send_signal(sent)
                try:
                    busy.wait_for(lambda: "TracerPid:\t0\n" in status.read_text(), "it is still held")
                    busy.wait_for(lambda: runs(target.pid), "it does not run on")
                finally:
                    asking.send_signal(signal.SIGCONT)
                asking.wait(programs.PATIENCE)


def test_it_has_no_descriptors(tmp_path: Path) -> None:
    """Check that the copy does not have the open files of the process, and that the process keeps them."""
    with started(programs.interpreter_of("stripped"), "-I", "-c", SERVER) as target:
        assert target.stderr is not None
        target.stderr.readline()
        copy = Frozen(target.pid)
        copy.let_go()
        if tuple(map(int, os.uname().release.split(".")[:2])) < (5, 9):
            pytest.skip("close_range(2) came with Linux 5.9")
        assert os.listdir(f"/proc/{copy.pid}/fd") == [] and len(os.listdir(f"/proc/{target.pid}/fd")) >= 4
        os.kill(copy.pid, 0)
        assert copy.end() and runs(target.pid) and busy.children_of(target.pid) == []


@pytest.mark.skipif(not programs.has_mount_namespaces(), reason="no namespace may be made here")
def test_its_children_are_elsewhere() -> None:
    """Check that no copy is made if it would be the first process of a new namespace, because the namespace would end
    together with the copy.
    """
    program = [programs.interpreter_of("stripped"), "-Ic", "import signal; signal.pause()"]
    with started("unshare", "--pid", *program) as target:
        own, children = (Path(f"/proc/{target.pid}/ns/{name}") for name in ("pid", "pid_for_children"))
        busy.wait_for(lambda: not children.exists() or children.readlink() != own.readlink(), "it has no namespace")
        busy.wait_for(lambda: runs(target.pid), "it does not run")
        with pytest.raises(RuntimeError, match="namespace"):
            Frozen(target.pid)
        assert runs(target.pid) and busy.children_of(target.pid) == []


# A process that shares another one's memory without being its thread; both rest.
SHARER = """
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int rest(void *unused)
{
    for (;;)
        pause();
    return unused != NULL;
}
int main(void)
{
    char *stack = malloc(1 << 16);
    fprintf(stderr, "%d\\n", clone(rest, stack + (1 << 16), CLONE_VM | SIGCHLD, NULL));
    signal(SIGCHLD, SIG_IGN);
    return rest(NULL);
}
"""


@pytest.mark.parametrize("words", [["stats"], ["trim", "--yes"]])
def test_calls_beside_another_process(words: list[str], tmp_path: Path) -> None:
    """Check that no function is called in memory that another process uses, because a stop of the threads does not stop
    it."""
    with compiled(SHARER, tmp_path) as path, started(path) as target:
        assert target.stderr is not None
        sharer = int(target.stderr.readline())
        try:
            done = programs.gdbheap(words[0], str(target.pid), *words[1:])
            assert done.returncode != 0 and "CLONE_VM" in done.stderr and len(done.stderr.splitlines()) == 1, done
        finally:
            os.kill(sharer, signal.SIGKILL)
        busy.wait_for(lambda: not Path(f"/proc/{sharer}").exists(), "it is not collected")
        done = programs.gdbheap(words[0], str(target.pid), *words[1:])
        assert done.returncode == 0, done.stderr
        assert runs(target.pid)


@pytest.mark.parametrize("noun", ["catch", "growth"])
def test_code_that_another_process_runs(noun: str, tmp_path: Path) -> None:
    """Check that code is not changed while another process, which a stop does not stop, may be executing it."""
    with compiled(SHARER, tmp_path) as path, started(path) as target:
        assert target.stderr is not None
        sharer, words = int(target.stderr.readline()), ["malloc"] if noun == "catch" else []
        try:
            done = programs.gdbheap(noun, str(target.pid), *words, "--duration=1")
            assert done.returncode != 0 and "CLONE_VM" in done.stderr and len(done.stderr.splitlines()) == 1, done
        finally:
            os.kill(sharer, signal.SIGKILL)
        busy.wait_for(lambda: not Path(f"/proc/{sharer}").exists(), "it is not collected")
        done = programs.gdbheap(noun, str(target.pid), *words, "--duration=1")
        assert done.returncode == 0, done.stderr
        assert runs(target.pid)
