"""The service, container and pod of a process, by the names of its control groups (``/proc/PID/cgroup``)."""

from __future__ import annotations

import re
from typing import NamedTuple

from gdbheap.host.identity import CONTAINER

__all__ = ["Service", "service_of"]

# UNIT: systemd's units. POD: kubelet's groups, in which systemd writes a minus as an underscore.
UNIT = re.compile(rb"/([^/\n]+)\.service(?:/|$)", re.MULTILINE)
POD = re.compile(rb"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?:/|$)", re.MULTILINE)
ID_DIGITS = 12


class Service(NamedTuple):
    """The service, the container and the pod of a process; "" if there is none.

    ``service``: the systemd unit, without ".service".
    ``container``: the first digits of its id.
    ``pod``: its uid.
    """

    service: str = ""
    container: str = ""
    pod: str = ""


def service_of(groups: bytes) -> Service:
    """Return the service, container and pod of a process. ``groups``: the text of its ``/proc/PID/cgroup``. Of nested
    units, only the innermost is returned.
    """
    units, container, pod = UNIT.findall(groups), CONTAINER.search(groups), POD.search(groups)
    return Service(
        units[-1].decode("utf-8", "replace") if units else "",
        container[1].decode("ascii")[:ID_DIGITS] if container else "",
        pod[1].decode("ascii").replace("_", "-") if pod else "",
    )
