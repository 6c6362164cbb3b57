"""``gdbheap watch`` on programs that grow by their own schedule, and in control groups with the kernel's limit: it
acts at the right time on the right process, and after any failure the process runs on and is still watched."""

from __future__ import annotations

import ctypes
import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from caught import one_round
from elftools.elf.elffile import ELFFile
from support.busy import wait_for
from support.control_groups import limited_group
from support.programs import GDBHEAP, PATIENCE, gdbheap, interpreters, status, tracer
from support.watches import MIB, PTRACE_DETACH, PTRACE_SEIZE, go, grown, rss, swelling, watching

from gdbheap.snapshots.file import read
from gdbheap.targets.chosen_processes import Programs
from gdbheap.watching import actions, heap_figures
from gdbheap.watching.child import read_seconds
from gdbheap.watching.memory_readings import GroupMemory, MachineMemory, ProcessMemory, groups_above
from gdbheap.watching.polling import LONGEST, PolledMemories, PolledMemory
from gdbheap.watching.triggers import AboveSize, Cause, NearLimit
from gdbheap.watching.watcher import MAX_PAUSE, ProcessFolder, Watcher, WatchRequest

ROUNDS = 4


@pytest.mark.skipif(shutil.which("gdb") is None, reason="there is no gdb")
def test_part_of_a_core(tmp_path: Path, rng: random.Random) -> None:
    """Check that no part of a core stays if the disk has no room for it, although gdb reports that it saved one."""
    size = rng.randrange(8, 200) << 10
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # noqa: E731
    line = ["--rss=1K", f"--output={tmp_path}", "--core", "--no-snapshot", "--count=1", "--max-stop=60", "--json"]
    with swelling(MIB, MIB) as process:
        command = [str(GDBHEAP), "watch", str(process.pid), *line]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, preexec_fn=limit)
    (acted,) = [row for row in map(json.loads, done.stdout.splitlines()) if row["event"] == "acted"]
    assert not acted["files"] and "no core was written" in acted["errors"][0], done
    assert not list(tmp_path.iterdir()) and done.returncode == 1


def test_rss(tmp_path: Path, rng: random.Random) -> None:
    """Check that above the bound the snapshot, the answer and the core are made at once, and that the process then
    grows to its end."""
    with swelling(100 * MIB, 80 * MIB) as process:
        bound = rss(process.pid) + rng.randrange(10, 60) * MIB
        options = ["--heap", *(["--core"] if os.access("/usr/bin/gdb", os.X_OK) else []), "--max-stop=60"]
        with watching(str(process.pid), f"--rss={bound}", f"--output={tmp_path}", *options) as watch:
            began = watch.event("began")
            assert (began["pid"], began["limits"]) == (process.pid, [])
            go(process)
            acted = watch.event("acted")
            last = watch.event("end")
            assert watch.process.wait(PATIENCE) == 0 and (last["acted"], last["failed"], last["why_ended"]) == (
                1,
                0,
                "count",
            )
        assert acted["cause"]["kind"] == "rss" and acted["cause"]["bytes"] > bound == acted["cause"]["bound"]
        assert acted["errors"] == [] and acted["held"] > 0 and not acted["partial"] and acted["cgroup"] is None
        grown(process)
        found = read(acted["files"]["snapshot"]).snapshot
        assert bound < found.ledger.rss.bytes <= rss(process.pid) and found.target["pid"] == process.pid
        answer = json.loads(Path(acted["files"]["heap"]).read_text())
        assert answer["command"] == "heap" and answer["rss"]["bytes"] == found.ledger.rss.bytes
        if "core" in acted["files"]:
            with open(acted["files"]["core"], "rb") as stream:
                assert ELFFile(stream)["e_type"] == "ET_CORE"
            types = gdbheap("pyobjects", acted["files"]["core"], "--json")
            rows = {row["type"]: row["count"] for row in json.loads(types.stdout)["rows"]}
            assert rows["__main__.Ballast"] * 262144 > acted["cause"]["bound"] // 2
        assert sorted(map(str, tmp_path.iterdir())) == sorted(acted["files"].values())


def test_growth(tmp_path: Path) -> None:
    """Check that growth counts, and not size: earlier memory of the process is no cause."""
    with swelling(200 * MIB, 60 * MIB) as process:
        with watching(str(process.pid), "--grows=40M/1m", f"--output={tmp_path}") as watch:
            watch.event("began")
            before = rss(process.pid)
            go(process)
            cause = watch.event("acted")["cause"]
            assert cause["kind"] == "grows" and cause["bytes"] - before > 39 * MIB and cause["bound"] == 40 * MIB
        grown(process)


def test_processes_that_start_later(tmp_path: Path, rng: random.Random) -> None:
    """Check that a process of that name that starts later is watched, and reported when it ends; then the next one."""
    name = f"sleeper{rng.randrange(1 << 20)}"
    program = tmp_path / name
    program.symlink_to("/bin/sleep")
    (tmp_path / "out").mkdir()
    with watching(f"--name=^{name}$", "--rss=1K", f"--output={tmp_path}/out", "--count=2") as watch:
        for _ in range(2):
            with subprocess.Popen([str(program), "1000"]) as process:
                assert watch.event("began")["pid"] == process.pid
                acted = watch.event("acted")
                assert (acted["pid"], acted["name"], acted["errors"]) == (process.pid, name, [])
                assert os.path.basename(acted["files"]["snapshot"]).startswith(f"{name}-{process.pid}-")
                assert process.poll() is None
                process.kill()
                if _ == 0:
                    assert watch.event("ended")["pid"] == process.pid
        assert watch.event("end")["acted"] == 2


def test_group_as_a_whole(tmp_path: Path, rng: random.Random) -> None:
    """Check that the memory of all its processes together is compared, and that the largest of them is examined."""
    with limited_group(1 << 30, rng) as group, swelling(200 * MIB, 60 * MIB) as large, swelling(1 << 30, 1) as small:
        for process in (large, small):
            group.take_in(process.pid)
        line = [f"--cgroup={group.folder}", "--rss=50M", f"--output={tmp_path}"]
        with watching(*line) as watch:
            assert {watch.event("began")["pid"] for _ in range(2)} == {large.pid, small.pid}
            go(large)
            acted = watch.event("acted")
            assert acted["pid"] == large.pid and acted["cause"]["cgroup"] == group.name and acted["errors"] == []
            assert acted["cause"]["bytes"] > 50 * MIB and acted["cause"]["limit"] == group.limit
        for process in (large, small):
            process.kill()


def test_before_the_kernel_kills(tmp_path: Path, rng: random.Random) -> None:
    """Check that a complete snapshot exists from before the kernel killed the process, about a second after it began
    to grow."""
    found = [one_round(rng, tmp_path) for _ in range(ROUNDS)]
    assert [one for one in found if not one.caught] == []


def test_what_was_killed_is_told(tmp_path: Path, rng: random.Random) -> None:
    """Check that the kernel's kill is reported, then the end. The only requested actions came before."""
    with limited_group(64 * MIB, rng) as group, swelling(100 * MIB, 200 * MIB) as process:
        group.take_in(process.pid)
        line = [str(process.pid), "--at-oom", "--no-snapshot", "--run=true", f"--output={tmp_path}", "--count=all"]
        with watching(*line) as watch:
            limits = {limit["cgroup"]: limit["limit"] for limit in watch.event("began")["limits"]}
            assert limits[group.name] == group.limit
            go(process)
            assert watch.event("acted")["run"] == 0
            assert watch.event("killed")["cgroup"] == group.name
            ended = watch.event("ended")
            assert (ended["pid"], ended["exit_status"], ended["oom"]) == (process.pid, -signal.SIGKILL, True)
            last = watch.event("end")
            assert (last["why_ended"], last["failed"], watch.process.wait(PATIENCE)) == ("ended", 0, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_asked_to_end(tmp_path: Path, number: int) -> None:
    """Check that the watch ends quietly, at once, with status 0; the process is not affected."""
    with swelling(1 << 30, 1) as process:
        with watching(str(process.pid), "--rss=1T", "--at-oom", f"--output={tmp_path}") as watch:
            watch.event("began")
            last = watch.end(number)
            assert (last["why_ended"], last["acted"], last["failed"]) == ("asked", 0, 0)
        go(process)
        grown(process)


def test_its_end(tmp_path: Path) -> None:
    """Check that the end is reported in a line, that the watch is over, and that nothing failed."""
    with swelling(1 << 30, 1) as process:
        with watching(str(process.pid), "--rss=1T", f"--output={tmp_path}") as watch:
            watch.event("began")
            process.kill()
            assert watch.event("ended")["pid"] == process.pid and watch.event("end")["why_ended"] == "ended"
            assert watch.process.wait(PATIENCE) == 0


def test_for_a_time(tmp_path: Path) -> None:
    """Check that the watch ends by itself, with status 0, and that the process runs on."""
    with swelling(1 << 30, 1) as process:
        with watching(str(process.pid), "--rss=1T", "--duration=0.3", f"--output={tmp_path}") as watch:
            last = watch.event("end")
            assert (last["why_ended"], last["acted"], watch.process.wait(PATIENCE)) == ("duration", 0, 0)
        go(process)
        grown(process)


def test_for_people(tmp_path: Path) -> None:
    """Check lines with the time on standard error, from the condition to the end."""
    with swelling(1 << 30, 1) as process:
        done = gdbheap("watch", str(process.pid), "--rss=1M", f"--output={tmp_path}", "--run=sh -c 'echo $GDBHEAP_PID'")
        started, began, hooked, acted, ended = done.stderr.splitlines()
        assert started.endswith(" the watch acts when RSS is more than 1.0 MiB, and ends after 1 action (--count)")
        assert began.endswith(f"process {process.pid} (swelling.py) is watched")
        assert hooked == str(process.pid) and f"process {process.pid}" in acted and "more than 1.0 MiB" in acted
        assert "the snapshot is in " in acted and acted[:4].isdecimal()
        assert ended.endswith("the watch has ended, because it has acted as often as --count allows; it acted once")
        assert ended[:4].isdecimal() and (done.returncode, done.stdout) == (0, "")


SECRET = """
import sys
names = {sys.argv[1]: [bytes(1000) for _ in range(3000)]}
print("ready", flush=True)
sys.stdin.readline()
"""


def test_files_hold_no_contents(tmp_path: Path, rng: random.Random) -> None:
    """Check that a key on the path to the largest object is in none of the files; with --with-contents it would be."""
    token = "".join(rng.choice("bcdfghjklmnpqrstvwxz") for _ in range(12))
    command = [interpreters()[0].executable, "-I", "-c", SECRET, token]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        with watching(str(process.pid), "--rss=1M", "--heap", f"--output={tmp_path}") as watch:
            files = watch.event("acted")["files"]
        whole = tmp_path / "whole.heap"
        assert gdbheap("snapshot", str(process.pid), str(whole), "--with-contents").returncode == 0
        process.kill()
    assert token in str(read(str(whole)).snapshot)
    assert token not in str(read(files["snapshot"]).snapshot) and token not in Path(files["heap"]).read_text()


HOOK = "sh -c 'env | grep ^GDBHEAP_ > {}; exit 3'"


def test_hook(tmp_path: Path) -> None:
    """Check that the hook gets the event in its environment, and that a status other than 0 is a failure."""
    facts = tmp_path / "facts"
    with swelling(1 << 30, 1) as process:
        with watching(str(process.pid), "--rss=1M", f"--output={tmp_path}", f"--run={HOOK.format(facts)}") as watch:
            acted = watch.event("acted")
            assert acted["run"] == 3 and acted["errors"] == ["sh ended with status 3"]
            assert watch.event("end")["failed"] == 1 and watch.process.wait(PATIENCE) == 1
        said = dict(line.split("=", 1) for line in facts.read_text().splitlines())
        assert said["GDBHEAP_PID"] == str(process.pid) and said["GDBHEAP_CAUSE"] == "rss"
        assert said["GDBHEAP_SNAPSHOT"] == acted["files"]["snapshot"] and int(said["GDBHEAP_SIZE"]) > MIB
        assert said["GDBHEAP_BOUND"] == str(MIB) and "GDBHEAP_LIMIT" not in said


def test_hook_that_hangs(tmp_path: Path) -> None:
    """Check that the hook is ended with all that it started, and that the watch continues."""
    mark = tmp_path / "mark"
    with swelling(1 << 30, 1) as process:
        hook = f"--run=sh -c 'echo $$ > {mark}; sleep 1000 & wait'"
        line = [str(process.pid), "--rss=1M", "--no-snapshot", "--run-limit=200ms", "--count=2", "--again=0"]
        with watching(*line, f"--output={tmp_path}", hook) as watch:
            for _ in range(2):
                acted = watch.event("acted")
                assert acted["run"] is None and acted["errors"] == ["sh was ended after 0.2 s (--run-limit)"]
                group = int(mark.read_text())
                with pytest.raises(ProcessLookupError):
                    wait_for(lambda group=group: os.killpg(group, 0), "it goes on")  # type: ignore[misc]
            assert watch.event("end")["failed"] == 2
        assert process.poll() is None


def small_files() -> None:
    """Limit files to a kilobyte, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def test_full_disk(tmp_path: Path) -> None:
    """Check one line, no file and no half of one; the next step is done, and so is the next action."""
    with swelling(1 << 30, 1) as process:
        line = [str(process.pid), "--rss=1M", f"--output={tmp_path}", "--run=true", "--count=2", "--again=0"]
        with watching(*line, preexec_fn=small_files) as watch:
            for _ in range(2):
                acted = watch.event("acted")
                assert acted["files"] == {} and acted["run"] == 0 and len(acted["errors"]) == 1
                assert "cannot be written" in acted["errors"][0] and list(tmp_path.iterdir()) == []
            assert watch.event("end")["failed"] == 2 and watch.process.wait(PATIENCE) == 1
        go(process)
        grown(process)


def test_held_by_somebody_else(tmp_path: Path) -> None:
    """Check a debugger that came since: one line names it, and later it works."""
    libc = ctypes.CDLL(None, use_errno=True)
    with swelling(200 * MIB, 40 * MIB) as process:
        bound = rss(process.pid) + 20 * MIB
        line = [str(process.pid), f"--rss={bound}", f"--output={tmp_path}", "--count=2", "--again=0"]
        with watching(*line) as watch:
            watch.event("began")
            if libc.ptrace(PTRACE_SEIZE, process.pid, None, None):
                pytest.skip("this machine allows no ptrace here")
            go(process)
            acted = watch.event("acted")
            assert acted["files"] == {} and str(os.getpid()) in acted["errors"][0]
            grown(process)
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, 0x40000000)
            assert libc.ptrace(PTRACE_DETACH, process.pid, None, None) == 0
            process.send_signal(signal.SIGCONT)
            again = watch.event("acted")
            assert again["errors"] == [] and read(again["files"]["snapshot"]).snapshot.target["pid"] == process.pid
            assert watch.process.wait(PATIENCE) == 1


def test_killed_while_it_acts(tmp_path: Path, rng: random.Random) -> None:
    """Check kill -9 at any moment: the process is resumed, and not left stopped."""
    with swelling(1 * MIB, 1 << 40) as process:
        go(process)
        for _ in range(6):
            line = [str(process.pid), "--rss=1M", f"--output={tmp_path}", "--count=all", "--again=0"]
            with watching(*line) as watch:
                watch.event("began")
                time.sleep(rng.uniform(0, 0.5))
                watch.process.kill()
            wait_for(lambda: tracer(process.pid) == 0, "it is still held")
            before = rss(process.pid)
            wait_for(lambda before=before: rss(process.pid) > before, "it does not go on")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--rss=1G"], 2, "which process"),
        (["PID"], 2, "what should it wait for"),
        (["PID", "--rss=1G", "--no-snapshot"], 2, "what should it do"),
        (["PID", "--rss=1G", "--core", "--no-text"], 2, "a core contains all texts"),
        (["PID", "--rss=x"], 2, "not a size"),
        (["PID", "--grows=1G"], 2, "not a valid growth"),
        (["PID", "--grows=1G/0s"], 2, "not a valid growth"),
        (["PID", "--at-oom", "--mark=100%"], 2, "not a valid share"),
        (["PID", "--rss=1G", "--count=-1"], 2, "a number of actions"),
        (["PID", "--rss=1G", "--run="], 2, "the command is empty"),
        (["PID", "--rss=1G", "--run='"], 2, "--run"),
        (["PID", "--rss=1G", "--run=no-such-program"], 2, "no program no-such-program"),
        (["PID", "--rss=1G", "--output=/no/such/folder"], 2, "no folder"),
        (["PID", "--rss=1G", "--cgroup=/x"], 4, "no control group"),
        (["--cgroup=/no-such-group", "--rss=1G"], 4, "no control group"),
        (["4194304", "--rss=1G"], 4, "no process"),
        (["core", "--rss=1G"], 2, "core"),
    ],
)
def test_wrong_usage(tmp_path: Path, words: list[str], code: int, said: str) -> None:
    """Check that a wrong usage of the watch gives one line before the watch begins."""
    pid = str(os.getpid())
    done = gdbheap("watch", *[word.replace("PID", pid) for word in words], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "") and said in done.stderr and done.stderr.count("\n") == 1


def made_up_group(folder: Path, used: int, **files: object) -> GroupMemory:
    """Return a control group of version 2 that consists only of files."""
    folder.mkdir(exist_ok=True)
    texts = {"memory.max": "max", "memory.high": "max", "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0"}
    texts["memory.stat"] = "anon 5\nfile 77\ninactive_file 30\nactive_file 12\nslab_reclaimable 3\nshmem 35"
    texts.update({name.replace("_", ".", 1): str(text) for name, text in files.items()})
    texts["memory.current"] = str(used)
    for name, text in texts.items():
        (folder / name).write_text(text + "\n")
    return GroupMemory(folder)


def test_second_version(tmp_path: Path) -> None:
    """Check the files of version 2 as the kernel documents them: the smallest limit counts, caches do not, and a
    rising count is an event."""
    group = made_up_group(tmp_path / "a", 1000, memory_max=1100, memory_high=1050)
    assert not group.is_first_version and group.limit == 1050
    found = group.read(7.0, frozenset({"pressure"}))
    assert (found.time, found.size, found.used, found.limit) == (7.0, 1000 - 45, 1000, 1050)
    assert found.fired == {"pressure"}
    (tmp_path / "a" / "memory.events").write_text("low 0\nhigh 9\nmax 3\noom 1\noom_kill 1\n")
    assert group.read(8.0).fired == {"oom", "oom_kill"} and group.read(9.0).fired == frozenset()
    # Far from its limit nothing is looked up; without one there is none.
    assert made_up_group(tmp_path / "b", 100, memory_max=1000).read(0).size == 100
    free = made_up_group(tmp_path / "c", 100)
    assert free.limit is None and free.read(0).limit is None
    assert GroupMemory(tmp_path / "b", is_exact=True).read(0).size == 55
    with pytest.raises(OSError):
        GroupMemory(tmp_path)


def test_an_event_of_another_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a group above several services does not report that one of them is out of memory, unless it has a
    limit of its own that was reached; its kills count all."""
    monkeypatch.setattr("gdbheap.watching.memory_readings.CGROUPS", str(tmp_path))
    made_up_group(tmp_path / "services", 1, memory_max=100)
    (tmp_path / "services" / "memory.events.local").write_text("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n")
    made_up_group(tmp_path / "services" / "app", 1, memory_max=10)
    own, above = groups_above(tmp_path / "services" / "app")
    assert [own.name, above.name] == ["/services/app", "/services"]
    (tmp_path / "services" / "memory.events").write_text("low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n")
    assert own.read(1.0).fired == above.read(1.0).fired == frozenset() and (own.kills, above.kills) == (0, 1)
    (tmp_path / "services" / "memory.events.local").write_text("low 0\nhigh 0\nmax 1\noom 1\noom_kill 0\n")
    assert above.read(2.0).fired == {"oom"} and above.read(3.0).fired == frozenset()
    (tmp_path / "services" / "app" / "memory.events").write_text("low 0\nhigh 0\nmax 1\noom 1\noom_kill 1\n")
    assert own.read(4.0).fired == {"oom", "oom_kill"}


def test_names_of_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a group has the name that the kernel gives it, also the uppermost one, and a folder elsewhere its
    path."""
    monkeypatch.setattr("gdbheap.watching.memory_readings.CGROUPS", str(tmp_path))
    made = {"/": "", "/a": "a", "/a/b": "a/b"}
    assert {made_up_group(tmp_path / place, 1).name: place for place in made.values()} == made
    monkeypatch.setattr("gdbheap.watching.memory_readings.CGROUPS", "/nowhere")
    assert GroupMemory(tmp_path / "a").name == str(tmp_path / "a")


def test_machine_and_process() -> None:
    """Check the figures against the kernel's other files."""
    found = MachineMemory().read(1.0)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert found.limit is not None and abs(found.limit - total) < total // 50 and 0 < found.size < found.limit
    with subprocess.Popen(["sleep", "1000"]) as process:
        memory = ProcessMemory(ProcessFolder(process.pid))
        wait_for(lambda: memory.read(0).size == status(process.pid, "VmRSS") << 10, "two sources differ")
        process.kill()
        with pytest.raises(OSError):
            wait_for(lambda: memory.read(0).size < 0, "it is still there")


def test_memories_are_read_when_due(tmp_path: Path) -> None:
    """Check when polled memories are read: soon near the limit, after a second far from it, at once after a wake-up.

    The polled of an ended process is dropped.
    """
    polled = PolledMemories()
    group = made_up_group(tmp_path / "a", 0, memory_max=1 << 50)
    polled.add("far", lambda: PolledMemory(group, [NearLimit()]))
    polled.add("close", lambda: PolledMemory(made_up_group(tmp_path / "b", 1000), [AboveSize(1001)]))
    assert [key for key, _memory, _found in polled.read()] == ["far", "close"]
    waits = [polled.due - polled.last.time for polled in polled if polled.last is not None]
    assert waits == pytest.approx([1.0, 0.02])
    polled.hurry(["far", "nobody"])
    assert "far" in [key for key, _memory, _found in polled.read()]
    polled.keep(["close"])
    assert "far" not in polled and "close" in polled


def test_a_long_look_keeps_others_waiting_for_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a long reading of one process is ended if processes of several users are watched, and that the line
    names the remedy."""
    assert read_seconds(1 << 40, 1) == 900 and read_seconds(0, 2) == 10 and read_seconds(1 << 40, 2) == 60
    monkeypatch.setattr(actions, "_write_heap", lambda *_: time.sleep(600))
    one = actions.Actions(str(tmp_path), True, False, False, False, (), 0.0, None, lambda _heap: pytest.fail("no heap"))
    done = actions.save(one, actions.Request(ProcessFolder(os.getpid()), "x", Cause("rss", 1, 1), seconds=0.2))
    assert done.files == {} and len(done.errors) == 1 and "--user=USER" in done.errors[0], done


def test_a_long_look_for_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a long reading of figures is ended too, and that the process is read again after ten times as long."""
    monkeypatch.setattr(heap_figures, "read_seconds", lambda _size, users: 0.2 if users > 1 else 900.0)
    monkeypatch.setattr(heap_figures, "_said", lambda *_: time.sleep(600))
    reader, folder = heap_figures.HeapReader(0.1, None), ProcessFolder(os.getpid())
    reader.begin(folder, "x", 1)
    reader.begin(ProcessFolder(os.getppid()), "y", 2)
    try:
        assert list(reader.turn(False)) == []
        assert reader.due < time.monotonic() + 0.3
        time.sleep(0.3)
        ((pid, reason),) = reader.turn(False)
        assert "--user=USER" in reason and reader._due[pid] > time.monotonic() + 1
    finally:
        reader.end()


@pytest.mark.parametrize(("waits", "works", "most"), [(0.5, 0.0, LONGEST), (0.0, 0.2, MAX_PAUSE)])
def test_a_new_process_is_looked_for_soon(waits: float, works: float, most: float) -> None:
    """Check that waiting uses no processor, however long a search for processes took."""

    class Slow(Programs):
        """A slow search without processes yet."""

        may_grow = True

        def now(self) -> list[int]:
            time.sleep(waits)
            until = time.thread_time() + works
            while time.thread_time() < until:
                pass
            return []

    watcher = Watcher(Slow([]), WatchRequest(rss=1 << 60))
    began = time.monotonic()
    assert list(watcher._scan()) == []
    assert began < watcher._next_scan <= time.monotonic() + most


def test_a_look_ends_with_the_watch() -> None:
    """Check that a watch that is killed while a child reads leaves no child, which would keep the process stopped."""
    code = "import os, time; from gdbheap.watching.child import Child; Child(lambda: time.sleep(1000))"
    code += "; os.write(1, b'x'); time.sleep(1000)"
    held, other = os.pipe()
    try:
        with subprocess.Popen([sys.executable, "-I", "-c", code], stdout=other) as watch:
            os.close(other)
            assert os.read(held, 1) == b"x"
            watch.kill()
        # The child has the other end of the pipe as well.
        poll = select.poll()
        poll.register(held, select.POLLIN)
        assert poll.poll(1000 * PATIENCE) and os.read(held, 1) == b""
    finally:
        os.close(held)
