"""The reasons why the kernel forbids one process to read another, each as one line made from facts. A function returns
None if its reason does not apply.

The kernel says "Operation not permitted" for all of them. The kernel checks these rules in this order
(``__ptrace_may_access`` of kernel/ptrace.c, yama_lsm.c, commoncap.c):
1. No other tracer has the process.
2. The user and group ids are the same, or the caller has CAP_SYS_PTRACE.
3. The process is dumpable, or the caller has CAP_SYS_PTRACE.
4. Yama's ``ptrace_scope`` allows it.
5. The process has no more capabilities than the caller.
6. User namespaces, other security modules and seccomp allow it.
Nothing is read here: ``refusal`` gathers the facts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gdbheap.dataclass import dataclass
from gdbheap.errors import one_line
from gdbheap.text import named

CAP_SYS_PTRACE = 1 << 19
# The command that starts a container next to the program's container, with the needed capability; see
# docs/containers.md.
KUBERNETES_DEBUG = "kubectl debug -it POD --target=CONTAINER --profile=sysadmin --image=IMAGE_WITH_GDBHEAP"
SCOPE = "/proc/sys/kernel/yama/ptrace_scope"


@dataclass(frozen=True)
class AccessFacts:
    """The facts that decide whether gdbheap may read a process.

    Facts about the process: ``uids``, ``gids``, and ``permitted``, a mask of its capabilities.
    Facts about gdbheap: ``own_…``, ``capabilities`` (the effective ones), and ``bounding`` (those that root could have
    here).
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
        """The process as text: ``process 1234 (python3)``."""
        return f"process {self.pid} ({named(self.name)})" if self.name else f"process {self.pid}"

    @property
    def unnamed(self) -> AccessFacts:
        """The same facts without the names that the process, its tracer and its label have."""
        label = "confined" if is_confined(self) else ""
        return replace(self, name="", tracer_name="", label=label)

    @property
    def may_trace_all(self) -> bool:
        """Whether gdbheap has CAP_SYS_PTRACE, with which it may read the processes of all users."""
        return bool(self.capabilities & CAP_SYS_PTRACE)


def permission(facts: AccessFacts) -> str:
    """Return the reason for a refusal as one line. It is the first cause that applies, in the kernel's order, or a
    general text.
    """
    answers = (cause(facts) for cause in CAUSES)
    return next((answer for answer in answers if answer), unknown(facts))


def itself(facts: AccessFacts) -> str | None:
    """Return the cause if the process is gdbheap itself. A process cannot stop itself."""
    if facts.pid != facts.own_pid:
        return None
    return f"{facts.process} is gdbheap itself: give the id of another process"


def traced(facts: AccessFacts) -> str | None:
    """Return the cause if another process already traces this one. A process can have only one tracer.

    Inside gdb the tracer is the process in which gdbheap runs, which is not an obstacle.
    """
    if facts.tracer in (0, facts.own_pid):
        return None
    who = f"{named(facts.tracer_name)} (process {facts.tracer})" if facts.tracer_name else f"process {facts.tracer}"
    return f"{facts.process} is already traced by {who}: wait until it is done, end it, or use gdbheap inside it"


def other_user(facts: AccessFacts) -> str | None:
    """Return the cause if a user or group id of the process differs from gdbheap's."""
    if facts.may_trace_all or (facts.uids == {facts.own_uid} and facts.gids == {facts.own_gid}):
        return None
    ids = "/".join(str(uid) for uid in sorted(facts.uids))
    if facts.own_uid == 0:
        return f"{facts.process} belongs to uid {ids} and gdbheap runs as root without CAP_SYS_PTRACE: {grant(facts)}"
    if facts.uids == {facts.own_uid}:
        return f"{facts.process} runs with group ids that differ from gdbheap's: {grant(facts)}"
    users = f"belongs to uid {ids} and gdbheap runs as uid {facts.own_uid}"
    return f"{facts.process} {users}: run gdbheap as that user, or {grant(facts)}"


def not_dumpable(facts: AccessFacts) -> str | None:
    """Return the cause if the process is not dumpable. A set-uid process is not, nor one with an unreadable file. A
    process may also change the setting itself.
    """
    if facts.may_trace_all or facts.dumpable:
        return None
    why = "set-uid, unreadable program file, or prctl(PR_SET_DUMPABLE)"
    return f"{facts.process} is not dumpable ({why}), so reading it needs CAP_SYS_PTRACE: {grant(facts)}"


def yama(facts: AccessFacts) -> str | None:
    """Return the cause if Yama's ``ptrace_scope`` forbids reading the process.

    1: a process may read only its descendants; 2: reading needs CAP_SYS_PTRACE; 3: nobody may read a process. See
    Documentation/admin-guide/LSM/Yama.rst.
    """
    if facts.ptrace_scope >= 3:
        return (
            f"{SCOPE} is 3: no user may trace a process until the next boot; let {facts.process} write a core, and "
            "give that core"
        )
    if facts.may_trace_all or facts.ptrace_scope == 0:
        return None
    rule = "only a parent may trace" if facts.ptrace_scope == 1 else "only CAP_SYS_PTRACE may trace"
    switch = f"or, as root, sysctl kernel.yama.ptrace_scope={0 if facts.ptrace_scope == 1 else 1}"
    return f"{SCOPE} is {facts.ptrace_scope} ({rule}), which forbids reading {facts.process}: {grant(facts)}, {switch}"


def more_capable(facts: AccessFacts) -> str | None:
    """Return the cause if the process has a capability that gdbheap lacks."""
    missing = facts.permitted & ~facts.capabilities
    if facts.may_trace_all or not missing:
        return None
    why = f"has capabilities that gdbheap does not have (mask {missing:#x})"
    return f"{facts.process} {why}, so reading it needs CAP_SYS_PTRACE: {grant(facts)}"


def namespace(facts: AccessFacts) -> str | None:
    """Return the cause if gdbheap is in a user namespace.

    Its capabilities count only in this namespace and in the namespaces below it.
    """
    if not facts.user_namespace:
        return None
    where = "gdbheap runs in a user namespace (rootless container), and has no capabilities outside of this namespace"
    return f"{where}: to read {facts.process}, run gdbheap outside, as the user of that process or as root"


def is_confined(facts: AccessFacts) -> bool:
    """Return whether a security module confines the process: its label exists and is not "unconfined"."""
    return bool(facts.label) and not facts.label.startswith("unconfined")


def labelled(facts: AccessFacts) -> str | None:
    """Return the cause if a security module (AppArmor, SELinux) confines the process."""
    if not is_confined(facts):
        return None
    label = one_line(facts.label, 80)
    return f"{facts.process} is confined by a security module ({label}): allow ptrace in its profile, or give a core"


def filtered(facts: AccessFacts) -> str | None:
    """Return the cause if a seccomp filter applies to gdbheap itself. Container runtimes install such a filter."""
    if not facts.seccomp:
        return None
    remedy = grant(facts) if facts.container else "start gdbheap without that filter"
    return f"a seccomp filter on gdbheap itself forbids ptrace on {facts.process}: {remedy}"


def unknown(facts: AccessFacts) -> str:
    """Return the line for a refusal that none of the known causes explains."""
    guess = "perhaps a tracer outside this PID namespace, or a security module"
    return f"the kernel refuses access to {facts.process} without a reason ({guess}): run gdbheap as root on the host"


def grant(facts: AccessFacts) -> str:
    """Return advice on how to run gdbheap with CAP_SYS_PTRACE, which depends on the user and the container."""
    if facts.own_uid and facts.bounding & CAP_SYS_PTRACE:
        return "run gdbheap as root (sudo), which has CAP_SYS_PTRACE"
    if facts.container == "kubernetes":
        return f'give the container securityContext.capabilities.add: ["SYS_PTRACE"], or use {KUBERNETES_DEBUG}'
    if facts.container:
        return "start the container with docker run --cap-add=SYS_PTRACE (podman run has the same option)"
    return "start gdbheap where root has CAP_SYS_PTRACE (capsh --print shows the capabilities of this shell)"


# In the order in which the kernel checks. Each function returns a line, or None if it is not the cause.
CAUSES: tuple[Callable[[AccessFacts], str | None], ...] = (
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
