"""The reasons for which the kernel forbids one process to read another, each as one line made from facts.

The kernel says "Operation not permitted" for all of them. Its rules, in its order (``__ptrace_may_access`` of
kernel/ptrace.c, yama_lsm.c, commoncap.c): an existing tracer; the same user and group ids, or CAP_SYS_PTRACE; a
dumpable process, or CAP_SYS_PTRACE; Yama's ``ptrace_scope``; no more capabilities than the caller has; then user
namespaces, other security modules and seccomp. Nothing is read here: ``refusal`` gathers the facts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gdbheap.errors import one_line
from gdbheap.text import named

CAP_SYS_PTRACE = 1 << 19
# How to start a container next to the program's that gets what it needs; docs/containers.md.
KUBERNETES_DEBUG = "kubectl debug -it POD --target=CONTAINER --profile=sysadmin --image=IMAGE_WITH_GDBHEAP"
SCOPE = "/proc/sys/kernel/yama/ptrace_scope"


@dataclass(frozen=True)
class Facts:
    """The facts that decide whether gdbheap may read a process.

    ``uids``, ``gids`` and ``permitted`` (a mask of capabilities) are the process's. ``own_…``, ``capabilities`` (the
    effective ones) and ``bounding`` (those that root could have here) are gdbheap's.
    """

    pid: int
    name: str
    uids: frozenset[int] = frozenset()
    gids: frozenset[int] = frozenset()
    permitted: int = 0
    dumpable: bool = True
    tracer: int = 0
    tracer_name: str = ""
    label: str = ""
    own_pid: int = -1
    own_uid: int = 0
    own_gid: int = 0
    capabilities: int = 0
    bounding: int = 0
    ptrace_scope: int = 0
    seccomp: bool = False
    user_namespace: bool = False
    container: str = ""

    @property
    def process(self) -> str:
        """The process in words: ``process 1234 (python3)``."""
        return f"process {self.pid} ({named(self.name)})" if self.name else f"process {self.pid}"

    @property
    def may_trace_all(self) -> bool:
        """Whether gdbheap has CAP_SYS_PTRACE."""
        return bool(self.capabilities & CAP_SYS_PTRACE)


def permission(facts: Facts) -> str:
    """Return the line of the first cause that explains a refusal, in the kernel's order, or a general line if none
    does."""
    answers = (cause(facts) for cause in CAUSES)
    return next((answer for answer in answers if answer), unknown(facts))


def itself(facts: Facts) -> str | None:
    """Return the cause if the process is gdbheap itself: no process can stop itself."""
    if facts.pid != facts.own_pid:
        return None
    return f"{facts.process} is gdbheap itself: give it the id of another process"


def traced(facts: Facts) -> str | None:
    """Return the cause if another process traces it already: a process has one tracer at a time.

    Inside gdb the tracer is the process in which gdbheap runs, which is no obstacle.
    """
    if facts.tracer in (0, facts.own_pid):
        return None
    who = f"{named(facts.tracer_name)} (process {facts.tracer})" if facts.tracer_name else f"process {facts.tracer}"
    return f"{facts.process} is already traced by {who}: detach or end that one first, or use gdbheap inside it"


def other_user(facts: Facts) -> str | None:
    """Return the cause if a user or group id of the process is not gdbheap's."""
    if facts.may_trace_all or (facts.uids == {facts.own_uid} and facts.gids == {facts.own_gid}):
        return None
    ids = "/".join(str(uid) for uid in sorted(facts.uids))
    if facts.own_uid == 0:
        return f"{facts.process} belongs to uid {ids} and gdbheap runs as root without CAP_SYS_PTRACE: {grant(facts)}"
    if facts.uids == {facts.own_uid}:
        return f"{facts.process} runs with other group ids than gdbheap: {grant(facts)}"
    users = f"belongs to uid {ids} and gdbheap runs as uid {facts.own_uid}"
    return f"{facts.process} {users}: run it as that user, or {grant(facts)}"


def not_dumpable(facts: Facts) -> str | None:
    """Return the cause if the process is not dumpable: a set-uid program, an unreadable one, or one that asked for
    it."""
    if facts.may_trace_all or facts.dumpable:
        return None
    why = "set-uid, not readable, or by prctl(PR_SET_DUMPABLE)"
    return f"{facts.process} is not dumpable ({why}), so that CAP_SYS_PTRACE is needed: {grant(facts)}"


def yama(facts: Facts) -> str | None:
    """Return the cause if ``ptrace_scope`` forbids it: 1 descendants only, 2 CAP_SYS_PTRACE only, 3 nobody.

    See Documentation/admin-guide/LSM/Yama.rst.
    """
    if facts.ptrace_scope >= 3:
        return f"{SCOPE} is 3: nobody may trace until the next boot; let {facts.process} leave a core and give that"
    if facts.may_trace_all or facts.ptrace_scope == 0:
        return None
    rule = "only a parent may trace" if facts.ptrace_scope == 1 else "only CAP_SYS_PTRACE may trace"
    switch = f"or, as root, sysctl kernel.yama.ptrace_scope={0 if facts.ptrace_scope == 1 else 1}"
    return f"{SCOPE} is {facts.ptrace_scope} ({rule}), which closes {facts.process}: {grant(facts)}, {switch}"


def more_capable(facts: Facts) -> str | None:
    """Return the cause if the process has a capability that gdbheap lacks."""
    missing = facts.permitted & ~facts.capabilities
    if facts.may_trace_all or not missing:
        return None
    why = f"has capabilities that gdbheap has not (mask {missing:#x})"
    return f"{facts.process} {why}, so that CAP_SYS_PTRACE is needed: {grant(facts)}"


def namespace(facts: Facts) -> str | None:
    """Return the cause if gdbheap is in a user namespace: a capability counts only in its own one and those below."""
    if not facts.user_namespace:
        return None
    where = "gdbheap is in a user namespace (rootless container), beyond which its capabilities do not count"
    return f"{where}: to look into {facts.process}, run it outside as that user or as root"


def labelled(facts: Facts) -> str | None:
    """Return the cause if a security module (AppArmor, SELinux) confines the process."""
    if not facts.label or facts.label.startswith("unconfined"):
        return None
    label = one_line(facts.label, 80)
    return f"{facts.process} is confined by a security module ({label}): allow ptrace in its profile, or give a core"


def filtered(facts: Facts) -> str | None:
    """Return the cause if gdbheap itself has a seccomp filter, as container runtimes set."""
    if not facts.seccomp:
        return None
    remedy = grant(facts) if facts.container else "start gdbheap without that filter"
    return f"a seccomp filter on gdbheap itself forbids ptrace on {facts.process}: {remedy}"


def unknown(facts: Facts) -> str:
    """Return the line for a refusal that none of the known causes explains."""
    guess = "it may be traced from outside of this PID namespace, or a security module forbids it"
    return f"the kernel refuses access to {facts.process} without saying why ({guess}): try as root on the host"


def grant(facts: Facts) -> str:
    """Return how to get CAP_SYS_PTRACE where gdbheap runs."""
    if facts.own_uid and facts.bounding & CAP_SYS_PTRACE:
        return "run gdbheap as root (sudo), who has CAP_SYS_PTRACE"
    if facts.container == "kubernetes":
        return f'give the container securityContext.capabilities.add: ["SYS_PTRACE"], or use {KUBERNETES_DEBUG}'
    if facts.container:
        return "start the container with docker run --cap-add=SYS_PTRACE (podman the same)"
    return "start gdbheap from where root has CAP_SYS_PTRACE (capsh --print shows what this shell has)"


# In the order in which the kernel checks. Each returns a line, or None if it is not the cause.
CAUSES: tuple[Callable[[Facts], str | None], ...] = (
    itself,
    traced,
    other_user,
    not_dumpable,
    yama,
    more_capable,
    namespace,
    labelled,
    filtered,
)
