"""The container: the memory of a control group, in both versions, and answers without access to memory."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import kernel
from support.control_groups import limited_group
from support.programs import GDBHEAP, Running, c_program, gdbheap, interpreter_of, running

from gdbheap.answers.container import container
from gdbheap.answers.doctor import place, remedy
from gdbheap.host.cgroup import find_group
from gdbheap.host.procfs import Rss
from gdbheap.refusals.causes import CAP_SYS_PTRACE, AccessFacts, permission
from gdbheap.report.text.style import Style
from gdbheap.report.words.container import render

MIB = 1 << 20
NOBODY = 65534
PRESSURE = (
    "some avg10=12.50 avg60=3.00 avg300=0.50 total=2500000\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=500000\n"
)
SECOND = {
    "app/memory.current": f"{300 * MIB}\n",
    "app/memory.max": "max\n",
    "app/memory.high": f"{450 * MIB}\n",
    "app/memory.swap.current": f"{5 * MIB}\n",
    "app/memory.stat": (
        f"anon {180 * MIB}\nfile {90 * MIB}\nkernel {20 * MIB}\nshmem {10 * MIB}\nslab {15 * MIB}\n"
        f"inactive_file {60 * MIB}\n"
    ),
    "app/memory.events": "low 0\nhigh 7\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n",
    "app/memory.pressure": PRESSURE,
    "memory.current": f"{900 * MIB}\n",
    "memory.max": f"{512 * MIB}\n",
    "memory.high": "max\n",
}
FIRST = {
    "memory/app/memory.usage_in_bytes": f"{300 * MIB}\n",
    "memory/app/memory.limit_in_bytes": f"{512 * MIB}\n",
    "memory/app/memory.kmem.usage_in_bytes": f"{20 * MIB}\n",
    "memory/app/memory.stat": (
        f"cache 1\nrss 2\ntotal_cache {90 * MIB}\ntotal_rss {180 * MIB}\ntotal_shmem {10 * MIB}\n"
        f"total_inactive_file {60 * MIB}\ntotal_swap {5 * MIB}\n"
    ),
    "memory/app/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    "memory/app/memory.failcnt": "3\n",
    "memory/memory.usage_in_bytes": f"{900 * MIB}\n",
    "memory/memory.limit_in_bytes": "9223372036854771712\n",
    "memory/release_agent": "",
}


def recorded(folder: Path, files: dict[str, str], line: str) -> tuple[str, str]:
    """Write a folder of control groups, and a proc folder with process 7 in ``line``. Return both paths."""
    for name, text in {**{f"cgroup/{path}": text for path, text in files.items()}, "proc/7/cgroup": line}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    pressure = folder / "proc/pressure/memory"
    pressure.parent.mkdir()
    pressure.write_text(PRESSURE)
    return str(folder / "proc"), str(folder / "cgroup")


@pytest.mark.parametrize(
    ("version", "files", "line"), [(2, SECOND, "0::/app\n"), (1, FIRST, "9:cpu:/x\n4:memory:/app\n0::/\n")]
)
def test_recorded_groups(version: int, files: dict[str, str], line: str, tmp_path: Path) -> None:
    """Check that each figure comes from its file, that the parts add up, and that the sentence has them all."""
    group = find_group(7, *recorded(tmp_path, files, line))
    assert group is not None
    assert (group.version, group.path, group.current, group.max) == (version, "/app", 300 * MIB, 512 * MIB)
    assert (group.anon, group.file, group.shmem, group.kernel) == (180 * MIB, 90 * MIB, 10 * MIB, 20 * MIB)
    assert (group.inactive_file, group.swap) == (60 * MIB, 5 * MIB)
    assert group.events["max"] == 3 and group.events["oom_kill"] == 1
    assert group.pressure is not None and group.pressure.some == (12.5, 3.0, 0.5)
    assert (group.pressure.some_seconds, group.pressure.full_seconds) == (2.5, 0.5)
    if version == 2:
        assert (group.high, group.slab, group.max_of, group.pressure.scope) == (450 * MIB, 15 * MIB, "/", "group")
    else:
        assert (group.high, group.slab, group.max_of, group.pressure.scope) == (None, None, "/app", "machine")
    found = container(group, Rss(130 * MIB, 0, "status", anonymous=120 * MIB, proportional=100 * MIB))
    assert found is not None
    assert (found.own, found.others, found.cache, found.moved) == (100 * MIB, 80 * MIB, 80 * MIB, 0)
    parts = (found.own, found.others, found.cache, found.shmem, found.kernel, found.rest)
    assert sum(part or 0 for part in parts) == found.current
    text = render(found, 3 * MIB, Style())
    for word in (
        "uses 300.0 MiB", "anonymous memory 100.0 MiB", "other processes 80.0 MiB", "page cache 80.0 MiB",
        "limit 512.0 MiB", "60.0 MiB of page cache is reclaimed first", "3 times", "ended 1 process", "12.5/3.0/0.5 %",
        "MADV_FREE): 3.0 MiB",
    ):  # fmt: skip
        assert word in text, text


def test_the_containers_own_root(tmp_path: Path) -> None:
    """Check a container in which the name is the machine's or "..", and the group is at the root of the mount."""
    files = {path.removeprefix("app/"): text for path, text in SECOND.items() if path.startswith("app/")}
    for number, line in enumerate(("0::/\n", "0::/../..\n", "0::/docker/0123\n")):
        group = find_group(7, *recorded(tmp_path / str(number), files, line))
        assert group is not None and group.path == "/" and group.current == 300 * MIB, line


def test_no_group(tmp_path: Path) -> None:
    """Check that there is no group for the root of version 1 or without mounts, and that invalid numbers are
    unknown."""
    root = {path: text for path, text in FIRST.items() if "/app/" not in path}
    assert find_group(7, *recorded(tmp_path / "root", root, "4:memory:/\n")) is None
    assert find_group(7, *recorded(tmp_path / "none", {"x": ""}, "0::/app\n")) is None
    assert find_group(8, *recorded(tmp_path / "gone", SECOND, "0::/app\n")) is None
    assert container(None, Rss(1, 0, "status")) is None
    broken = {
        **SECOND, "app/memory.stat": "anon many\nfile\n\xff 1 2\nshmem -4\nslab 999999999999999999999999\n",
        "app/memory.events": "oom_kill\n", "app/memory.pressure": "some avg10\n", "app/memory.max": "-1",
    }  # fmt: skip
    group = find_group(7, *recorded(tmp_path / "broken", broken, "0::/app\n"))
    assert group is not None and group.events == {} and group.pressure is not None
    assert (group.anon, group.file, group.shmem, group.slab, group.max) == (None, None, None, None, 512 * MIB)
    found = container(group, Rss(MIB, 0, "status", anonymous=MIB))
    assert found is not None and found.others is None and "300.0 MiB" in render(found, None, Style())


def test_what_was_charged_elsewhere() -> None:
    """Check that memory that a process got before it joined the group does not count for the group."""
    group = find_group("self")
    if group is None or group.anon is None:
        pytest.skip("no control group counts the memory of this process")
    found = container(group, Rss(None, None, "status", anonymous=group.anon + MIB))
    assert found is not None and (found.moved, found.others) == (MIB, 0)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a process with 40 MiB, of which it frees 8 lazily on request."""
    script = (
        "import mmap,sys\nkept = bytearray(b'x' * (32 << 20))\n"
        "lazy = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\nlazy.write(b'y' * (8 << 20))\n"
        "lazy.madvise(8)\nsys.stdin.readline()\nkept += bytes(1)\n"
        "other = bytearray(b'z' * (24 << 20))\nsys.stdin.readline()\n"
    )
    with running([interpreter_of("stripped"), "-I", "-c", script], tmp_path_factory.mktemp("large")) as process:
        yield process


def test_lazily_given_back(large: Running) -> None:
    """Check that memory freed by madvise(MADV_FREE) equals the kernel's LazyFree, and has its own line."""
    # The kernel marks the last pages later, and may take some back.
    for _ in range(10):
        before = kernel.in_rollup(large.pid, "LazyFree")
        lazy = json.loads(gdbheap(str(large.pid), "--json").stdout)["rss"]["lazily_freed"]
        if before == kernel.in_rollup(large.pid, "LazyFree"):
            break
    assert lazy == before
    if before == 0:
        pytest.skip("the kernel has already reclaimed the memory")
    assert "Freed lazily (MADV_FREE)" in gdbheap(str(large.pid)).stdout


def test_all_given_back(rng: random.Random, tmp_path: Path) -> None:
    """Check that lazily freed memory comes first on the page if it is the largest part, and never counts as unknown."""
    size = rng.randrange(30, 64) << 20
    with running(c_program("outside", "lazy", size >> 20, tmp_path / "none"), tmp_path) as process:
        page = gdbheap(str(process.pid)).stdout
        if kernel.in_rollup(process.pid, "LazyFree") < size * 0.99:
            pytest.skip("the kernel has already reclaimed some of the memory")
    words = r"(?:freed lazily |the program freed this with madvise)\(MADV_FREE\)"
    given_back = re.findall(rf"([\d.]+) MiB(?: \([\d.]+ % of RSS\):)? {words}", page)
    assert [float(each) for each in given_back] == [pytest.approx(size / (1 << 20), abs=0.5)] * 2, page
    assert "Do nothing: " in page and "unknown" not in page and "no known allocator" not in page


def test_a_real_group(large: Running, rng: random.Random) -> None:
    """Check a real group: its limit, its usage, and the memory that a process gets in it."""
    with limited_group(256 * MIB, rng) as group:
        group.take_in(large.pid)
        large.go_on()
        found = json.loads(gdbheap(str(large.pid), "--json").stdout)["control_group"]
        used = group.folder / ("memory.usage_in_bytes" if group.is_first_version else "memory.current")
        assert found["folder"] == group.name and found["max"] == group.limit
        assert abs(found["current"] - int(used.read_text())) < 4 * MIB and found["anon"] >= 24 * MIB
        assert found["own_anonymous"] == kernel.in_rollup(large.pid, "Pss_Anon")
        text = gdbheap(str(large.pid)).stdout
        assert f"Container {group.name[:60]} uses" in text and "limit 256.0 MiB" in text
        large.process.kill()
        large.process.wait()


def refused(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run gdbheap as the user "nobody"."""
    setpriv = shutil.which("setpriv")
    if os.getuid() or setpriv is None:
        pytest.skip("needs root and setpriv")
    command = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", str(GDBHEAP), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    if "Permission denied" in done.stderr and "gdbheap" not in done.stderr:
        pytest.skip(f"the user nobody may not run this program here: {done.stderr[-200:]}")
    return done


def test_without_memory() -> None:
    """Check another user's process: its size and its group are answered with status 3, the reason is on standard
    error."""
    own = os.getpid()
    done = refused([str(own), "--json"])
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    assert found["rss"]["source"] == "status" and found["rss"]["bytes"] > MIB and found["ledger"] == []
    assert f"runs as uid {NOBODY}" in found["warnings"][0]
    group = find_group(own)
    assert (found["control_group"] is None) == (group is None)
    if group is not None:
        assert (found["control_group"]["folder"], found["control_group"]["max"]) == (group.path, group.max)
    text = refused([str(own)])
    assert text.returncode == 3 and " resident." in text.stdout.splitlines()[0]
    assert len(text.stderr.splitlines()) == 1 and f"runs as uid {NOBODY}" in text.stderr
    other = refused(["holes", str(own)])
    assert other.returncode == 3 and not other.stdout and len(other.stderr.splitlines()) == 1


def test_doctor(tmp_path: Path) -> None:
    """Check that the doctor reports each refusal with a reason and a command; its status is that of reading."""
    own = os.getpid()
    done = refused(["doctor", str(own), "--json"])
    found = json.loads(done.stdout)
    states = {check["id"]: check["state"] for check in found["rows"]}
    assert done.returncode == 3 and states["status"] == "ok" and states["mem"] == "refused"
    assert f"runs as uid {NOBODY}" in found["obstacle"] and str(own) in found["advice"]
    text = refused(["doctor", str(own)]).stdout
    assert "Blocked: " in text and f"$ {found['advice']}" in text.splitlines()


ID = "".join(f"{number:x}" for number in range(16)) * 4
UNIT = "0::/system.slice/app.service\n"
KUBERNETES = "kubectl debug -it POD --target=CONTAINER --profile=sysadmin --image=IMAGE_WITH_GDBHEAP -- gdbheap 7"
DOCKER = "docker run --rm -it --pid=container:{} --cap-add=SYS_PTRACE IMAGE_WITH_GDBHEAP gdbheap 7"
PODMAN = DOCKER.replace("docker", "podman")
SYSTEMD = "sudo systemd-run --pty --collect gdbheap 7"
# Files below the root, the environment, whether root could have CAP_SYS_PTRACE; then the expected place and remedy.
PLACES: dict[str, tuple[dict[str, str], dict[str, str], bool, str, str]] = {
    "host": ({"proc/self/cgroup": "0::/user.slice/user-0.slice\n"}, {}, True, "host", "sudo gdbheap 7"),
    "unit with all of root": ({"proc/self/cgroup": UNIT}, {}, True, "host", "sudo gdbheap 7"),
    "unit with less": ({"proc/self/cgroup": UNIT}, {}, False, "systemd", SYSTEMD),
    "docker, cgroup v1": (
        {".dockerenv": "", "proc/1/cgroup": f"4:memory:/docker/{ID}\n", "proc/self/cgroup": f"4:memory:/docker/{ID}\n"},
        {}, False, "docker", DOCKER.format(ID[:12]),
    ),
    "docker, cgroup v2 by systemd": (
        {".dockerenv": "", "proc/self/cgroup": f"0::/system.slice/docker-{ID}.scope\n"},
        {}, False, "docker", DOCKER.format(ID[:12]),
    ),
    "docker, a namespace of groups": (
        {".dockerenv": "", "proc/1/cgroup": "0::/\n", "proc/self/cgroup": "0::/\n"},
        {}, False, "docker", DOCKER.format("CONTAINER"),
    ),
    "podman": (
        {"run/.containerenv": "", "proc/self/cgroup": f"0::/machine.slice/libpod-{ID}.scope/container\n"},
        {"container": "podman"}, False, "podman", PODMAN.format(ID[:12]),
    ),
    "podman, by what is mounted": (
        {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": "1 2 0:3 /libpod-payload / rw - overlay overlay rw\n"},
        {"container": "oci"}, False, "podman", PODMAN.format("CONTAINER"),
    ),
    "kubernetes, by its environment": (
        {"proc/1/cgroup": "0::/\n"}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False, "kubernetes", KUBERNETES,
    ),
    "kubernetes, cgroup v1": (
        {"proc/1/cgroup": f"4:memory:/kubepods/burstable/pod1/{ID}\n"}, {}, False, "kubernetes", KUBERNETES,
    ),
    "kubernetes, by systemd": (
        {"proc/1/cgroup": f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope\n"},
        {}, False, "kubernetes", KUBERNETES,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_doctor_elsewhere(name: str, tmp_path: Path) -> None:
    """Check made-up roots with the marks of each runtime: the place, and the one command that helps."""
    files, environment, may_trace, where, command = PLACES[name]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    found = place(str(tmp_path), environment, CAP_SYS_PTRACE if may_trace else 0)
    facts = AccessFacts(7, "victim", own_uid=1000)
    assert (found, remedy(facts, found, "7", str(tmp_path))) == (where, command)
    assert remedy(replace(facts, ptrace_scope=3), found, "7", str(tmp_path)) is None
    assert remedy(replace(facts, tracer=99), found, "7", str(tmp_path)) is None
    # A refusal outside the doctor gives the same command.
    refusal = permission(replace(facts, uids=frozenset({0}), container="kubernetes"))
    assert KUBERNETES.partition(" -- ")[0] in refusal


def test_doctor_without_trouble(tmp_path: Path) -> None:
    """Check that the doctor finds no obstacle for its own child, reports on gdbheap without a process, and gives status
    4.

    Status 4 is for a process that does not exist.
    """
    with running([interpreter_of("stripped"), "-I", "-c", "input()"], tmp_path) as process:
        done = gdbheap("doctor", str(process.pid), "--json")
        found = json.loads(done.stdout)
        if found["obstacle"] is None:
            assert done.returncode == 0 and all(check["state"] != "refused" for check in found["rows"][:5])
            assert "gdbheap can read process" in gdbheap("doctor", str(process.pid)).stdout
        else:
            assert done.returncode == 3 and found["advice"]
    assert gdbheap("doctor", "--json").returncode == 0
    assert gdbheap("doctor", str(process.pid)).returncode == 4
    assert gdbheap("doctor", "2").returncode == 4
    assert gdbheap("doctor", "1", "2").returncode == 2


def test_traced_already(tmp_path: Path) -> None:
    """Check a process that another one traces: the tracer is named, and no useless command is suggested."""
    if shutil.which("gdb") is None:
        pytest.skip("no gdb")
    with running([interpreter_of("stripped"), "-I", "-c", "input()"], tmp_path) as process:
        command = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", str(process.pid)]
        asked = f"shell {GDBHEAP} doctor {process.pid} --json > {tmp_path}/found"
        subprocess.run([*command, "-ex", asked], stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
        found = json.loads((tmp_path / "found").read_text())
    assert "already traced by gdb" in found["obstacle"] and found["advice"] is None and found["reading_status"] == 3
