"""``gdbheap watch --prometheus-sum``: one series for all workers of a service, even as workers start and end."""

from __future__ import annotations

import random
import subprocess

import pytest

from gdbheap.host.procfs import ProcessFolder
from gdbheap.host.service import Service, service_of
from gdbheap.watching.heap_figures import HeapFigures, HeapReader, WatchedHeap
from gdbheap.watching.metrics import METRICS, Now

UID = "0a1b2c3d-1111-2222-3333-0123456789ab"
CONTAINER = "4f" * 32


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (b"0::/system.slice/app.service\n", Service("app")),
        (b"9:memory:/system.slice/app@1.service/sub\n1:name=systemd:/\n", Service("app@1")),
        (b"0::/user.slice/user@1000.service/app.slice/x.service\n", Service("x")),
        (f"0::/system.slice/docker-{CONTAINER}.scope\n".encode(), Service("", "4f4f4f4f4f4f")),
        (f"4:memory:/kubepods/burstable/pod{UID}/{CONTAINER}\n".encode(), Service("", "4f4f4f4f4f4f", UID)),
        (
            f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope\n".encode(),
            Service("", "4f4f4f4f4f4f", UID),
        ),
        (b"0::/\n", Service()),
        (b"", Service()),
    ],
)
def test_where_a_process_belongs(groups: bytes, expected: Service) -> None:
    """Check the service of a process, from the names that systemd, container runtimes and kubelet give to control
    groups.
    """
    assert service_of(groups) == expected


def test_sums(rng: random.Random) -> None:
    """Bytes and counts of all workers, the largest stop, the oldest reading; no label is a process id."""
    app, sizes = Service("app"), [rng.randrange(1 << 30) for _ in range(5)]
    workers = [
        WatchedHeap(
            pid,
            "web",
            HeapFigures(used=size, held=size / 1e9, lines={"a": size}),
            time=1e9 + size,
            reads=2,
            service=app,
        )
        for pid, size in enumerate(sizes, 100)
    ]
    other = WatchedHeap(7, "web", HeapFigures(used=1), time=1.0, reads=1)
    now = Now(
        [*((one, 10) for one in workers), (other, 3)],
        is_summed=True,
        gone=[WatchedHeap(0, "web", reads=9, service=app)],
    )
    found = {metric.name: dict(metric.rows(now)) for metric in METRICS}
    key, alone = ("web", "app", "", ""), ("web", "", "", "")
    assert found["gdbheap_resident_bytes"] == {key: 50, alone: 3} and found["gdbheap_processes"] == {key: 5, alone: 1}
    assert found["gdbheap_in_use_bytes"] == {key: sum(sizes), alone: 1}
    assert found["gdbheap_look_stop_seconds"] == {key: max(sizes) / 1e9}
    assert found["gdbheap_look_timestamp_seconds"] == {key: 1e9 + min(sizes), alone: 1.0}
    assert found["gdbheap_ledger_resident_bytes"] == {(*key, "a"): sum(sizes)}
    assert found["gdbheap_looks_total"] == {key: 10 + 9, alone: 1} and found["gdbheap_watch_processes"] == {(): 6}
    names = {name for metric in METRICS for name in metric.labels_in(now)}
    assert "pid" not in names and {"service", "container", "pod"} <= names
    assert "pid" in {name for metric in METRICS for name in metric.labels_in(Now([]))}


def test_counts_outlive_workers(rng: random.Random) -> None:
    """The counts of one that ended stay while another of its name is left, and go with the last: no series stays."""
    looks = HeapReader(None, None)
    with subprocess.Popen(["sleep", "1000"]) as first, subprocess.Popen(["sleep", "1000"]) as second:
        for process in (first, second):
            looks.begin(ProcessFolder(process.pid), "web", 1)
            looks.held(process.pid, 2.0)
        looks.forget(first.pid)
        assert [seen.held for seen in looks.gone.values()] == [2.0]
        looks.forget(second.pid)
        assert not looks.gone
        first.kill()
        second.kill()
